import type { Clock } from "../../host/clock.ts";
import type { EventLog } from "../event-log.ts";
import { countCycle, settle, STABLE, type Flapping } from "../model/flapping.ts";
import type { StoredHeartbeat } from "../store/nodes.ts";
import type { Store } from "../store/store.ts";
import type { NodeSession } from "./session.ts";

export interface SessionsDeps {
  readonly store: Store;
  readonly events: EventLog;
  readonly clock: Clock;
  readonly heartbeatSeconds: number;
}

const SILENT_HEARTBEATS = 3;
const FLUSH_MS = 60_000;
const FLAPPING = "Connection Flapping";

/** The sessions that are open, at most one of each node, and what their comings and goings mean. */
export class Sessions {
  readonly #deps: SessionsDeps;
  readonly #open = new Map<string, NodeSession>();
  readonly #flapping = new Map<string, Flapping>();
  /** When those whom an earlier run left online are missed; undefined once that is done. */
  #missAt: number | undefined;
  #flushedAt: number;
  #isClosed = false;

  constructor(deps: SessionsDeps) {
    this.#deps = deps;
    this.#flushedAt = deps.clock.elapsed();
    this.#missAt = this.#flushedAt + this.#silentMs;
    // An earlier run may have stopped while connections flapped: events that it withheld are recorded when they are stable.
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

  /** Takes in a session whose hello is answered; one of the same node that is open gives way. */
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

  /** Takes note that a socket closed; a session that was superseded has nothing to say any more. */
  closed(session: NodeSession): void {
    if (this.#open.get(session.uid) !== session || this.#isClosed) return;
    this.#open.delete(session.uid);
    this.#deps.store.atomic(() => {
      if (this.#deps.store.nodes.label(session.uid) === undefined) return;
      this.#storeHeartbeat(session);
      this.#recordDisconnect(session.uid, "Node disconnected");
    });
  }

  /** Forgets a node that was deleted; its session is told by the caller. */
  remove(uid: string): NodeSession | undefined {
    const session = this.#open.get(uid);
    this.#open.delete(uid);
    this.#flapping.delete(uid);
    return session;
  }

  /** The newest heartbeat, stored or not. */
  heartbeat(uid: string): StoredHeartbeat | undefined {
    return this.#open.get(uid)?.heartbeat;
  }

  /** Cuts sockets that fell silent; once a minute stores heartbeats and judges who has become stable. */
  sweep(): void {
    const now = this.#deps.clock.elapsed();
    for (const session of this.#open.values()) if (now - session.lastHeardAt > this.#silentMs) session.cut();
    if (this.#missAt !== undefined && now >= this.#missAt) this.#missThoseAway();
    if (now - this.#flushedAt < FLUSH_MS) return;
    this.#flushedAt = now;
    this.#flush();
    for (const [uid, state] of this.#flapping) this.#settle(uid, state, now);
  }

  /** Stores what is in memory and lets every node go. */
  close(): void {
    this.#isClosed = true;
    const { store, clock } = this.#deps;
    this.#flush();
    store.atomic(() => {
      for (const uid of this.#open.keys()) store.nodes.letGo(uid, clock.now() / 1000);
    });
    for (const session of this.#open.values()) session.leave();
    this.#open.clear();
  }

  /** After a crash or a restart nobody heard those disconnect who do not come back. */
  #missThoseAway(): void {
    const { store } = this.#deps;
    const away = store.nodes.online().filter((uid) => !this.#open.has(uid));
    store.atomic(() => {
      for (const uid of away) this.#recordDisconnect(uid, "Node did not come back after the controller's restart");
    });
    this.#missAt = undefined;
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

  /** Reports whether connects and disconnects of a node are withheld because the event of flapping stands for them. */
  #isFlapping(uid: string): boolean {
    const state = this.#flapping.get(uid);
    // It may be over since the last sweep.
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

  /** Records that a connection is stable, and the withheld disconnect of a node that has been offline since. */
  #recordStable(uid: string): void {
    const { store, events, clock } = this.#deps;
    const node = store.nodes.label(uid);
    if (node === undefined) return;
    const isTold = store.alerts
      .ofNode(uid, clock.now() / 1000)
      .some(({ eventType }) => eventType === "Node Disconnect");
    const at = store.nodes.isOnline(uid) || isTold ? undefined : store.nodes.get(uid)?.disconnectTime;
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
