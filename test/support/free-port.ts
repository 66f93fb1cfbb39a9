import { createServer } from "node:net";

/** Below the kernel's ephemeral ports, any of which could take a chosen one in the meantime. */
const PORTS = { first: 12_000, perWorker: 1000, workers: 20 };
const givenPorts = new Set<number>();

/** Returns a free port of 127.0.0.1 that no other test gets; it stays free over restarts of its listener. */
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
