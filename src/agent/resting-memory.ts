import type { Clock } from "../host/clock.ts";
import { parseMemoryMaps } from "../host/proc.ts";
import type { Reader } from "../host/reader.ts";

/** Memory that is this process's alone, and the processor time that it has used so far. */
export interface Usage {
  readonly privateBytes: number;
  readonly cpuMs: number;
}

export interface RestingMemoryOptions {
  readonly clock: Clock;
  readonly usage: () => Usage;
  /** Collects garbage and gives back what is free: the process stands still for about 120 ms. */
  readonly giveBack: () => void;
}

/** The first session has done its work by then. */
const FIRST_MS = 10_000;
const EVERY_MS = 60_000;
/** A process that uses less than this part of a core rests. */
const RESTING = 0.02;
/** Less is not worth a collection. */
const GROWN_BYTES = 2_000_000;

/**
 * Gives memory back once after the start, and each minute in which the process rested and has grown: a burst of work leaves tens of
 * megabytes that V8 would keep, since it collects an old heap only once that has doubled. The returned function ends it.
 */
export function keepMemoryLow({ clock, usage, giveBack }: RestingMemoryOptions): () => void {
  let before = { at: clock.elapsed(), cpuMs: usage().cpuMs };
  let leastBytes: number | undefined;
  const look = (): void => {
    const { privateBytes, cpuMs } = usage();
    const now = clock.elapsed();
    const isResting = cpuMs - before.cpuMs < RESTING * (now - before.at);
    if (leastBytes === undefined || (isResting && privateBytes >= leastBytes + GROWN_BYTES)) {
      giveBack();
      leastBytes = usage().privateBytes;
    }
    before = { at: now, cpuMs };
    cancel = clock.after(EVERY_MS, look);
  };
  let cancel = clock.after(FIRST_MS, look);
  return () => cancel();
}

/** This process's own; pages of files come and go by themselves and count for nothing. */
export function ownUsage(reader: Pick<Reader, "read">): Usage {
  const { user, system } = process.cpuUsage();
  const maps = parseMemoryMaps(reader.read("/proc/self/smaps_rollup") ?? "");
  return { privateBytes: maps?.privateDirtyBytes ?? 0, cpuMs: (user + system) / 1000 };
}
