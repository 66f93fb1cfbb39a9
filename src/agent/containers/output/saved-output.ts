import type { DatabaseSync } from "node:sqlite";
import type { Logger } from "pino";
import { InputError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { CONTAINER_OUTPUT_CHARS, type ContainerOutput } from "../../../protocol/documents/telemetry.ts";
import type { Compute, ContainerStatus } from "../model/compute.ts";
import { timedLines, type TimedText } from "./timed-lines.ts";

/** Migration for the saved position of each container's output. */
export const outputMigration = `
CREATE TABLE compute_output (engine_id TEXT PRIMARY KEY, since TEXT NOT NULL, at_ms INTEGER NOT NULL) STRICT;
`;

export interface OutputSaverOptions {
  readonly compute: Pick<Compute, "containers" | "output" | "onChange">;
  readonly sql: DatabaseSync;
  readonly clock: Clock;
  readonly log: Logger;
  /** Accepts records for the control plane, in bounded number. */
  readonly append: (records: readonly ContainerOutput[]) => void;
  /** Called if the database refuses a write. */
  readonly onRefused: (error: unknown) => void;
}

interface Follower {
  readonly stop: AbortController;
  readonly done: Promise<void>;
}

const FLUSH_MS = 1000;
/** Bytes read before a pause, and the pause: at most 256 KiB a second of one container. */
const BURST_CHARS = 64 * 1024;
const BURST_PAUSE_MS = 250;
const AGAIN_MS = 1000;
const RETRY_MS = 5000;
const MAX_FOLLOWERS = 256;
const MAX_ROWS = 1000;

/**
 * Sends the output of containers with `saveOutput` to the control plane. It reads the engine's logs from the last position, so that a
 * restart of the agent loses nothing and a slow disk or control plane blocks no container.
 */
export class OutputSaver {
  readonly #options: OutputSaverOptions;
  readonly #followers = new Map<string, Follower>();
  /** Finished runs, by number of exits. */
  readonly #read = new Map<string, number>();
  /** Containers first seen while their output was not saved. */
  readonly #unsaved = new Set<string>();
  #isClosed = false;
  #cancelTimer: (() => void) | undefined;

  constructor(options: OutputSaverOptions) {
    this.#options = options;
    options.compute.onChange(() => this.update());
  }

  /** Updates which containers' output is saved; called on every change. */
  update(): void {
    if (this.#isClosed) return;
    const { compute } = this.#options;
    const there = new Map(
      compute.containers().flatMap((one) => (one.engineId === undefined ? [] : [[one.engineId, one]])),
    );
    for (const [id, { savesOutput }] of there) if (!savesOutput) this.#unsaved.add(id);
    for (const known of [...this.#read.keys(), ...this.#unsaved]) {
      if (there.has(known)) continue;
      this.#read.delete(known);
      this.#unsaved.delete(known);
    }
    for (const [id, { stop }] of this.#followers) {
      if (there.get(id)?.savesOutput === false)
        stop.abort(new InputError("cancelled", "its output is not saved any longer"));
    }
    for (const [id, status] of there) {
      if (!status.savesOutput || this.#followers.has(id) || this.#followers.size >= MAX_FOLLOWERS) continue;
      if (this.#read.get(id) === status.restarts && !isUp(status)) continue;
      this.#follow(id, status);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelTimer?.();
    const followers = [...this.#followers.values()];
    for (const { stop } of followers) stop.abort(new InputError("cancelled", "the agent is stopping"));
    await Promise.all(followers.map(({ done }) => done));
  }

  #follow(id: string, status: ContainerStatus): void {
    const { log, clock } = this.#options;
    const stop = new AbortController();
    if (this.#unsaved.delete(id)) this.#try(() => this.#keep(id, `${Math.floor(clock.now() / 1000)}.000000000`));
    const done = this.#save(id, status, stop.signal)
      .then(() => AGAIN_MS)
      .catch((error: unknown) => {
        if (!stop.signal.aborted) log.debug({ container: status.name, err: toError(error) }, "output cannot be read");
        return RETRY_MS;
      })
      .then((waitMs) => {
        this.#followers.delete(id);
        if (!this.#isClosed) this.#updateAfter(waitMs);
      });
    this.#followers.set(id, { stop, done });
  }

  #updateAfter(ms: number): void {
    this.#cancelTimer?.();
    this.#cancelTimer = this.#options.clock.after(ms, () => this.update());
  }

  async #save(id: string, { id: container, name, restarts }: ContainerStatus, signal: AbortSignal): Promise<void> {
    const { compute, clock, append } = this.#options;
    const { run, frames } = await compute.output(id, this.#since(id), signal);
    const linesOf = timedLines();
    let waiting: TimedText[] = [];
    let chars = 0;
    let cancel: (() => void) | undefined;
    const flush = (): void => {
      cancel?.();
      cancel = undefined;
      const last = waiting.at(-1);
      if (last === undefined) return;
      const records = recordsOf(waiting).map(({ stream, at, text }) => ({ container, name, run, stream, at, text }));
      waiting = [];
      chars = 0;
      append(records);
      // Saved after the records: duplicates after a crash are better than gaps.
      this.#try(() => this.#keep(id, last.next));
    };
    try {
      for await (const frame of frames) {
        const pieces = linesOf(frame);
        waiting.push(...pieces);
        chars += pieces.reduce((sum, { text }) => sum + text.length, 0);
        if (chars < BURST_CHARS) {
          if (chars > 0) cancel ??= clock.after(FLUSH_MS, flush);
          continue;
        }
        flush();
        await clock.sleep(BURST_PAUSE_MS, signal);
      }
      this.#read.set(id, restarts);
    } finally {
      flush();
    }
  }

  #since(id: string): string | undefined {
    const row = this.#try(() =>
      this.#options.sql.prepare("SELECT since FROM compute_output WHERE engine_id = ?").get(id),
    );
    const since = row?.["since"];
    return typeof since === "string" ? since : undefined;
  }

  #keep(id: string, since: string): void {
    const { sql, clock } = this.#options;
    sql.prepare("INSERT OR REPLACE INTO compute_output VALUES (?, ?, ?)").run(id, since, clock.now());
    sql
      .prepare(
        "DELETE FROM compute_output WHERE at_ms < (SELECT at_ms FROM compute_output ORDER BY at_ms DESC LIMIT 1 OFFSET ?)",
      )
      .run(MAX_ROWS);
  }

  #try<T>(work: () => T): T | undefined {
    try {
      return work();
    } catch (error) {
      this.#options.onRefused(error);
      return undefined;
    }
  }
}

type Piece = Pick<ContainerOutput, "stream" | "at" | "text">;

/** Joins consecutive output of a stream and splits it at the size limit of a record. Pure. */
export function recordsOf(pieces: readonly TimedText[]): readonly Piece[] {
  const records: Piece[] = [];
  for (const { stream, at, text } of pieces) {
    const last = records.at(-1);
    if (last?.stream === stream && last.text.length + text.length <= CONTAINER_OUTPUT_CHARS) {
      records[records.length - 1] = { ...last, text: last.text + text };
      continue;
    }
    for (let from = 0; from < text.length;) {
      const to = from + CONTAINER_OUTPUT_CHARS;
      // A pair of surrogates stays together.
      const end = /[\uD800-\uDBFF]/.test(text[to - 1] ?? "") ? to - 1 : to;
      records.push({ stream, at, text: text.slice(from, end) });
      from = end;
    }
  }
  return records;
}

function isUp({ state }: ContainerStatus): boolean {
  return state === "running" || state === "stopping";
}
