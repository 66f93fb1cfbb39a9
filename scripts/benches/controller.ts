import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Bench } from "./bench.ts";
import { delay, freePort, startController, startHelper, until, type Running, type StartOptions } from "./programs.ts";

const NODES = 2000;
/** The first ones pay for what is made once, compiled code above all. */
const FIRST = NODES / 2;
/** Until everything that follows the last handshake is done. */
const SETTLE_MS = 3000;

/** Measures a controller's memory for a connected node, against a socket of a server that does nothing with it. */
export const controllerMemory: Bench = {
  area: "controller",
  about: `memory of a controller for each of ${NODES} connected nodes, against a bare ws server`,
  async run({ dir, say }) {
    const port = await freePort();
    const driver = startHelper("fleet-driver.ts");
    const first = await startController(dir, port);
    await first.end();
    say(`registering ${NODES} nodes`);
    await driver.ask(`nodes ${join(dir, "controller", "controller.db")} ${NODES}`);
    const controller = await startController(dir, port, watched(dir));
    say("opening their sessions");
    const here = await growth(controller, dir, (count) => driver.ask(`sessions ${controller.url} ${count}`));
    const online = (await controller.call("/node?projection[]=online")).match(/"online":true/g)?.length ?? 0;
    if (online !== NODES) throw new Error(`${online} of ${NODES} nodes are online`);
    await driver.ask("close");
    await controller.end("SIGKILL");
    const bare = startHelper("bare-server.ts", [], watched(dir));
    const barePort = await bare.ask("port");
    const there = await growth(bare, dir, (count) => driver.ask(`sockets ${barePort} ${count}`));
    await Promise.all([driver.end(), bare.end()]);
    return [
      {
        what: `memory for each node, from the ${FIRST}th to the ${NODES}th`,
        value: here / 1000,
        unit: "kB",
        peer: { name: "a bare ws server", value: there / 1000 },
        bar: { of: "ratio", most: 1.5 },
      },
    ];
  },
};

/** Lets a server be asked what it holds. */
function watched(dir: string): StartOptions {
  const flags = ["--expose-gc", "--import", join(import.meta.dirname, "held-memory.ts")];
  return { flags, env: { HOLDFAST_BENCH_HELD: join(dir, "held") } };
}

/**
 * By how many bytes a server grows with each connection after the first ones: the heap and what it refers to, garbage
 * not counted. The native part of a socket is the same for both and left out, which is to the peer's advantage.
 */
async function growth(server: Running, dir: string, open: (count: number) => Promise<unknown>): Promise<number> {
  await open(FIRST);
  const before = await held(server, dir);
  await open(NODES - FIRST);
  return ((await held(server, dir)) - before) / (NODES - FIRST);
}

async function held({ pid }: Running, dir: string): Promise<number> {
  const file = join(dir, "held");
  await delay(SETTLE_MS);
  rmSync(file, { force: true });
  process.kill(pid, "SIGUSR2");
  await until("memory is measured", () => existsSync(file));
  return Number(readFileSync(file, "utf8"));
}
