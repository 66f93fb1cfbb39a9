import { createServer } from "node:net";

/** Below the ports that the kernel gives to outgoing connections, each of which could take a chosen one in the meantime. */
const PORTS = { first: 12_000, perWorker: 1000, workers: 20 };
const givenPorts = new Set<number>();

/** A port of 127.0.0.1 that is free, and that no other test is given; kept over restarts of what listens on it. */
export async function freePort(): Promise<number> {
  const worker = Number(process.env["VITEST_POOL_ID"] ?? 0) % PORTS.workers;
  const from = PORTS.first + worker * PORTS.perWorker;
  for (;;) {
    const port = from + Math.floor(Math.random() * PORTS.perWorker);
    if (givenPorts.has(port)) continue;
    givenPorts.add(port);
    if (await isFree(port)) return port;
  }
}

function isFree(port: number): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
