import { HostError, InputError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { SpeedTest } from "../../../protocol/triggers/bodies.ts";
import { transferOnce, type TransferTarget } from "../tools/speed-transfer.ts";
import type { StreamTrigger, TriggerContext } from "../execution/trigger.ts";

export interface SpeedTestOptions {
  readonly clock: Clock;
  /** HTTP(S) URL that answers `GET ?bytes=N` with N bytes and accepts any POST; without it the event is `not-configured`. */
  readonly target: () => TransferTarget | undefined;
  readonly durationMs?: number;
  readonly reportMs?: number;
  readonly stallMs?: number;
  /** Limit of bytes of one run, both directions together. */
  readonly maxBytes?: number;
}

type Direction = "download" | "upload";

const CONNECTIONS = 4;
const DURATION_MS = 10_000;
const REPORT_MS = 1000;
const STALL_MS = 5000;
const STALL_BYTES_PER_SECOND = 1000;
const MAX_BYTES = 500_000_000;
const REQUEST_BYTES = 25_000_000;

/** Measures the speed to a server with four connections per direction: one JSON object per second, the last with `done`. */
export function speedTest(options: SpeedTestOptions): StreamTrigger<SpeedTest> {
  return {
    event: "speed-test",
    kind: "stream",
    request: SpeedTest,
    deadlineMs: 120_000,
    needsDataPlane: true,
    readOnly: true,
    agents: true,
    exclusive: "speed-test",
    async handle({ action }, { signal, emit }) {
      const target = options.target();
      if (target === undefined) throw new InputError("not-configured", "no speed-test server is configured");
      const directions: readonly Direction[] = action === "both" ? ["download", "upload"] : [action];
      const figures = { downloadMbps: 0, maxDownloadMbps: 0, uploadMbps: 0, maxUploadMbps: 0 };
      const maxBytes = (options.maxBytes ?? MAX_BYTES) / directions.length;
      for (const direction of directions) {
        await measure(direction, { ...options, target, maxBytes }, signal, async (average, peak) => {
          if (direction === "download") Object.assign(figures, { downloadMbps: average, maxDownloadMbps: peak });
          else Object.assign(figures, { uploadMbps: average, maxUploadMbps: peak });
          await emit({ kind: "json", data: { ...figures } });
        });
      }
      await emit({ kind: "json", data: { ...figures, done: true } });
      return { exitCode: 0 };
    },
  };
}

/** Returns decimal megabits per second with three decimals. */
export function megabitsPerSecond(bytes: number, elapsedMs: number): number {
  return elapsedMs <= 0 ? 0 : Math.round((bytes * 8) / elapsedMs) / 1000;
}

type MeasureOptions = Omit<SpeedTestOptions, "target"> & { readonly target: TransferTarget; readonly maxBytes: number };
type Report = (average: number, peak: number) => Promise<void>;

/** Transfers data in one direction until time or volume is used up; reports the average and the peak once a second and at the end. */
async function measure(
  direction: Direction,
  options: MeasureOptions,
  signal: TriggerContext["signal"],
  report: Report,
): Promise<void> {
  const { clock, target, maxBytes, durationMs = DURATION_MS, reportMs = REPORT_MS, stallMs = STALL_MS } = options;
  const control = new AbortController();
  const stop = (): void => control.abort(signal.reason);
  signal.addEventListener("abort", stop, { once: true });
  const startedAt = clock.elapsed();
  const volume = { bytes: 0, claimed: 0 };
  const connection = async (): Promise<void> => {
    while (!control.signal.aborted && volume.claimed < maxBytes) {
      const bytes = Math.ceil(Math.min(REQUEST_BYTES, maxBytes - volume.claimed));
      volume.claimed += bytes;
      await transferOnce(direction, target, bytes, control.signal, (moved) => {
        volume.bytes += moved;
      });
    }
  };
  const transfers = Promise.all(Array.from({ length: CONNECTIONS }, connection));
  const finished = transfers.then(() => true);
  finished.catch(() => undefined);
  let peak = 0;
  let lastBytes = 0;
  let lastAt = startedAt;
  let aliveAt = startedAt;
  try {
    for (;;) {
      const isOver = await Promise.race([finished, clock.sleep(reportMs, control.signal).then(() => false)]);
      const now = clock.elapsed();
      const moved = volume.bytes - lastBytes;
      if (moved >= (STALL_BYTES_PER_SECOND * (now - lastAt)) / 1000) aliveAt = now;
      // A short last interval has no meaningful peak; the average may still raise it.
      const average = megabitsPerSecond(volume.bytes, now - startedAt);
      peak = Math.max(peak, average, isOver ? 0 : megabitsPerSecond(moved, now - lastAt));
      await report(average, peak);
      [lastBytes, lastAt] = [volume.bytes, now];
      if (isOver || now - startedAt >= durationMs) return;
      if (now - aliveAt >= stallMs) throw stalled(direction, target, stallMs);
    }
  } finally {
    signal.removeEventListener("abort", stop);
    control.abort();
    await transfers.catch(() => undefined);
  }
}

function stalled(direction: Direction, target: TransferTarget, stallMs: number): HostError {
  return new HostError("timeout", `the ${direction} stalled for ${stallMs / 1000} s`, {
    details: { server: target.url.host },
  });
}
