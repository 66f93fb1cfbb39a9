import { readFileSync, statfsSync } from "node:fs";
import { buildHeartbeat, readHeartbeat } from "../../src/agent/telemetry/heartbeat.ts";
import { hostReader } from "../../src/host/reader.ts";
import type { Bench } from "./bench.ts";
import { median } from "./figures.ts";

const ROUNDS = 15;
const BEATS = 2000;
const FILES = ["/proc/uptime", "/proc/loadavg", "/proc/meminfo"];

/** A whole heartbeat, against nothing but reading what it is made of as text. */
export const heartbeat: Bench = {
  area: "heartbeat",
  about: "making a heartbeat, against reading the same files",
  async run() {
    const reader = hostReader();
    const queue = { records: 0, dropped: 0 };
    const whole = (seq: number): void => {
      buildHeartbeat(readHeartbeat(reader), { seq, at: Date.now(), sessionRttMs: 1, overlay: "DOWN", queue });
    };
    // Read as text: how much a call of the kernel takes beside JavaScript differs twofold between machines.
    const bare = (): void => {
      for (const path of FILES) readFileSync(path, "utf8");
      statfsSync("/");
    };
    const [here, there]: [number[], number[]] = [[], []];
    for (let round = 0; round <= ROUNDS; round += 1) {
      const times = [timePerRun(whole), timePerRun(bare)] as const;
      if (round === 0) continue;
      here.push(times[0]);
      there.push(times[1]);
    }
    return [
      {
        what: "one heartbeat",
        value: median(here),
        unit: "µs",
        peer: { name: "the same files read as text", value: median(there) },
        ratio: median(here.map((time, round) => time / (there[round] ?? Number.NaN))),
        bar: { of: "ratio", most: 2 },
      },
    ];
  },
};

function timePerRun(run: (round: number) => void): number {
  const from = performance.now();
  for (let i = 0; i < BEATS; i += 1) run(i);
  return (1000 * (performance.now() - from)) / BEATS;
}
