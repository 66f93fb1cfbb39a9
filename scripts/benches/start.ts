import { spawnSync } from "node:child_process";
import { join } from "node:path";
import type { Bench } from "./bench.ts";
import { median } from "./figures.ts";
import { freePort, registerAgent, startAgent, startController } from "./programs.ts";

const ROUNDS = 9;

/** From the start of the process until it is ready: pid file written, sockets served; nothing answers on the control plane's address. */
export const startUp: Bench = {
  area: "start",
  about: "an agent from its start to ready, with its last good state and no network",
  async run({ dir }) {
    const controller = await startController(dir, await freePort());
    const node = join(dir, "node");
    const first = await startAgent(node);
    await registerAgent(controller, node);
    await first.end();
    await controller.end();
    const ready: number[] = [];
    const empty: number[] = [];
    for (let round = 0; round <= ROUNDS; round += 1) {
      const emptyFrom = performance.now();
      spawnSync(process.execPath, ["-e", "0"]);
      const from = performance.now();
      const agent = await startAgent(node);
      const isWarm = round > 0;
      if (isWarm) {
        empty.push(from - emptyFrom);
        ready.push(performance.now() - from);
      }
      await agent.end();
    }
    const value = median(ready);
    return [
      {
        what: "start to ready",
        value,
        unit: "ms",
        peer: { name: "an empty Node, start to end", value: median(empty) },
        bar: { of: "value", most: 1500 },
      },
    ];
  },
};
