import { HostError, toError } from "../../errors.ts";
import { oneAtATime } from "../../lib/async/one-at-a-time.ts";
import { untilAborted } from "../../lib/async/until-aborted.ts";
import { wallTimes, type Clock, type WallTimes } from "../clock.ts";
import { differs, effectOf, exitCodeOf, summaryOf } from "./cache-change.ts";
import type { EngineCache, EngineChange, EngineStanding } from "./cache.ts";
import type { ContainerSummary, Engine, EngineEvent } from "./engine.ts";

export interface CacheOptions {
  readonly engine: Engine;
  readonly clock: Clock;
  /** The label that all containers of ours carry, `name=value`. */
  readonly owner: string;
}

const LIST_EVERY_MS = 5 * 60_000;
const PING_EVERY_MS = 10_000;
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 5000;
/** A stream that lived so long was a good one: the next is tried at once, and the waits begin anew. */
const GOOD_STREAM_MS = 10_000;

/**
 * Keeps the containers of one owner current, from now until it is closed: by the engine's events, by a full list after each connecting
 * and every 5 min, and by asking every 10 s whether the engine answers, as long as there are containers. While it cannot be reached it
 * is tried again after 1 s, and then with exponential backoff up to 5 s.
 */
export function openEngineCache(options: CacheOptions): EngineCache {
  return new LiveCache(options);
}

/** One connecting to the engine, and what goes on beside its event stream. */
interface Attempt {
  readonly ending: AbortController;
  readonly timers: Map<number, () => void>;
  isListed: boolean;
}

class LiveCache implements EngineCache {
  readonly #engine: Engine;
  readonly #clock: Clock;
  readonly #wall: WallTimes;
  readonly #labels: readonly string[];
  readonly #closing = new AbortController();
  readonly #containers = new Map<string, ContainerSummary>();
  readonly #listeners: ((change: EngineChange) => void)[] = [];
  /** Resolves with whether the list said something that was not known. */
  readonly #list = oneAtATime(() => this.#takeList());
  /** What events have told of since the running list began; they know better than it does. */
  #touched: Set<string> | undefined;
  /** Its time is of the monotonic clock. */
  #standing: EngineStanding = { state: "unknown" };
  #connections = 0;
  /** Ends the wait for the next attempt. */
  #wake: (() => void) | undefined;

  constructor({ engine, clock, owner }: CacheOptions) {
    this.#engine = engine;
    this.#clock = clock;
    this.#wall = wallTimes(clock);
    this.#labels = [owner];
    void this.#run();
  }

  get standing(): EngineStanding {
    const standing = this.#standing;
    return standing.state === "unknown" ? standing : { ...standing, since: this.#wall.of(standing.since) };
  }

  get connections(): number {
    return this.#connections;
  }

  get containers(): ReadonlyMap<string, ContainerSummary> {
    return this.#containers;
  }

  onChange(listener: (change: EngineChange) => void): void {
    this.#listeners.push(listener);
  }

  async refresh(signal: AbortSignal): Promise<void> {
    await untilAborted(this.#list(), signal);
    if (this.#standing.state === "unknown") this.#setWell();
    // The engine answers: its events need not wait any longer.
    this.#wake?.();
  }

  close(): void {
    this.#listeners.splice(0);
    this.#closing.abort(new HostError("engine-unwell", "the view of the container engine was closed"));
    this.#containers.clear();
  }

  async #run(): Promise<void> {
    for (let failures = 0; !this.#closing.signal.aborted;) {
      const began = this.#clock.elapsed();
      const attempt: Attempt = { ending: new AbortController(), timers: new Map(), isListed: false };
      this.#connections += 1;
      const reason = await this.#follow(attempt);
      if (this.#closing.signal.aborted) return;
      // What broke after the engine had answered says little about it; the next attempt says more.
      if (!attempt.isListed) this.#setUnwell(reason);
      failures = attempt.isListed && this.#clock.elapsed() - began >= GOOD_STREAM_MS ? 0 : failures + 1;
      if (failures > 0) await this.#pause(Math.min(FIRST_WAIT_MS * 2 ** Math.min(failures - 1, 10), LONGEST_WAIT_MS));
    }
  }

  /** Opens the event stream, lists, and takes events until the stream ends; resolves with why it ended. */
  async #follow(attempt: Attempt): Promise<string> {
    const { ending, timers } = attempt;
    const signal = AbortSignal.any([ending.signal, this.#closing.signal]);
    const onOpen = (): void => void this.#beside(attempt, () => this.#connected(attempt));
    try {
      for await (const event of this.#engine.events(this.#labels, signal, onOpen)) await this.#takeEvent(event, signal);
      return "the container engine ended its stream of events";
    } catch (error) {
      return toError(error).message;
    } finally {
      ending.abort(new HostError("engine-unwell", "the container engine's stream of events has ended"));
      for (const cancel of timers.values()) cancel();
    }
  }

  async #connected(attempt: Attempt): Promise<void> {
    await this.#list();
    if (attempt.ending.signal.aborted || this.#closing.signal.aborted) return;
    attempt.isListed = true;
    this.#setWell();
    this.#every(LIST_EVERY_MS, attempt, async () => {
      // What events should have told, and did not, means that they have fallen silent.
      if (await this.#list()) throw new HostError("engine-unwell", "the container engine's events have fallen silent");
    });
    this.#every(PING_EVERY_MS, attempt, async () => {
      if (this.#containers.size === 0) return;
      try {
        await this.#engine.ping(attempt.ending.signal);
      } catch (error) {
        if (!attempt.ending.signal.aborted) this.#setUnwell(toError(error).message);
        throw error;
      }
    });
  }

  #every(ms: number, attempt: Attempt, run: () => Promise<void>): void {
    if (attempt.ending.signal.aborted) return;
    const ring = (): void => void this.#beside(attempt, run).then(() => this.#every(ms, attempt, run));
    attempt.timers.set(ms, this.#clock.after(ms, ring));
  }

  /** Whatever fails beside the stream ends the stream. */
  async #beside({ ending }: Attempt, run: () => Promise<void>): Promise<void> {
    try {
      await run();
    } catch (error) {
      ending.abort(toError(error));
    }
  }

  async #takeEvent(event: EngineEvent, signal: AbortSignal): Promise<void> {
    const { kind, id, action, attributes } = event;
    if (kind !== "container") return;
    const effect = effectOf(this.#containers.get(id), event);
    if (effect.kind === "none") return;
    if (effect.kind === "gone") this.#containers.delete(id);
    else if (effect.kind === "known") this.#containers.set(id, effect.container);
    else await this.#ask(id, signal);
    this.#touched?.add(id);
    this.#tell({ kind: "event", id, action, exitCode: action === "die" ? exitCodeOf(attributes) : undefined });
  }

  async #ask(id: string, signal: AbortSignal): Promise<void> {
    const found = await this.#engine.inspectContainer(id, signal);
    if (found === undefined) this.#containers.delete(id);
    else this.#containers.set(id, summaryOf(found));
  }

  async #takeList(): Promise<boolean> {
    const touched = new Set<string>();
    this.#touched = touched;
    const listing = this.#engine.listContainers(this.#labels, this.#closing.signal);
    const rows = await listing.finally(() => {
      this.#touched = undefined;
    });
    // An answer that was on its way when the cache was closed.
    this.#closing.signal.throwIfAborted();
    const listed = new Set(rows.map(({ id }) => id));
    const gone = [...this.#containers.keys()].filter((id) => !listed.has(id) && !touched.has(id));
    const changed = rows.filter((row) => !touched.has(row.id) && differs(this.#containers.get(row.id), row));
    for (const id of gone) this.#containers.delete(id);
    for (const row of rows) if (!touched.has(row.id)) this.#containers.set(row.id, row);
    // Also without news: whoever asked the engine itself may know of more than events have told.
    this.#tell({ kind: "listed" });
    return gone.length + changed.length > 0;
  }

  #setWell(): void {
    if (this.#standing.state === "well") return;
    this.#standing = { state: "well", since: this.#clock.elapsed() };
    this.#tell({ kind: "standing" });
  }

  #setUnwell(reason: string): void {
    const isNew = this.#standing.state !== "unwell";
    const since = this.#standing.state === "unwell" ? this.#standing.since : this.#clock.elapsed();
    this.#standing = { state: "unwell", since, reason };
    if (isNew) this.#tell({ kind: "standing" });
  }

  #tell(change: EngineChange): void {
    for (const listener of this.#listeners) listener(change);
  }

  async #pause(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const cancel = this.#clock.after(ms, resolve);
      this.#wake = () => {
        cancel();
        resolve();
      };
      this.#closing.signal.addEventListener("abort", this.#wake, { once: true });
    });
    if (this.#wake !== undefined) this.#closing.signal.removeEventListener("abort", this.#wake);
    this.#wake = undefined;
  }
}
