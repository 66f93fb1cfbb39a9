// Runs on a host of a lab: mesh-peer.ts echo PORT, knock HOST PORT ALPN, or clients SOCKET, which makes the clients that a test controls.
import { createSocket } from "node:dgram";
import { connect, createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { connect as tlsConnect } from "node:tls";

/** A line of a test to its client; the first names the target. */
export type ClientOrder =
  | { readonly to: { readonly role: "talk" | "ask"; readonly host: string; readonly port: number } }
  | { readonly send: string }
  | { readonly isEnd: true };

/** A line of a client to its test; each byte of a text is one character. */
export interface ClientNews {
  readonly isConnected?: true;
  readonly text?: string;
  /** The code of an error, or `end` after the other side's half-close. */
  readonly fate?: string;
}

interface Client {
  send(text: string): void;
  end(): void;
  destroy(): void;
}

const [role, ...given] = process.argv.slice(2);
const say = (line: string): void => void process.stderr.write(`${line}\n`);

if (role === "echo") {
  const port = Number(given[0]);
  const datagrams = createSocket("udp4");
  datagrams.on("message", (text, { port, address }) => datagrams.send(text, port, address));
  datagrams.bind(port, "0.0.0.0", () => {
    createServer({ allowHalfOpen: true }, (socket) => {
      socket.on("error", ({ message }) => say(message)).pipe(socket);
    }).listen(port, "0.0.0.0", () => say("ready"));
  });
} else if (role === "knock") {
  const [host = "", port = "", alpn = ""] = given;
  const protocols = alpn === "" ? {} : { ALPNProtocols: [alpn] };
  const socket = tlsConnect({ host, port: Number(port), rejectUnauthorized: false, ...protocols });
  socket.once("secureConnect", () => socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  socket.on("error", ({ message }) => say(message)).pipe(process.stdout);
} else {
  createServer(controlled).listen(given[0]);
}

/** Makes one client, which ends with the connection of its test. */
function controlled(test: Socket): void {
  const report = (news: ClientNews): void => void test.write(`${JSON.stringify(news)}\n`);
  let client: Client | undefined;
  const orders = createInterface({ input: test }).on("error", ({ message }) => say(message));
  orders.on("line", (line) => {
    const order = JSON.parse(line) as ClientOrder;
    if ("to" in order) client = order.to.role === "talk" ? talker(order.to, report) : asker(order.to, report);
    else if ("send" in order) client?.send(order.send);
    else client?.end();
  });
  test
    .on("error", ({ message }) => say(message))
    .on("close", () => {
      client?.destroy();
      client = undefined;
    });
}

function talker(to: { readonly host: string; readonly port: number }, report: (news: ClientNews) => void): Client {
  const socket = connect({ ...to, allowHalfOpen: true });
  socket.once("connect", () => report({ isConnected: true }));
  socket.on("data", (bytes: Buffer) => report({ text: bytes.toString("latin1") }));
  socket.on("error", (error: NodeJS.ErrnoException) => report({ fate: error.code ?? error.message }));
  socket.on("end", () => report({ fate: "end" }));
  return {
    send: (text) => void socket.write(text),
    end: () => void socket.end(),
    destroy: () => void socket.destroy(),
  };
}

function asker(
  { host, port }: { readonly host: string; readonly port: number },
  report: (news: ClientNews) => void,
): Client {
  const socket = createSocket("udp4").on("message", (bytes) => report({ text: bytes.toString("latin1") }));
  socket.on("error", ({ message }) => say(message));
  return {
    send: (text) => socket.send(text, port, host),
    end: () => undefined,
    destroy: () => void socket.close(),
  };
}
