import { join } from "node:path";
import type { Logger } from "pino";
import { HostError, toError } from "../errors.ts";
import {
  OVERLAY_FORMAT,
  OVERLAY_SOCKET,
  type ListenerState,
  type OverlayFault,
  type OverlayFlow,
  type OverlayListener,
  type OverlayMethods,
  type OverlayService,
  type OverlayTable,
  type ServiceHealth,
} from "../protocol/overlay.ts";
import type { z } from "zod";
import type { Clock } from "./clock.ts";
import type { Files } from "./files.ts";
import { connectControl, type ControlClient } from "./overlay-control.ts";
import { isNonsense, overlayFailure } from "./overlay-failure.ts";
import type { StartOverlay } from "./overlay-process.ts";
import { probeSocket } from "./unix-socket.ts";

/** What the overlay has, and how that stands. */
export interface OverlayView {
  readonly services: ReadonlyMap<string, OverlayService>;
  /** By key. */
  readonly listeners: ReadonlyMap<string, OverlayListener>;
  /** By key. */
  readonly states: ReadonlyMap<string, ListenerState>;
  /** By name; only of services whose health is judged. */
  readonly health: ReadonlyMap<string, ServiceHealth>;
}

/** Entries of one part of the table to be put in, by their identity, or taken out. */
export interface OverlayEdit {
  readonly services?: { readonly put: readonly OverlayService[]; readonly drop: readonly string[] };
  readonly listeners?: { readonly put: readonly OverlayListener[]; readonly drop: readonly string[] };
}

export type OverlayCounters = z.infer<OverlayMethods["counters.get"]["result"]>;

/** Whether an overlay serves, and since when that is so, in Unix milliseconds. `off` means that nothing asks for one. */
export interface OverlayStatus {
  readonly state: "up" | "down" | "off";
  readonly since: number;
  readonly pid?: number;
  readonly reason?: string;
}

export interface OverlayOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly files: Pick<Files, "list" | "makeDirectory">;
  readonly stateDir: string;
  readonly runDir: string;
  /** Absent where a service manager keeps the overlay running. */
  readonly start?: StartOverlay;
  /** Something is otherwise than it was seen last: a listener, a service, or the whole overlay. */
  readonly onChanged: (what: string) => void;
  /** How services were seen to stand, changed or not. */
  readonly onHealth: (services: readonly ServiceHealth[]) => void;
  readonly onFlows: (flows: readonly OverlayFlow[]) => void;
  readonly onFault: (fault: OverlayFault) => void;
  /** What a fault said of a file of the overlay's state is over. */
  readonly onMended: (file: string) => void;
}

type Known = { readonly hash: string; readonly version: number } & OverlayView;

const NOTHING: OverlayView = { services: new Map(), listeners: new Map(), states: new Map(), health: new Map() };
const UNREADABLE = { hash: "", version: 0, table: undefined, listeners: [], services: [] };
const CONNECT_EVERY_MS = 20;
const CONNECT_WITHIN_MS = 10_000;
/** An overlay that lived for so long was no failed start. */
const PROVEN_MS = 60_000;
const MAX_WAIT_MS = 60_000;
/** Connections that end sooner than this are not made anew at once. */
const LASTING_MS = 1000;
const MAX_LEAVING = 8;
const SUCCESSOR_WITHIN_MS = 5000;

/** The one owner of the overlay's table: finds the overlay by its socket, starts one where nobody else does, and sends the table whole. */
export class Overlay {
  readonly #options: OverlayOptions;
  #client: ControlClient | undefined;
  /** Overlays that drain, of which only flow records still come. */
  readonly #leaving = new Set<ControlClient>();
  #known: Known | undefined;
  #work: Promise<unknown> = Promise.resolve();
  /** What our own change at work is about. */
  #changing: ReadonlySet<string> = new Set();
  #status: OverlayStatus;
  #failedStarts = 0;
  #startedAt = -Infinity;
  #connectedAt = -Infinity;
  /** Until then one that gave way to another is waited for. */
  #successorUntil = -Infinity;
  #isClosed = false;
  #takeBack = (): void => undefined;

  constructor(options: OverlayOptions) {
    this.#options = options;
    this.#status = { state: "off", since: options.clock.now() };
  }

  status(): OverlayStatus {
    return this.#status;
  }

  /** What the overlay was last seen to have, without asking it; nothing while there is none. */
  get view(): OverlayView {
    return this.#client === undefined ? NOTHING : (this.#known ?? NOTHING);
  }

  /**
   * Reads what the overlay has. One that is not there has nothing, unless it left a table: then it is started to serve it.
   * @throws {HostError} `overlay-absent`; `overlay-failed` when it cannot be started, goes, or answers nonsense; `overlay-refused`.
   */
  observe(signal: AbortSignal): Promise<OverlayView> {
    return this.#serially(signal, async () => {
      const client = await this.#connected(signal, await this.#hasTable());
      if (client !== undefined) return this.#read(client, signal);
      // One that comes later may have another table.
      this.#known = undefined;
      return NOTHING;
    });
  }

  /** Changes entries of the table and has it in force; starts an overlay when there is none. @throws as `observe`. */
  change(edit: OverlayEdit, signal: AbortSignal): Promise<void> {
    return this.#serially(signal, async () => {
      const client = await this.#connected(signal, true);
      if (client === undefined) return;
      const before = this.#known ?? (await this.#read(client, signal));
      const services = edited(before.services, edit.services, ({ name }) => name);
      const listeners = edited(before.listeners, edit.listeners, ({ key }) => key);
      const table: OverlayTable = {
        format: OVERLAY_FORMAT,
        version: before.version + 1,
        services: [...services.values()],
        listeners: [...listeners.values()],
      };
      this.#changing = idsOf(edit);
      try {
        const answer = await client.peer.request("table.set", { table }, signal);
        const states = new Map(answer.listeners.map((state) => [state.key, state]));
        const { hash, version } = answer;
        this.#known = { hash, version, services, listeners, states, health: before.health };
      } catch (error) {
        // Whether it came into force is not known.
        this.#known = undefined;
        throw error;
      } finally {
        this.#changing = new Set();
      }
    });
  }

  /** What the overlay has counted; undefined while there is none. */
  async counters(signal: AbortSignal): Promise<OverlayCounters | undefined> {
    return this.#client?.peer.request("counters.get", {}, signal);
  }

  /** Lets go of the overlay, which goes on serving. */
  close(): void {
    this.#isClosed = true;
    this.#takeBack();
    for (const client of [this.#client, ...this.#leaving]) client?.close();
  }

  async #read(client: ControlClient, signal: AbortSignal): Promise<Known> {
    const before = this.#known;
    const answer = await client.peer
      .request("table.get", before === undefined ? {} : { known: before.hash }, signal)
      .catch((error: unknown) => {
        if (!isNonsense(error)) throw error;
        // A table in another version's form is as good as none: ours takes its place.
        this.#options.log.warn({ err: error }, "the overlay's table cannot be read");
        return UNREADABLE;
      });
    const { hash, version, table } = answer;
    this.#options.onHealth(answer.services);
    const isKnown = before !== undefined && before.hash === hash;
    const known: Known = {
      hash,
      version,
      services: isKnown ? before.services : new Map(table?.services.map((service) => [service.name, service])),
      listeners: isKnown ? before.listeners : new Map(table?.listeners.map((listener) => [listener.key, listener])),
      states: new Map(answer.listeners.map((state) => [state.key, state])),
      health: new Map(answer.services.map((service) => [service.name, service])),
    };
    this.#known = known;
    return known;
  }

  async #connected(signal: AbortSignal, mayStart: boolean): Promise<ControlClient | undefined> {
    if (this.#client !== undefined) return this.#client;
    const { runDir, start, clock } = this.#options;
    let found = await probeSocket(join(runDir, OVERLAY_SOCKET));
    while (found !== "live" && clock.elapsed() < this.#successorUntil) {
      await clock.sleep(CONNECT_EVERY_MS, signal);
      found = await probeSocket(join(runDir, OVERLAY_SOCKET));
    }
    this.#successorUntil = -Infinity;
    if (found !== "live" && !mayStart) {
      this.#is("off");
      return undefined;
    }
    try {
      if (found === "live") return await this.#open(signal);
      if (start === undefined) throw new HostError("overlay-absent", "the overlay is not running: start its service");
      return await this.#start(start, signal);
    } catch (error) {
      signal.throwIfAborted();
      this.#is("down", { reason: toError(error).message });
      throw error;
    }
  }

  async #start(start: StartOverlay, signal: AbortSignal): Promise<ControlClient> {
    const { clock, files, stateDir, runDir, log } = this.#options;
    const waitMs = this.#startedAt + waitBefore(this.#failedStarts) - clock.elapsed();
    if (waitMs > 0) {
      const text = `the overlay ended ${this.#failedStarts} times soon after its start; started again in ${Math.ceil(waitMs / 1000)} s`;
      throw new HostError("overlay-failed", text);
    }
    await files.makeDirectory(stateDir, 0o700);
    const startedAt = clock.elapsed();
    this.#startedAt = startedAt;
    this.#failedStarts += 1;
    const started = start();
    log.info({ pid: started.pid, runDir }, "overlay started");
    let end: string | undefined;
    void started.ended.then((how) => {
      end = how;
      if (clock.elapsed() - startedAt >= PROVEN_MS) this.#failedStarts = 0;
      log.warn({ pid: started.pid, end: how }, "the overlay ended");
    });
    const deadline = clock.elapsed() + CONNECT_WITHIN_MS;
    for (;;) {
      await clock.sleep(CONNECT_EVERY_MS, signal);
      if (end !== undefined) throw new HostError("overlay-failed", `the overlay ended at its start: ${end}`);
      if ((await probeSocket(join(runDir, OVERLAY_SOCKET))) === "live") return this.#open(signal);
      if (clock.elapsed() > deadline) throw new HostError("overlay-failed", "the overlay does not answer");
    }
  }

  async #open(signal: AbortSignal): Promise<ControlClient> {
    const { onHealth, onFlows, onFault, onMended, runDir, log } = this.#options;
    const client: ControlClient = await connectControl(
      join(runDir, OVERLAY_SOCKET),
      {
        "listeners.changed": ({ listeners }) => {
          if (client === this.#client) this.#told("listeners", this.#takeStates(listeners));
        },
        "services.changed": ({ services }) => {
          if (client !== this.#client) return;
          onHealth(services);
          this.#told("services", this.#takeHealth(services));
        },
        draining: ({ hasSuccessor = false }) => this.#drains(client, hasSuccessor),
        "flows.ended": ({ flows }) => onFlows(flows),
        fault: (fault) => onFault(fault),
        "fault.mended": ({ file }) => onMended(file),
      },
      () => this.#lost(client),
    );
    try {
      const { pid, startedAt } = await client.peer.request("counters.get", {}, signal);
      this.#client = client;
      this.#connectedAt = this.#options.clock.elapsed();
      this.#is("up", { pid, since: startedAt });
      log.info({ pid }, "overlay connected");
      return client;
    } catch (error) {
      client.close();
      throw error;
    }
  }

  #lost(client: ControlClient): void {
    this.#leaving.delete(client);
    if (this.#client === client) this.#missed("overlay ended");
  }

  #drains(client: ControlClient, hasSuccessor: boolean): void {
    if (this.#client !== client) return;
    if (hasSuccessor) this.#successorUntil = this.#options.clock.elapsed() + SUCCESSOR_WITHIN_MS;
    if (this.#leaving.size < MAX_LEAVING) this.#leaving.add(client);
    else client.close();
    this.#missed("overlay drains");
  }

  /** There is none from now on: another is looked for, though not over and over. */
  #missed(what: string): void {
    this.#client = undefined;
    if (this.#isClosed) return;
    const { clock, onChanged } = this.#options;
    this.#is("down", { reason: `the ${what}` });
    const waitMs = this.#connectedAt + LASTING_MS - clock.elapsed();
    if (waitMs <= 0) return onChanged(what);
    this.#takeBack = clock.after(waitMs, () => onChanged(what));
  }

  /** Tells of news, unless it is of our own change, which is read with its answer. */
  #told(what: string, news: readonly string[]): void {
    if (news.some((id) => !this.#changing.has(id))) this.#options.onChanged(what);
  }

  /** The keys of those that stand otherwise than before. */
  #takeStates(changed: readonly ListenerState[]): readonly string[] {
    const known = this.#known;
    const news = changed.filter((state) => JSON.stringify(known?.states.get(state.key)) !== JSON.stringify(state));
    if (known !== undefined) {
      const states = new Map([...known.states, ...changed.map((state) => [state.key, state] as const)]);
      this.#known = { ...known, states };
    }
    return news.map(({ key }) => key);
  }

  /** The names of those that are otherwise than before. */
  #takeHealth(changed: readonly ServiceHealth[]): readonly string[] {
    const known = this.#known;
    const news = changed.filter(({ name, state }) => known?.health.get(name)?.state !== state);
    if (known !== undefined) {
      const health = new Map([...known.health, ...changed.map((service) => [service.name, service] as const)]);
      this.#known = { ...known, health };
    }
    return news.map(({ name }) => name);
  }

  #is(
    state: OverlayStatus["state"],
    { since = this.#options.clock.now(), ...more }: Partial<OverlayStatus> = {},
  ): void {
    const isSame = this.#status.state === state && state !== "up";
    this.#status = { ...more, state, since: isSame ? this.#status.since : since };
  }

  /** Ends the connection to one that let a call wait for too long, so that it is met anew the next time. */
  #forsake(): void {
    const client = this.#client;
    if (client === undefined) return;
    this.#client = undefined;
    client.close();
    this.#is("down", { reason: "the overlay does not answer" });
  }

  async #hasTable(): Promise<boolean> {
    if (this.#client !== undefined) return true;
    const { files, stateDir } = this.#options;
    // A directory that only the overlay's user may read is there because an overlay is.
    const names = await files.list(stateDir).catch(() => ["table.json"]);
    return names.includes("table.json");
  }

  #serially<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const result = this.#work.then(work).catch((error: unknown) => {
      throw signal.aborted ? error : overlayFailure(error);
    });
    this.#work = result.catch(() => {
      if (signal.aborted) this.#forsake();
    });
    return result;
  }
}

/** Names and keys of what an edit puts in or takes out. */
function idsOf({ services, listeners }: OverlayEdit): ReadonlySet<string> {
  return new Set([
    ...(services?.put.map(({ name }) => name) ?? []),
    ...(services?.drop ?? []),
    ...(listeners?.put.map(({ key }) => key) ?? []),
    ...(listeners?.drop ?? []),
  ]);
}

function edited<T>(
  before: ReadonlyMap<string, T>,
  edit: { readonly put: readonly T[]; readonly drop: readonly string[] } | undefined,
  identity: (entry: T) => string,
): ReadonlyMap<string, T> {
  if (edit === undefined) return before;
  const dropped = new Set(edit.drop);
  const kept = [...before].filter(([key]) => !dropped.has(key));
  return new Map([...kept, ...edit.put.map((entry) => [identity(entry), entry] as const)]);
}

function waitBefore(failedStarts: number): number {
  return failedStarts <= 1 ? 0 : Math.min(MAX_WAIT_MS, 500 * 2 ** (failedStarts - 2));
}
