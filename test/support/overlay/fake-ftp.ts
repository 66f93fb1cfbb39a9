import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { expect, onTestFinished } from "vitest";
import { aClient, aServer, type Client } from "./overlay-rig.ts";
import { waitFor } from "../wait-for.ts";

/** An FTP server as a proxy sees one: it greets, and opens data connections on request. */
export interface FakeFtp {
  readonly port: number;
  /** Its ends of the control connections. */
  readonly controls: Socket[];
  /** Its ends of the data connections. */
  readonly data: Socket[];
  /** The last announced port, and the number of announcements. */
  readonly announced: { port: number; times: number };
  /** Returns all received text. */
  text(): string;
}

export async function fakeFtp(): Promise<FakeFtp> {
  let receivedLines = "";
  const controls: Socket[] = [];
  const data: Socket[] = [];
  const announced = { port: 0, times: 0 };
  const listen = async (): Promise<number> => {
    const server: Server = createServer({ allowHalfOpen: true }, (socket) =>
      data.push(socket.on("error", () => undefined)),
    );
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => {
      server.close();
      for (const socket of data) socket.destroy();
    });
    return (server.address() as AddressInfo).port;
  };
  const command = async (line: string, socket: Socket): Promise<void> => {
    receivedLines += `${line}\n`;
    if (line !== "PASV" && line !== "EPSV") return void socket.write("200 ok\r\n");
    announced.port = await listen();
    announced.times += 1;
    // An address that must not be used.
    const place = `192,0,2,1,${announced.port >> 8},${announced.port & 0xff}`;
    socket.write(line === "PASV" ? `227 come (${place})\r\n` : `229 come (|||${announced.port}|)\r\n`);
  };
  const port = await aServer((socket) => {
    controls.push(socket);
    socket.write("220 hello\r\n");
    let rest = "";
    socket.on("data", (chunk: Buffer) => {
      const lines = (rest + chunk.toString("latin1")).split("\r\n");
      rest = lines.pop() ?? "";
      for (const line of lines) void command(line, socket);
    });
    socket.on("end", () => socket.end());
  });
  return { port, controls, data, announced, text: () => receivedLines };
}

/** A client's control connection that has been greeted. */
export async function ftpClient(port: number): Promise<Client> {
  const client = aClient(port);
  await waitFor("the greeting", () => client.text().endsWith("220 hello\r\n"));
  return client;
}

/** Requests a data connection and returns its port, on the address of the client's connection. */
export async function passivePort(client: Client): Promise<number> {
  const before = client.text().length;
  client.socket.write("PASV\r\n");
  const reply = await waitFor("the reply", () => /^(\d.*)\r\n$/s.exec(client.text().slice(before))?.[1]);
  const [, high, low] = /^227 Entering Passive Mode \(127,0,0,1,(\d+),(\d+)\)\.$/.exec(reply) ?? [];
  expect(high, reply).toBeDefined();
  return Number(high) * 256 + Number(low);
}
