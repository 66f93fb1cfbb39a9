import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { StreamName } from "../../protocol/documents/telemetry.ts";
import type { Connection } from "../session/attempt.ts";
import type { Batch, Spool } from "./spool.ts";
import { ANSWER_MS, withinTime } from "../../lib/async/within-time.ts";

export interface PusherOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly spool: Spool;
}

const FLUSH_MS = 60_000;
/** Written in parts, since writing a full spool at once would block everything else. */
const FLUSH_PIECE = { records: 1000, pauseMs: 50 };
const RETRY_MS = 5000;
const SENT_LOOK_MS = 50;
/** Flow records come last: their number could starve other streams. */
const STREAMS: readonly StreamName[] = [...StreamName.options.filter((name) => name !== "flows"), "flows"];

/** Sends the spool during a session, one batch in flight; records that wait a minute are written to disk. */
export class Pusher {
  readonly #options: PusherOptions;
  #connection: Connection | undefined;
  #isRunning = false;
  #isDueAgain = false;
  #cancelRetry = (): void => undefined;
  #cancelFlush: (() => void) | undefined;

  constructor(options: PusherOptions) {
    this.#options = options;
  }

  online(connection: Connection): void {
    this.#connection = connection;
    this.push();
  }

  offline(): void {
    this.#connection = undefined;
  }

  /** Handles an append to the spool. */
  push(): void {
    this.#cancelFlush ??= this.#options.clock.after(FLUSH_MS, this.#flush);
    // A running pass may have finished this stream already.
    if (this.#isRunning) this.#isDueAgain = true;
    else if (this.#connection !== undefined) void this.#run(this.#connection);
  }

  /** Resolves to whether the control plane acknowledges all events within `ms`; false as soon as there is no session. */
  async sent(ms: number): Promise<boolean> {
    const { clock, spool } = this.#options;
    const until = clock.elapsed() + ms;
    this.push();
    while (spool.status().events.queued > 0) {
      if (this.#connection === undefined || clock.elapsed() >= until) return false;
      await clock.sleep(SENT_LOOK_MS);
    }
    return true;
  }

  close(): void {
    this.#cancelRetry();
    this.#cancelFlush?.();
    this.#options.spool.flush();
  }

  readonly #flush = (): void => {
    const { clock, spool } = this.#options;
    const isMore = spool.flush(FLUSH_PIECE.records);
    this.#cancelFlush = isMore ? clock.after(FLUSH_PIECE.pauseMs, this.#flush) : undefined;
  };

  async #run(connection: Connection): Promise<void> {
    this.#isRunning = true;
    try {
      do {
        this.#isDueAgain = false;
        await this.#drain(connection);
      } while (this.#isDueAgain);
      this.#cancelFlush?.();
      this.#cancelFlush = undefined;
    } catch (error) {
      if (!connection.signal.aborted) {
        this.#options.log.warn({ reason: toError(error).message }, "telemetry was not accepted");
        this.#cancelRetry();
        this.#cancelRetry = this.#options.clock.after(RETRY_MS, () => this.push());
      }
    } finally {
      this.#isRunning = false;
      if (this.#connection !== undefined && this.#connection !== connection) this.push();
    }
  }

  async #drain(connection: Connection): Promise<void> {
    const { spool } = this.#options;
    for (let batch = this.#next(); batch !== undefined; batch = this.#next()) {
      if (connection.isCongested()) await connection.drained();
      const { stream, first, records, dropped } = batch;
      const push = { stream, first, records, ...(dropped === 0 ? {} : { dropped }) };
      const { last } = await connection.rpc.request("telemetry.push", push, withinTime(connection.signal, ANSWER_MS));
      spool.acknowledge(batch, last);
      if (last < first) throw new Error(`the control plane acknowledged ${last} for ${stream} ${first}`);
    }
  }

  #next(): Batch | undefined {
    for (const name of STREAMS) {
      const batch = this.#options.spool.batch(name);
      if (batch !== undefined) return batch;
    }
    return undefined;
  }
}
