import { join } from "node:path";
import { median, type Figure } from "../figures.ts";
import { memoryOf } from "../processes.ts";
import { delay, start } from "../programs.ts";
import { startOverlay, startPipe, type Contender, type Ports } from "./contenders.ts";
import type { Load } from "./load-client.ts";
import { compared, interleaved } from "./rounds.ts";

const FLOWS = 1000;
/** The first ones pay for what is made once, compiled code above all. */
const FIRST = 1000;
const SETTLE_MS = 3000;

/** Measures the memory of an open connection that has exchanged a message; every round has processes of its own. */
export async function idleFlows(load: Load, dir: string, to: Ports): Promise<Figure[]> {
  const flags = ["--expose-gc", "--import", join(import.meta.dirname, "collect.ts")];
  let round = 0;
  const growth = (begin: () => Promise<Contender>) => async (): Promise<number> => {
    const contender = await begin();
    await load.ask({ do: "hold", port: contender.ports.echo, count: FIRST, keepOn: false });
    const before = await settled(contender);
    await load.ask({ do: "hold", port: contender.ports.echo, count: FLOWS, keepOn: false });
    const after = await settled(contender);
    const { cut } = await load.ask({ do: "release" });
    await contender.end("SIGKILL");
    if (cut > 0) throw new Error(`${cut} idle connections were cut`);
    return (after - before) / FLOWS / 1000;
  };
  const values = await interleaved(
    {
      overlay: growth(() => startOverlay(join(dir, `overlay-${(round += 1)}`), to, { flags })),
      pipe: growth(() => startPipe(to, { flags })),
    },
    { rounds: 3, warmUp: 0 },
  );
  const peer = { name: "a bare Node pipe", values: values.pipe };
  return [compared(`each of ${FLOWS} idle connections`, "kB", values.overlay, peer, { of: "ratio", most: 1.4 })];
}

/** Private memory once garbage is gone. */
async function settled({ pid }: Contender): Promise<number> {
  for (let time = 0; time < 2; time += 1) {
    await delay(SETTLE_MS / 2);
    process.kill(pid, "SIGUSR2");
  }
  await delay(SETTLE_MS);
  return memoryOf(pid).privateDirtyBytes;
}

/** An overlay with a table and nothing to do. */
export async function idleOverlay(dir: string, to: Ports): Promise<Figure> {
  const sizes: number[] = [];
  const empties: number[] = [];
  for (let time = 0; time < 3; time += 1) {
    const overlay = await startOverlay(join(dir, `idle-${time}`), to);
    const empty = start(["-e", "setInterval(() => undefined, 2 ** 30)"], join(dir, "empty.log"));
    await delay(3 * SETTLE_MS);
    sizes.push(memoryOf(overlay.pid).residentBytes / 1e6);
    empties.push(memoryOf(empty.pid).residentBytes / 1e6);
    await Promise.all([overlay.end(), empty.end()]);
  }
  const peer = { name: "an empty Node", value: median(empties) };
  return {
    what: "idle overlay, resident",
    value: median(sizes),
    unit: "MB",
    peer,
    bar: { of: "value", most: 65 },
  };
}
