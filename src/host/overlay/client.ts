import { randomUUID } from "node:crypto";
import { join } from "node:path";
import type { Logger } from "pino";
import type { z } from "zod";
import { HostError, toError } from "../../errors.ts";
import { serialQueue } from "../../lib/async/serial-queue.ts";
import { RemoteError } from "../../protocol/channel/rpc.ts";
import type { MeshEvent, MeshState, OverlayIdentity, RttBucket } from "../../protocol/overlay/mesh.ts";
import {
  OVERLAY_SOCKET,
  type OverlayFault,
  type OverlayFlow,
  type OverlayFlowFilter,
  type OverlayMethods,
  type OverlayNotices,
  type ServiceHealth,
} from "../../protocol/overlay/overlay.ts";
import { wallTimes, type Clock, type WallTimes } from "../clock.ts";
import type { Files } from "../files/files.ts";
import { probeSocket } from "../net/unix-socket.ts";
import { connectControl, type ControlClient } from "./control.ts";
import { isNonsense, isUnknownCall, olderOverlay, overlayFailure, rethrowOlder } from "./failure.ts";
import { CONNECT_EVERY_MS, OverlayLauncher, type StartOverlay } from "./process.ts";
import {
  editsMesh,
  idsOf,
  isServerNews,
  needsMesh,
  NOTHING,
  tableOf,
  UNREADABLE,
  viewAfter,
  withHealth,
  withoutPeers,
  withStates,
  type Known,
  type MeshStanding,
  type OverlayEdit,
  type OverlayView,
} from "./table.ts";

export type { MeshStanding, OverlayEdit, OverlayView } from "./table.ts";

export type OverlayCounters = z.infer<OverlayMethods["counters.get"]["result"]>;
export type EchoRequest = z.infer<OverlayMethods["echo"]["params"]>;
export type EchoAnswer = z.infer<OverlayMethods["echo"]["result"]>;
export type PerfRequest = Omit<z.infer<OverlayMethods["perf.run"]["params"]>, "id">;
export type PerfAnswer = z.infer<OverlayMethods["perf.run"]["result"]>;
export type LiveFlowList = z.infer<OverlayMethods["flows.list"]["result"]>;
/** Bytes that arrived and that were lost so far. */
export type PerfProgress = Omit<z.infer<OverlayNotices["perf.progress"]["params"]>, "id">;

/** State of the overlay, and since when, in Unix milliseconds. `off` means that no section needs one. */
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
  /** Absent if a service manager runs the overlay. */
  readonly start?: StartOverlay;
  /** Called when a listener, a service or the overlay itself has changed since it was last read. */
  readonly onChanged: (what: string) => void;
  /** Called with the health of services, changed or not. */
  readonly onHealth: (services: readonly ServiceHealth[]) => void;
  readonly onFlows: (flows: readonly OverlayFlow[]) => void;
  /** Called with the state of the mesh; undefined when it is unknown. */
  readonly onMesh?: (standing: MeshStanding | undefined) => void;
  readonly onMeshEvents?: (events: readonly MeshEvent[]) => void;
  readonly onRtt?: (buckets: readonly RttBucket[]) => void;
  readonly onFault: (fault: OverlayFault) => void;
  /** Called when the fault of a file in the overlay's state has cleared. */
  readonly onMended: (file: string) => void;
}

/** Minimum age of a connection whose loss is followed by an immediate reconnect. */
const LASTING_MS = 1000;
const MAX_LEAVING = 8;
const SUCCESSOR_WITHIN_MS = 5000;

/**
 * Owns the overlay's table: finds the overlay by its socket, starts one if no service manager does, and always sends
 * the whole table.
 */
export class Overlay {
  readonly #options: OverlayOptions;
  #client: ControlClient | undefined;
  /** Draining overlays, which still send flow records. */
  readonly #leaving = new Set<ControlClient>();
  #known: Known | undefined;
  readonly #queue = serialQueue();
  /** Names and keys of the entries in the change in progress. */
  #changing: ReadonlySet<string> = new Set();
  #changesMesh = false;
  #standing: MeshStanding | undefined;
  #identity: OverlayIdentity | undefined;
  /** The connected overlay does not support other nodes. */
  #isOlder = false;
  /** `since` is of the monotonic clock. */
  #status: OverlayStatus;
  readonly #wall: WallTimes;
  readonly #launcher: OverlayLauncher;
  /** Progress callbacks of running uploads, by id. */
  readonly #uploads = new Map<string, (progress: PerfProgress) => void>();
  #connectedAt = -Infinity;
  /** Until then, waits for the successor of an overlay that was replaced. */
  #successorUntil = -Infinity;
  #isClosed = false;
  #cancelTimer = (): void => undefined;

  constructor(options: OverlayOptions) {
    this.#options = options;
    this.#wall = wallTimes(options.clock);
    this.#status = { state: "off", since: options.clock.elapsed() };
    this.#launcher = new OverlayLauncher(options);
  }

  status(): OverlayStatus {
    return { ...this.#status, since: this.#wall.of(this.#status.since) };
  }

  /** Last known table and state of the overlay; empty while none is connected. */
  get view(): OverlayView {
    if (this.#client === undefined || this.#known === undefined) return NOTHING;
    return { ...this.#known, standing: this.#standing };
  }

  /**
   * Reads the overlay's table and state. Without an overlay they are empty, unless it left a table: then it is started
   * to serve it.
   * @throws {HostError} `overlay-absent`; `overlay-failed` when it cannot be started, disconnects, or sends an invalid
   * answer; `overlay-refused`.
   */
  observe(signal: AbortSignal): Promise<OverlayView> {
    return this.#serially(signal, async () => {
      const client = await this.#connected(signal, await this.#hasTable());
      if (client !== undefined) {
        await this.#read(client, signal);
        return this.view;
      }
      // An overlay that starts later may have another table.
      this.#known = undefined;
      return NOTHING;
    });
  }

  /**
   * Changes entries of the table and waits until it is applied; starts an overlay if none runs.
   * @throws as `observe`; {HostError} `overlay-older` when it does not support other nodes; the rest of the edit is
   * applied.
   */
  change(edit: OverlayEdit, signal: AbortSignal): Promise<void> {
    return this.#serially(signal, async () => {
      const client = await this.#connected(signal, true);
      if (client === undefined) return;
      const isTooMuch = this.#isOlder && needsMesh(edit);
      await this.#change(client, isTooMuch ? withoutPeers(edit) : edit, signal);
      if (isTooMuch) throw olderOverlay();
    });
  }

  /** Sets the node's identity, which is sent on every connection from now on. Must not be logged. */
  async identify(identity: OverlayIdentity, signal: AbortSignal): Promise<void> {
    this.#identity = identity;
    await this.#serially(signal, async () => {
      if (this.#client !== undefined) await this.#introduce(this.#client, signal);
    });
  }

  /** Returns the state of paths, gateway and peer sessions; undefined without an overlay. @throws {HostError} `overlay-older`; as `RpcPeer.request`. */
  async mesh(signal: AbortSignal): Promise<MeshState | undefined> {
    return this.#client?.peer.request("mesh.get", {}, signal).catch(rethrowOlder);
  }

  /**
   * Measures a round trip of bytes inside the tunnel to a peer.
   * @throws {HostError} `overlay-absent`, `overlay-older`; {RemoteError} `timeout`, `not-found`, `not-connected`.
   */
  async echo(request: EchoRequest, signal: AbortSignal): Promise<EchoAnswer> {
    return this.#required().peer.request("echo", request, signal).catch(rethrowOlder);
  }

  /** Uploads bytes to a peer and reports progress; aborting cancels the upload. @throws as `echo`; {RemoteError} `cancelled`. */
  async perf(
    request: PerfRequest,
    onProgress: (progress: PerfProgress) => void,
    signal: AbortSignal,
  ): Promise<PerfAnswer> {
    const { peer } = this.#required();
    const id = randomUUID();
    // A connection that has ended has nothing left to cancel.
    const cancel = (): void => void peer.request("perf.cancel", { id }).catch(() => undefined);
    this.#uploads.set(id, onProgress);
    signal.addEventListener("abort", cancel, { once: true });
    try {
      return await peer.request("perf.run", { ...request, id }, signal).catch(rethrowOlder);
    } finally {
      signal.removeEventListener("abort", cancel);
      this.#uploads.delete(id);
    }
  }

  /** Lists running flows; none without an overlay. @throws {HostError} `overlay-older`. */
  flows(filter: OverlayFlowFilter, limit: number, signal: AbortSignal): Promise<LiveFlowList> {
    return this.#requestFlows("flows.list", filter, limit, signal);
  }

  /** Cuts the flows that match and returns them. @throws as `flows`. */
  cutFlows(filter: OverlayFlowFilter, limit: number, signal: AbortSignal): Promise<LiveFlowList> {
    return this.#requestFlows("flows.cut", filter, limit, signal);
  }

  /** Makes the overlay re-check its paths after a change of the machine's network. Does not wait for it. */
  wake(): void {
    if (this.view.mesh === undefined) return;
    // An overlay that does not know the request finds out by its own probes, later.
    this.#client?.peer.request("mesh.wake", {}).catch(() => undefined);
  }

  /** Returns the overlay's counters; undefined without an overlay. */
  async counters(signal: AbortSignal): Promise<OverlayCounters | undefined> {
    return this.#client?.peer.request("counters.get", {}, signal);
  }

  /** Disconnects from the overlay, which continues to serve. */
  close(): void {
    this.#isClosed = true;
    this.#cancelTimer();
    for (const client of [this.#client, ...this.#leaving]) client?.close();
  }

  async #requestFlows(
    method: "flows.list" | "flows.cut",
    filter: OverlayFlowFilter,
    limit: number,
    signal: AbortSignal,
  ): Promise<LiveFlowList> {
    const answer = this.#client?.peer.request(method, { filter, limit }, signal);
    return (await answer?.catch(rethrowOlder)) ?? { flows: [], total: 0 };
  }

  #required(): ControlClient {
    if (this.#client === undefined) throw new HostError("overlay-absent", "the overlay is not running");
    return this.#client;
  }

  async #change(client: ControlClient, edit: OverlayEdit, signal: AbortSignal): Promise<void> {
    const before = this.#known ?? (await this.#read(client, signal));
    const after = viewAfter(before, edit);
    this.#changing = idsOf(edit);
    this.#changesMesh = editsMesh(edit);
    try {
      const table = tableOf(after, before.version + 1);
      const { hash, version, listeners } = await client.peer.request("table.set", { table }, signal);
      const states = new Map(listeners.map((state) => [state.key, state]));
      this.#known = { hash, version, ...after, states, health: before.health };
      if (this.#changesMesh) await this.#readStanding(client, signal);
    } catch (error) {
      // It is unknown whether the table was applied.
      this.#known = undefined;
      throw error;
    } finally {
      this.#changing = new Set();
      this.#changesMesh = false;
    }
  }

  async #read(client: ControlClient, signal: AbortSignal): Promise<Known> {
    const before = this.#known;
    const answer = await client.peer
      .request("table.get", before === undefined ? {} : { known: before.hash }, signal)
      .catch((error: unknown) => {
        if (!isNonsense(error)) throw error;
        // A table in the format of another version is replaced by ours.
        this.#options.log.warn({ err: error }, "cannot read the overlay's table");
        return UNREADABLE;
      });
    const { hash, version, table } = answer;
    this.#options.onHealth(answer.services);
    const isKnown = before !== undefined && before.hash === hash;
    const known = {
      hash,
      version,
      services: isKnown ? before.services : new Map(table?.services.map((service) => [service.name, service])),
      listeners: isKnown ? before.listeners : new Map(table?.listeners.map((listener) => [listener.key, listener])),
      states: new Map(answer.listeners.map((state) => [state.key, state])),
      health: new Map(answer.services.map((service) => [service.name, service])),
      mesh: isKnown ? before.mesh : table?.mesh,
    };
    this.#known = known;
    if (known.mesh !== undefined && this.#standing === undefined) await this.#readStanding(client, signal);
    return known;
  }

  async #readStanding(client: ControlClient, signal: AbortSignal): Promise<void> {
    if (this.#known?.mesh === undefined) return this.#stands(undefined);
    try {
      const { sessions: _sessions, ...standing } = await client.peer.request("mesh.get", {}, signal);
      this.#stands(standing);
    } catch (error) {
      if (!isUnknownCall(error)) throw error;
      this.#isOlder = true;
    }
  }

  #stands(standing: MeshStanding | undefined): void {
    if (standing === undefined && this.#standing === undefined) return;
    this.#standing = standing;
    this.#options.onMesh?.(standing);
  }

  /** Sends the identity. An overlay that does not support other nodes needs none. */
  async #introduce(client: ControlClient, signal: AbortSignal): Promise<void> {
    if (this.#identity === undefined) return;
    try {
      await client.peer.request("identity.set", this.#identity, signal);
      this.#isOlder = false;
    } catch (error) {
      if (!(error instanceof RemoteError)) throw error;
      const isUnknown = isUnknownCall(error);
      if (isUnknown) this.#isOlder = true;
      // Listeners with local targets work without an identity.
      const message = isUnknown ? olderOverlay().message : `the overlay refuses this node's key: ${error.message}`;
      this.#options.log.warn({ code: error.code }, message);
      if (!isUnknown) this.#options.onFault({ code: "overlay-identity", message });
    }
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
      await this.#launcher.start(start, signal);
      return await this.#open(signal);
    } catch (error) {
      signal.throwIfAborted();
      this.#is("down", { reason: toError(error).message });
      throw error;
    }
  }

  async #open(signal: AbortSignal): Promise<ControlClient> {
    const { onHealth, onFlows, onMeshEvents, onRtt, onFault, onMended, runDir, log } = this.#options;
    const client: ControlClient = await connectControl(
      join(runDir, OVERLAY_SOCKET),
      {
        "listeners.changed": ({ listeners }) => {
          if (client !== this.#client) return;
          const [known, news] = withStates(this.#known, listeners);
          this.#known = known;
          this.#reportNews("listeners", news);
        },
        "services.changed": ({ services }) => {
          if (client !== this.#client) return;
          onHealth(services);
          const [known, news] = withHealth(this.#known, services);
          this.#known = known;
          this.#reportNews("services", news);
        },
        "mesh.changed": (standing) => {
          if (client === this.#client) this.#meshChanged(standing);
        },
        "mesh.events": ({ events }) => {
          if (client === this.#client) onMeshEvents?.(events);
        },
        "rtt.closed": ({ buckets }) => onRtt?.(buckets),
        "perf.progress": ({ id, ...progress }) => this.#uploads.get(id)?.(progress),
        draining: ({ hasSuccessor = false }) => this.#drains(client, hasSuccessor),
        "flows.ended": ({ flows }) => onFlows(flows),
        fault: (fault) => onFault(fault),
        "fault.mended": ({ file }) => onMended(file),
      },
      () => this.#lost(client),
    );
    try {
      const { pid, startedAt } = await client.peer.request("counters.get", {}, signal);
      await this.#introduce(client, signal);
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

  /** Handles the loss of the overlay and triggers a search for another, after a delay if the connection was short. */
  #missed(what: string): void {
    this.#client = undefined;
    if (this.#isClosed) return;
    const { clock, onChanged } = this.#options;
    this.#is("down", { reason: `the ${what}` });
    this.#stands(undefined);
    const waitMs = this.#connectedAt + LASTING_MS - clock.elapsed();
    if (waitMs <= 0) return onChanged(what);
    this.#cancelTimer = clock.after(waitMs, () => onChanged(what));
  }

  /** Reports a change, unless it is part of our own change, whose answer is read anyway. */
  #reportNews(what: string, news: readonly string[]): void {
    if (news.some((id) => !this.#changing.has(id))) this.#options.onChanged(what);
  }

  #meshChanged(standing: MeshStanding): void {
    const isNews = isServerNews(this.#standing, standing);
    this.#stands(standing);
    if (isNews && !this.#changesMesh) this.#options.onChanged("gateway");
  }

  #is(state: OverlayStatus["state"], { since, ...more }: Partial<OverlayStatus> = {}): void {
    const isSame = this.#status.state === state && state !== "up";
    const at = since === undefined ? this.#options.clock.elapsed() : since - this.#wall.ahead;
    this.#status = { ...more, state, since: isSame ? this.#status.since : at };
  }

  /** Closes the connection to an overlay that did not answer in time, so that the next call reconnects. */
  #forsake(): void {
    const client = this.#client;
    if (client === undefined) return;
    this.#client = undefined;
    client.close();
    this.#is("down", { reason: "the overlay does not answer on its socket" });
    this.#stands(undefined);
  }

  async #hasTable(): Promise<boolean> {
    if (this.#client !== undefined) return true;
    const { files, stateDir } = this.#options;
    // A directory that only the overlay's user may read exists because of an overlay.
    const names = await files.list(stateDir).catch(() => ["table.json"]);
    return names.includes("table.json");
  }

  #serially<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return this.#queue(async () => {
      try {
        return await work();
      } catch (error) {
        if (!signal.aborted) throw overlayFailure(error);
        this.#forsake();
        throw error;
      }
    });
  }
}
