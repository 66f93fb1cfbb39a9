import { createSocket, type RemoteInfo, type Socket } from "node:dgram";
import { onTestFinished } from "vitest";

/** A UDP socket of a test, and the datagrams it received. */
export interface Peer {
  readonly socket: Socket;
  readonly port: number;
  readonly received: string[];
}

/** Opens a UDP socket; received datagrams are stored, and answered by `answer`. */
export async function aPeer(
  answer?: (datagram: Buffer, from: RemoteInfo, socket: Socket) => void,
  host = "127.0.0.1",
): Promise<Peer> {
  const socket = createSocket(host.includes(":") ? "udp6" : "udp4");
  const received: string[] = [];
  socket.on("error", () => undefined);
  socket.on("message", (datagram, from) => {
    received.push(datagram.toString());
    answer?.(datagram, from, socket);
  });
  await new Promise<void>((resolve) => socket.bind(0, host, resolve));
  onTestFinished(() => void socket.close());
  return { socket, port: socket.address().port, received };
}

export async function freeUdpPort(): Promise<number> {
  const socket = createSocket("udp4");
  await new Promise<void>((resolve) => socket.bind(0, "127.0.0.1", resolve));
  const { port } = socket.address();
  await new Promise<void>((resolve) => socket.close(resolve));
  return port;
}

export const echoDatagram = (datagram: Buffer, from: RemoteInfo, socket: Socket): void =>
  socket.send(datagram, from.port, from.address);
