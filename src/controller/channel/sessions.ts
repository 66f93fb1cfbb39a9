import type { Clock } from "../../host/clock.ts";
import type { EventLog } from "../events/service.ts";
import { countCycle, settle, STABLE, type Flapping } from "./flapping.ts";
import type { StoredHeartbeat } from "../nodes/store.ts";
import type { Atomic } from "../store/atomic.ts";
import type { AlertStore } from "../events/alert-store.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { NodeSession } from "./session.ts";

export interface SessionsDeps {
  readonly store: Atomic & { readonly alerts: AlertStore; readonly nodes: NodeStore };
  readonly events: EventLog;
  readonly clock: Clock;
  readonly heartbeatSeconds: number;
}

const SILENT_HEARTBEATS = 3;
const FLUSH_MS = 60_000;
const FLAPPING = "Connection Flapping";

/** Open sessions, at most one per node; records connects, disconnects and flapping. */
export class Sessions {
  readonly #deps: SessionsDeps;
  readonly #open = new Map<string, NodeSession>();
  readonly #flapping = new Map<string, Flapping>();
  /** Time at which nodes that an earlier run left online count as disconnected; undefined once checked. */
  #checkMissingAt: number | undefined;
  #flushedAt: number;
  #isClosed = false;

  constructor(deps: SessionsDeps) {
    this.#deps = deps;
    this.#flushedAt = deps.clock.elapsed();
    this.#checkMissingAt = this.#flushedAt + this.#silentMs;
    // An earlier run may have stopped while connections flapped; the events it withheld are recorded once they are stable.
    for (const { nodeId, eventType } of deps.store.alerts.all(deps.clock.now() / 1000)) {
      if (eventType === FLAPPING) this.#flapping.set(nodeId, { recent: [this.#flushedAt], sinceRaised: 0 });
    }
  }

  get #silentMs(): number {
    return SILENT_HEARTBEATS * this.#deps.heartbeatSeconds * 1000;
  }

  get size(): number {
    return this.#open.size;
  }

  get(uid: string): NodeSession | undefined {
    return this.#open.get(uid);
  }

  /** Adds a session after its hello; replaces an open one of the same node. */
  add(session: NodeSession, wasKnown: boolean): void {
    const { store, events, clock } = this.#deps;
    const older = this.#open.get(session.uid);
    const node = store.nodes.label(session.uid);
    if (node !== undefined && !this.#isFlapping(session.uid)) {
      events.record(node, {
        eventType: "Node Connect",
        level: "INFO",
        message: `Node connected from IP address ${session.address}`,
        details: { address: session.address },
      });
    }
    if (older !== undefined) this.#storeHeartbeat(older);
    else if (wasKnown) this.#countCycle(session.uid, clock.elapsed());
    // Done last: it is not rolled back if the store fails.
    this.#open.set(session.uid, session);
    older?.end("superseded");
  }

  /** Handles a closed socket; a superseded session is ignored. */
  closed(session: NodeSession): void {
    if (this.#open.get(session.uid) !== session || this.#isClosed) return;
    this.#open.delete(session.uid);
    this.#deps.store.atomic(() => {
      if (this.#deps.store.nodes.label(session.uid) === undefined) return;
      this.#storeHeartbeat(session);
      this.#recordDisconnect(session.uid, "Node disconnected");
    });
  }

  /** Removes a deleted node; the caller notifies its session. */
  remove(uid: string): NodeSession | undefined {
    const session = this.#open.get(uid);
    this.#open.delete(uid);
    this.#flapping.delete(uid);
    return session;
  }

  /** Returns the latest heartbeat that is not stored yet. */
  heartbeat(uid: string): StoredHeartbeat | undefined {
    return this.#open.get(uid)?.heartbeat;
  }

  /** Closes silent sockets; once a minute stores heartbeats and re-evaluates flapping. */
  sweep(): void {
    const now = this.#deps.clock.elapsed();
    for (const session of this.#open.values()) if (now - session.lastHeardAt > this.#silentMs) session.cut();
    if (this.#checkMissingAt !== undefined && now >= this.#checkMissingAt) this.#recordMissing();
    if (now - this.#flushedAt < FLUSH_MS) return;
    this.#flushedAt = now;
    this.#flush();
    for (const [uid, state] of this.#flapping) this.#settle(uid, state, now);
  }

  /** Stores what is in memory and closes all sessions. */
  close(): void {
    this.#isClosed = true;
    const { store, clock } = this.#deps;
    this.#flush();
    store.atomic(() => {
      for (const uid of this.#open.keys()) store.nodes.setDisconnectTime(uid, clock.now() / 1000);
    });
    for (const session of this.#open.values()) session.leave();
    this.#open.clear();
  }

  /** Records the disconnect of nodes that did not reconnect after a restart of the controller. */
  #recordMissing(): void {
    const { store } = this.#deps;
    const away = store.nodes.online().filter((uid) => !this.#open.has(uid));
    store.atomic(() => {
      for (const uid of away) this.#recordDisconnect(uid, "Node did not reconnect after the controller's restart");
    });
    this.#checkMissingAt = undefined;
  }

  #recordDisconnect(uid: string, message: string): void {
    const { store, events, clock } = this.#deps;
    const node = store.nodes.label(uid);
    if (node === undefined) return;
    const isFlapping = this.#isFlapping(uid);
    store.nodes.disconnected(uid, clock.now() / 1000);
    if (isFlapping) return;
    events.record(node, { eventType: "Node Disconnect", level: "WARNING", message });
  }

  #flush(): void {
    const dirty = [...this.#open.values()].filter(({ heartbeat }) => heartbeat !== undefined);
    if (dirty.length === 0) return;
    this.#deps.store.atomic(() => {
      for (const session of dirty) this.#storeHeartbeat(session);
    });
  }

  #storeHeartbeat(session: NodeSession): void {
    if (session.heartbeat === undefined) return;
    this.#deps.store.nodes.setHeartbeat(session.uid, session.heartbeat);
    session.heartbeat = undefined;
  }

  /** Reports whether connects and disconnects of a node are withheld because a flapping event is open. */
  #isFlapping(uid: string): boolean {
    const state = this.#flapping.get(uid);
    // Flapping may have ended since the last sweep.
    if (state !== undefined) this.#settle(uid, state, this.#deps.clock.elapsed());
    return this.#flapping.get(uid)?.sinceRaised !== undefined;
  }

  #countCycle(uid: string, now: number): void {
    const { state, raise } = countCycle(this.#flapping.get(uid) ?? STABLE, now);
    const node = raise ? this.#deps.store.nodes.label(uid) : undefined;
    if (node !== undefined) {
      this.#deps.events.record(node, {
        eventType: FLAPPING,
        level: "WARNING",
        state: "EXCEEDED",
        message: "Node disconnects and reconnects repeatedly",
      });
    }
    // Done last: it is not rolled back if the store fails.
    this.#flapping.set(uid, state);
  }

  #settle(uid: string, state: Flapping, now: number): void {
    const settled = settle(state, now);
    if (settled.isOver) this.#deps.store.atomic(() => this.#recordStable(uid));
    if (settled.state === undefined) this.#flapping.delete(uid);
  }

  /** Records that a connection is stable, and the withheld disconnect if the node is offline. */
  #recordStable(uid: string): void {
    const { store, events, clock } = this.#deps;
    const node = store.nodes.label(uid);
    if (node === undefined) return;
    const isRecorded = store.alerts
      .ofNode(uid, clock.now() / 1000)
      .some(({ eventType }) => eventType === "Node Disconnect");
    const at = store.nodes.isOnline(uid) || isRecorded ? undefined : store.nodes.get(uid)?.disconnectTime;
    if (at !== undefined) {
      events.record(node, {
        eventType: "Node Disconnect",
        level: "WARNING",
        message: "Node disconnected",
        timestamp: at,
      });
    }
    events.record(node, {
      eventType: FLAPPING,
      level: "INFO",
      state: "CLEARED",
      message: at === undefined ? "Node connection is stable" : "Node no longer reconnects",
    });
  }
}
