import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Bench, BenchOptions } from "./bench.ts";
import type { Figure } from "./figures.ts";
import { applying } from "./l4/applying.ts";
import { bulk, connectCost, roundTrips } from "./l4/carrying.ts";
import { changes } from "./l4/changes.ts";
import { startHaproxy, startOverlay, startPipe, type Ports } from "./l4/contenders.ts";
import { startLoad } from "./l4/load-client.ts";
import { idleFlows, idleOverlay } from "./l4/memory.ts";
import { startHelper } from "./programs.ts";

/** Connections through the overlay program: what they cost, against HAProxy and against a Node that only pipes. */
export const l4: Bench = {
  area: "l4",
  about: "connections through the overlay program, against HAProxy and a bare Node pipe",
  async run(options) {
    const backend = startHelper("l4/backend.ts");
    const to = JSON.parse(await backend.ask("ports")) as Ports;
    const load = startLoad();
    const figures = [...(await carrying(options, to, load)), ...(await memory(options, to, load))];
    await Promise.all([load.end(), backend.end()]);
    options.say("configuration");
    return [...figures, ...(await applying(join(options.dir, "configuration")))];
  },
};

type Load = ReturnType<typeof startLoad>;

async function carrying({ dir, say }: BenchOptions, to: Ports, load: Load): Promise<Figure[]> {
  const overlay = await startOverlay(join(dir, "overlay"), to);
  const haproxy = await startHaproxy(dir, to);
  const pipe = await startPipe(to);
  const contenders = { overlay, haproxy, pipe };
  const figures: Figure[] = [];
  say("bulk");
  figures.push(...(await bulk(load, contenders)));
  say("connects");
  figures.push(...(await connectCost(load, contenders)));
  say("round trips");
  figures.push(...(await roundTrips(load, contenders)));
  say("changes of the table");
  figures.push(...(await changes(load, overlay, to)));
  overlay.control.close();
  await Promise.all([overlay.end(), haproxy.end("SIGKILL"), pipe.end()]);
  return figures;
}

async function memory({ dir, say }: BenchOptions, to: Ports, load: Load): Promise<Figure[]> {
  say("memory");
  mkdirSync(join(dir, "memory"));
  return [...(await idleFlows(load, join(dir, "memory"), to)), await idleOverlay(join(dir, "memory"), to)];
}
