import { createSocket } from "node:dgram";
import { once } from "node:events";
import { onTestFinished } from "vitest";

/** A name server that accepts every query and answers none. */
export interface SilentNameServer {
  /** Returns the number of queries for a name, in DNS messages. */
  questions(name: string): number;
}

/** Listens on the DNS port (RFC 1035 §4.2.1) of a loopback address; needs root. */
export async function startSilentNameServer(address: string): Promise<SilentNameServer> {
  const messages: Buffer[] = [];
  const socket = createSocket("udp4", (message) => void messages.push(message));
  socket.bind(53, address);
  await once(socket, "listening");
  onTestFinished(() => void socket.close());
  return {
    questions(name) {
      const labels = name.split(".").map((label) => String.fromCharCode(label.length) + label);
      return messages.filter((message) => message.includes(labels.join(""))).length;
    },
  };
}
