import { backoff } from "../../lib/async/backoff.ts";
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
  /** The label of all our containers, `name=value`. */
  readonly owner: string;
}

const LIST_EVERY_MS = 5 * 60_000;
const PING_EVERY_MS = 10_000;
const RECONNECT = { firstMs: 1000, maxMs: 5000 };
/** Minimum lifetime of an event stream after which the next attempt starts at once and the backoff resets. */
const GOOD_STREAM_MS = 10_000;

/**
 * Keeps the containers of one owner current until closed: by the engine's events, by a full list after each connection and every
 * 5 min, and by a ping every 10 s while there are containers. Retries an unreachable engine after 1 s, then with exponential
 * backoff up to 5 s.
 */
export function openEngineCache(options: CacheOptions): EngineCache {
  return new LiveCache(options);
}

/** One connection to the engine with its event stream and timers. */
interface Attempt {
  readonly stopping: AbortController;
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
  /** Resolves with whether the list contained anything new. */
  readonly #list = oneAtATime(() => this.#takeList());
  /** Ids of containers with events since the running list started; events are newer than the list. */
  #touched: Set<string> | undefined;
  /** Times are monotonic. */
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
    // The engine responds, so the event stream can reconnect at once.
    this.#wake?.();
  }

  close(): void {
    this.#listeners.splice(0);
    this.#closing.abort(new HostError("engine-unwell", "the container cache was closed"));
    this.#containers.clear();
  }

  async #run(): Promise<void> {
    for (let failures = 0; !this.#closing.signal.aborted;) {
      const began = this.#clock.elapsed();
      const attempt: Attempt = { stopping: new AbortController(), timers: new Map(), isListed: false };
      this.#connections += 1;
      const reason = await this.#follow(attempt);
      if (this.#closing.signal.aborted) return;
      // An error after the engine responded says little about its state; the next attempt says more.
      if (!attempt.isListed) this.#setUnwell(reason);
      failures = attempt.isListed && this.#clock.elapsed() - began >= GOOD_STREAM_MS ? 0 : failures + 1;
      if (failures > 0) await this.#pause(backoff(failures, RECONNECT));
    }
  }

  /** Opens the event stream, lists, and processes events until the stream ends; resolves with the reason of the end. */
  async #follow(attempt: Attempt): Promise<string> {
    const { stopping, timers } = attempt;
    const signal = AbortSignal.any([stopping.signal, this.#closing.signal]);
    const onOpen = (): void => void this.#beside(attempt, () => this.#connected(attempt));
    try {
      for await (const event of this.#engine.events(this.#labels, signal, onOpen)) await this.#takeEvent(event, signal);
      return "the container engine ended its stream of events";
    } catch (error) {
      return toError(error).message;
    } finally {
      stopping.abort(new HostError("engine-unwell", "the container engine closed the event stream"));
      for (const cancel of timers.values()) cancel();
    }
  }

  async #connected(attempt: Attempt): Promise<void> {
    await this.#list();
    if (attempt.stopping.signal.aborted || this.#closing.signal.aborted) return;
    attempt.isListed = true;
    this.#setWell();
    this.#every(LIST_EVERY_MS, attempt, async () => {
      // A change that events did not report means that the event stream is stuck.
      if (await this.#list()) throw new HostError("engine-unwell", "the container engine's event stream is stuck");
    });
    this.#every(PING_EVERY_MS, attempt, async () => {
      if (this.#containers.size === 0) return;
      try {
        await this.#engine.ping(attempt.stopping.signal);
      } catch (error) {
        if (!attempt.stopping.signal.aborted) this.#setUnwell(toError(error).message);
        throw error;
      }
    });
  }

  #every(ms: number, attempt: Attempt, run: () => Promise<void>): void {
    if (attempt.stopping.signal.aborted) return;
    const ring = (): void => void this.#beside(attempt, run).then(() => this.#every(ms, attempt, run));
    attempt.timers.set(ms, this.#clock.after(ms, ring));
  }

  /** Runs a task beside the event stream; its failure ends the stream. */
  async #beside({ stopping }: Attempt, run: () => Promise<void>): Promise<void> {
    try {
      await run();
    } catch (error) {
      stopping.abort(toError(error));
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
    this.#notify({ kind: "event", id, action, exitCode: action === "die" ? exitCodeOf(attributes) : undefined });
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
    // A response may arrive after the cache was closed.
    this.#closing.signal.throwIfAborted();
    const listed = new Set(rows.map(({ id }) => id));
    const gone = [...this.#containers.keys()].filter((id) => !listed.has(id) && !touched.has(id));
    const changed = rows.filter((row) => !touched.has(row.id) && differs(this.#containers.get(row.id), row));
    for (const id of gone) this.#containers.delete(id);
    for (const row of rows) if (!touched.has(row.id)) this.#containers.set(row.id, row);
    // Notifies even without changes, because a caller that asked the engine directly may know more than the events.
    this.#notify({ kind: "listed" });
    return gone.length + changed.length > 0;
  }

  #setWell(): void {
    if (this.#standing.state === "well") return;
    this.#standing = { state: "well", since: this.#clock.elapsed() };
    this.#notify({ kind: "standing" });
  }

  #setUnwell(reason: string): void {
    const isNew = this.#standing.state !== "unwell";
    const since = this.#standing.state === "unwell" ? this.#standing.since : this.#clock.elapsed();
    this.#standing = { state: "unwell", since, reason };
    if (isNew) this.#notify({ kind: "standing" });
  }

  #notify(change: EngineChange): void {
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
