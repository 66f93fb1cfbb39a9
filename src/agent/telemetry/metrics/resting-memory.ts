import type { Clock } from "../../../host/clock.ts";
import { parseMemoryMaps } from "../../../host/proc.ts";
import type { Reader } from "../../../host/reader.ts";

/** Private memory of this process, and its processor time. */
export interface Usage {
  readonly privateBytes: number;
  readonly cpuMs: number;
}

export interface RestingMemoryOptions {
  readonly clock: Clock;
  readonly usage: () => Usage;
  /** Collects garbage and returns free memory to the kernel; blocks the process for about 50 ms. */
  readonly giveBack: () => void;
}

/** The first session has finished its work by then. */
const FIRST_MS = 10_000;
const EVERY_MS = 60_000;
/** A process that uses less than this share of a core is idle. */
const RESTING = 0.02;
/** Growth that is worth a collection. */
const GROWN_BYTES = 2_000_000;

/**
 * Returns memory once after the start, and after each minute in which the process was idle and grew. A burst of work leaves tens of
 * megabytes, since V8 collects an old heap only once it has doubled. The returned function stops it.
 */
export function keepMemoryLow({ clock, usage, giveBack }: RestingMemoryOptions): () => void {
  let before = { at: clock.elapsed(), cpuMs: usage().cpuMs };
  let leastBytes: number | undefined;
  const check = (): void => {
    const { privateBytes, cpuMs } = usage();
    const now = clock.elapsed();
    const isResting = cpuMs - before.cpuMs < RESTING * (now - before.at);
    if (leastBytes === undefined || (isResting && privateBytes >= leastBytes + GROWN_BYTES)) {
      giveBack();
      leastBytes = usage().privateBytes;
    }
    before = { at: now, cpuMs };
    cancel = clock.after(EVERY_MS, check);
  };
  let cancel = clock.after(FIRST_MS, check);
  return () => cancel();
}

/** Returns the private memory of this process; file pages do not count, since the kernel drops them itself. */
export function ownUsage(reader: Pick<Reader, "read">): Usage {
  const { user, system } = process.cpuUsage();
  const maps = parseMemoryMaps(reader.read("/proc/self/smaps_rollup") ?? "");
  return { privateBytes: maps?.privateDirtyBytes ?? 0, cpuMs: (user + system) / 1000 };
}
