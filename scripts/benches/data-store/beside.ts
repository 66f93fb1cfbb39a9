// How late the agent's own work is while transfers run beside it.
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { z } from "zod";
import { waitFor } from "../../../test/support/wait-for.ts";
import type { Figure } from "../figures.ts";
import { BUNDLE, delay, FLAGS, startAgent } from "../programs.ts";
import type { Nginx } from "./nginx.ts";
import { command } from "./transfers.ts";

const TRANSFERS = 8;
const IDLE_MS = 10_000;
const PATIENCE_MS = 300_000;
const Delays = z.object({ p50: z.number(), p99: z.number(), most: z.number() });
type Delays = z.infer<typeof Delays>;

/** The delays of a real agent's event loop from the first of so many requests until the last file is there, and without any. */
export async function beside(
  dir: string,
  { http }: Nginx,
  file: string,
  say: (line: string) => void,
): Promise<Figure[]> {
  mkdirSync(dir);
  const dataStore = { allowAddresses: ["127.0.0.0/8"], reservePercent: 0, maxTransfers: TRANSFERS };
  const config = join(dir, "agent.json");
  writeFileSync(config, JSON.stringify({ dataStore }));
  const socket = join(dir, "loop.sock");
  const hook = join(import.meta.dirname, "loop-delay.ts");
  const agent = await startAgent(dir, { flags: ["--import", hook], env: { HOLDFAST_BENCH_LOOP: socket }, config });
  try {
    await delay(IDLE_MS);
    await delays(socket);
    await delay(IDLE_MS);
    const idle = await delays(socket);
    const names = Array.from({ length: TRANSFERS }, (_, at) => `copy-${at}`);
    const begin = names.map((name) => {
      const body = JSON.stringify({ action: "HTTP_DOWNLOAD", uri: `${http}/${file}`, filename: name });
      return command(
        `${process.execPath} ${FLAGS.join(" ")} ${BUNDLE} trigger datastore-manager '${body}' --run ${join(dir, "run")}`,
      );
    });
    await Promise.all(begin);
    const place = join(dir, "state", "data-store");
    await waitFor("all files are there", () => names.every((name) => existsSync(join(place, name))), PATIENCE_MS);
    const busy = await delays(socket);
    for (const [when, { p50, p99, most }] of Object.entries({ idle, busy }))
      say(`  ${when}: p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms, most ${most.toFixed(1)} ms`);
    rmSync(place, { recursive: true, force: true });
    return [
      {
        what: `delay of the agent's event loop beside ${TRANSFERS} transfers, p99`,
        value: busy.p99,
        unit: "ms",
        peer: { name: "idle", value: idle.p99 },
        bar: { of: "value", most: 20 },
      },
    ];
  } finally {
    await agent.end("SIGKILL");
  }
}

async function delays(path: string): Promise<Delays> {
  return Delays.parse(await json(connect(path)));
}
