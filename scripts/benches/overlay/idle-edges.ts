// Simulated edges: each dials the gateway with a key of its own, serves HTTP/2 backwards as an idle edge does, and pings every five
// seconds. Questions: `keys <n>` makes so many and answers with the public ones, `dial <host:port>` connects them all, and any other
// answers how many are connected.
import { createPublicKey, type KeyObject } from "node:crypto";
import type { ServerHttp2Session } from "node:http2";
import { createInterface } from "node:readline";
import { connect } from "node:tls";
import { aKey, certificateOf } from "./certificate.ts";
import { serverOver, tlsLayer } from "./layers.ts";

const AT_ONCE = 8;
const PING_MS = 5000;
const keys: KeyObject[] = [];
const sessions = new Set<ServerHttp2Session>();

function dial(key: KeyObject, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const options = { ...tlsLayer, ...certificateOf(key), host, port, ALPNProtocols: ["holdfast-h2r"] };
    const socket = connect(options, () => {
      const session = serverOver(socket.setNoDelay());
      sessions.add(session);
      const timer = setInterval(() => session.ping(() => undefined), PING_MS);
      session.on("close", () => {
        clearInterval(timer);
        sessions.delete(session);
      });
      // Whoever is not wanted is told so after its own handshake only.
      session.once("remoteSettings", () => resolve());
    });
    socket.on("error", reject).on("close", () => reject(new Error("the gateway closed the connection")));
  });
}

async function dialAll(gateway: string): Promise<number> {
  const [host = "", port] = gateway.split(":");
  const left = [...keys];
  const work = async (): Promise<void> => {
    for (let key = left.pop(); key !== undefined; key = left.pop()) await dial(key, host, Number(port));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return sessions.size;
}

function makeKeys(count: number): object[] {
  for (const session of sessions) session.destroy();
  keys.splice(0, keys.length, ...Array.from({ length: count }, aKey));
  return keys.map((key) => createPublicKey(key).export({ format: "jwk" }));
}

async function answer(line: string): Promise<unknown> {
  const [verb, value = ""] = line.split(" ");
  if (verb === "keys") return makeKeys(Number(value));
  return verb === "dial" ? dialAll(value) : sessions.size;
}

createInterface({ input: process.stdin }).on("line", (line) => {
  answer(line).then(
    (result) => console.log(JSON.stringify(result)),
    (error: unknown) => console.log(JSON.stringify({ error: String(error) })),
  );
});
