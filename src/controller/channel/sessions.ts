import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import { AggregatedLog } from "../../host/aggregated-log.ts";
import type { Clock } from "../../host/clock.ts";
import type { KeyedQueue } from "../../lib/async/keyed-queue.ts";
import type { AlertStore } from "../events/alert-store.ts";
import type { EventLog, EventParts } from "../events/service.ts";
import type { NodeStore, StoredHeartbeat } from "../nodes/store.ts";
import type { Transact } from "../store/transact.ts";
import { countCycle, settle, STABLE, type Flapping } from "./flapping.ts";
import type { NodeSession } from "./session.ts";

/** Stores of an open transaction that records connects and disconnects. */
export interface SessionParts extends EventParts {
  readonly alerts: EventParts["alerts"] & Pick<AlertStore, "ofNode">;
  readonly nodes: Pick<NodeStore, "get" | "label" | "isOnline" | "disconnected" | "setDisconnectTime" | "setHeartbeat">;
}

export interface SessionsDeps {
  readonly store: Transact<SessionParts> & { readonly nodes: Pick<NodeStore, "online"> };
  readonly events: Pick<EventLog, "record">;
  /** Work on one node at a time, so that the open sessions and the store agree. */
  readonly turns: KeyedQueue;
  readonly clock: Clock;
  readonly heartbeatSeconds: number;
  /** Nodes whose connects and disconnects an earlier run withheld. */
  readonly withheld: readonly string[];
  readonly log: Logger;
}

/** A session that is about to open. Both steps belong to one turn of the node. */
export interface Entrance {
  /** Records the connect; has no effect but on `tx`. */
  record(tx: SessionParts): Promise<void>;
  /** Opens the session, once the transaction is committed; ends an older one of the same node. */
  enter(): void;
}

const SILENT_HEARTBEATS = 3;
const FLUSH_MS = 60_000;
const FLAPPING = "Connection Flapping";
/** Nodes that are written in one transaction. */
const BATCH = 200;

/** Returns the nodes whose connections flapped when the controller stopped: their connects and disconnects were withheld. */
export async function withheldNodes(
  { alerts }: { readonly alerts: Pick<AlertStore, "all"> },
  clock: Clock,
): Promise<readonly string[]> {
  const open = await alerts.all(clock.now() / 1000);
  return open.filter(({ eventType }) => eventType === FLAPPING).map(({ nodeId }) => nodeId);
}

/** Open sessions, at most one per node; records connects, disconnects and flapping. */
export class Sessions {
  readonly #deps: SessionsDeps;
  readonly #open = new Map<string, NodeSession>();
  readonly #flapping: Map<string, Flapping>;
  /** Closed sessions whose disconnect could not be stored, with its time in Unix seconds. */
  readonly #unrecorded = new Map<string, { readonly session: NodeSession; readonly at: number }>();
  /** Time at which nodes that an earlier run left online count as disconnected; undefined once checked. */
  #checkMissingAt: number | undefined;
  #flushedAt: number;
  #sweeping: Promise<void> | undefined;
  #isClosed = false;
  /** Disconnects that cannot be stored; each is tried again by every sweep. */
  readonly #failures: AggregatedLog;

  constructor(deps: SessionsDeps) {
    this.#deps = deps;
    this.#failures = new AggregatedLog(deps.log, deps.clock);
    const now = deps.clock.elapsed();
    // The events that were withheld are recorded once the connections are stable.
    this.#flapping = new Map(deps.withheld.map((uid) => [uid, { recent: [now], sinceRaised: 0 }]));
    this.#flushedAt = now;
    this.#checkMissingAt = now + this.#silentMs;
  }

  get #silentMs(): number {
    return SILENT_HEARTBEATS * this.#deps.heartbeatSeconds * 1000;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Whether the controller shuts down; no session opens any more. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  get(uid: string): NodeSession | undefined {
    return this.#open.get(uid);
  }

  /** Prepares the entrance of a session after its hello. */
  entrance(session: NodeSession, wasKnown: boolean): Entrance {
    const { events, clock } = this.#deps;
    const { uid, address } = session;
    const older = this.#open.get(uid);
    const heartbeat = older?.heartbeat;
    const now = clock.elapsed();
    const settled = settle(this.#flapping.get(uid) ?? STABLE, now);
    const isFlapping = settled.state?.sinceRaised !== undefined;
    // One that replaces an open session counts, too: each is recorded.
    const counted = wasKnown ? countCycle(settled.state ?? STABLE, now) : undefined;
    return {
      record: async (tx) => {
        if (settled.isOver) await this.#recordStable(tx, uid);
        const node = await tx.nodes.label(uid);
        if (node !== undefined && !isFlapping) {
          await events.record(tx, node, {
            eventType: "Node Connect",
            level: "INFO",
            message: `Node connected from IP address ${address}`,
            details: { address },
          });
        }
        if (heartbeat !== undefined) await tx.nodes.setHeartbeat(uid, heartbeat);
        if (node === undefined || counted?.raise !== true) return;
        await events.record(tx, node, {
          eventType: FLAPPING,
          level: "WARNING",
          state: "EXCEEDED",
          message: "Node disconnects and reconnects repeatedly",
        });
      },
      enter: () => {
        this.#unrecorded.delete(uid);
        this.#setFlapping(uid, counted?.state ?? settled.state);
        if (this.#isClosed) return session.leave();
        this.#open.set(uid, session);
        older?.end("superseded");
        // Its socket may have closed while it was stored.
        if (session.isOver) this.closed(session);
      },
    };
  }

  /** Handles a closed socket; a superseded session is ignored. Its disconnect is recorded in the node's turn. */
  closed(session: NodeSession): void {
    const { uid } = session;
    if (this.#open.get(uid) !== session || this.#isClosed) return;
    this.#open.delete(uid);
    const closed = { session, at: this.#deps.clock.now() / 1000 };
    this.#unrecorded.set(uid, closed);
    void this.#deps.turns.run(uid, () => this.#settleClosed(closed));
  }

  /** Removes a deleted node, in its turn; the caller notifies its session. */
  remove(uid: string): NodeSession | undefined {
    const session = this.#open.get(uid);
    this.#open.delete(uid);
    this.#flapping.delete(uid);
    this.#unrecorded.delete(uid);
    return session;
  }

  /** Returns the latest heartbeat that is not stored yet. */
  heartbeat(uid: string): StoredHeartbeat | undefined {
    return this.#open.get(uid)?.heartbeat;
  }

  /** Closes silent sockets; once a minute stores heartbeats and re-evaluates flapping. A sweep during another one only does the first. */
  async sweep(): Promise<void> {
    const now = this.#deps.clock.elapsed();
    for (const session of this.#open.values()) if (now - session.lastHeardAt > this.#silentMs) session.cut();
    if (this.#sweeping !== undefined || this.#isClosed) return;
    this.#sweeping = this.#store(now);
    try {
      await this.#sweeping;
    } finally {
      this.#sweeping = undefined;
    }
  }

  /** Stores what is in memory and closes all sessions. Waits for the nodes' turns, so that nothing of them is lost. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const { store, turns, clock } = this.#deps;
    await this.#sweeping?.catch(() => undefined);
    await turns.settled();
    try {
      await this.#flush();
      await inBatches([...this.#open.keys()], (uids) =>
        store.transact(async (tx) => {
          for (const uid of uids) await tx.nodes.setDisconnectTime(uid, clock.now() / 1000);
        }),
      );
    } finally {
      for (const session of this.#open.values()) session.leave();
      this.#open.clear();
      // What arrived before the sockets closed.
      await turns.settled();
    }
  }

  async #store(now: number): Promise<void> {
    const { turns } = this.#deps;
    for (const closed of this.#unrecorded.values()) {
      // Others are in their node's turn already.
      if (turns.count(closed.session.uid) === 0) {
        await turns.run(closed.session.uid, () => this.#settleClosed(closed));
      }
    }
    if (this.#checkMissingAt !== undefined && now >= this.#checkMissingAt) await this.#recordMissing();
    if (now - this.#flushedAt < FLUSH_MS) return;
    this.#flushedAt = now;
    await this.#flush();
    for (const [uid, state] of this.#flapping) {
      if (settle(state, now).state === undefined) await turns.run(uid, () => this.#settleFlapping(uid));
    }
  }

  /** Records a disconnect, unless the node has connected since. A failure is repeated by the next sweep. */
  async #settleClosed(closed: { readonly session: NodeSession; readonly at: number }): Promise<void> {
    const { store } = this.#deps;
    const { uid } = closed.session;
    if (this.#unrecorded.get(uid) !== closed) return;
    try {
      const settled = settle(this.#flapping.get(uid) ?? STABLE, this.#deps.clock.elapsed());
      await store.transact(async (tx) => {
        if (settled.isOver) await this.#recordStable(tx, uid);
        if (closed.session.heartbeat !== undefined) await tx.nodes.setHeartbeat(uid, closed.session.heartbeat);
        const isWithheld = settled.state?.sinceRaised !== undefined;
        await this.#recordDisconnect(tx, uid, { at: closed.at, message: "Node disconnected", isWithheld });
      });
      this.#unrecorded.delete(uid);
      this.#setFlapping(uid, settled.state);
    } catch (error) {
      // A full disk must not affect the sessions of other nodes.
      this.#failures.error(uid, { node: uid, err: toError(error) }, "cannot store disconnect");
    }
  }

  /** Records the disconnect of nodes that did not reconnect after a restart of the controller. */
  async #recordMissing(): Promise<void> {
    const { store, turns, clock } = this.#deps;
    const away = (await store.nodes.online()).filter((uid) => !this.#open.has(uid));
    await inBatches(away, (uids) =>
      turns.runAll(uids, () =>
        store.transact(async (tx) => {
          for (const uid of uids) {
            if (this.#open.has(uid) || !(await tx.nodes.isOnline(uid))) continue;
            const isWithheld = this.#flapping.get(uid)?.sinceRaised !== undefined;
            const message = "Node did not reconnect after the controller's restart";
            await this.#recordDisconnect(tx, uid, { at: clock.now() / 1000, message, isWithheld });
          }
        }),
      ),
    );
    this.#checkMissingAt = undefined;
  }

  async #recordDisconnect(
    tx: SessionParts,
    uid: string,
    { at, message, isWithheld }: { readonly at: number; readonly message: string; readonly isWithheld: boolean },
  ): Promise<void> {
    const node = await tx.nodes.label(uid);
    if (node === undefined) return;
    await tx.nodes.disconnected(uid, at);
    if (!isWithheld)
      await this.#deps.events.record(tx, node, { eventType: "Node Disconnect", level: "WARNING", message });
  }

  async #flush(): Promise<void> {
    const dirty = [...this.#open.values()].filter(({ heartbeat }) => heartbeat !== undefined);
    await inBatches(dirty, async (sessions) => {
      const heartbeats = new Map(sessions.map((session) => [session, session.heartbeat]));
      await this.#deps.store.transact(async (tx) => {
        for (const [{ uid }, heartbeat] of heartbeats) {
          if (heartbeat !== undefined) await tx.nodes.setHeartbeat(uid, heartbeat);
        }
      });
      // One that arrived meanwhile is stored with the next flush.
      for (const [session, heartbeat] of heartbeats) {
        if (session.heartbeat === heartbeat) session.heartbeat = undefined;
      }
    });
  }

  /** Ends flapping that is over, in the node's turn. */
  async #settleFlapping(uid: string): Promise<void> {
    const settled = settle(this.#flapping.get(uid) ?? STABLE, this.#deps.clock.elapsed());
    if (settled.isOver) await this.#deps.store.transact((tx) => this.#recordStable(tx, uid));
    this.#setFlapping(uid, settled.state);
  }

  #setFlapping(uid: string, state: Flapping | undefined): void {
    if (state === undefined) this.#flapping.delete(uid);
    else this.#flapping.set(uid, state);
  }

  /** Records that a connection is stable, and the withheld disconnect if the node is offline. */
  async #recordStable(tx: SessionParts, uid: string): Promise<void> {
    const { events, clock } = this.#deps;
    const node = await tx.nodes.label(uid);
    if (node === undefined) return;
    const alerts = await tx.alerts.ofNode(uid, clock.now() / 1000);
    const isRecorded = alerts.some(({ eventType }) => eventType === "Node Disconnect");
    const isAway = !isRecorded && !(await tx.nodes.isOnline(uid));
    const at = isAway ? (await tx.nodes.get(uid))?.disconnectTime : undefined;
    if (at !== undefined) {
      await events.record(tx, node, {
        eventType: "Node Disconnect",
        level: "WARNING",
        message: "Node disconnected",
        timestamp: at,
      });
    }
    await events.record(tx, node, {
      eventType: FLAPPING,
      level: "INFO",
      state: "CLEARED",
      message: at === undefined ? "Node connection is stable" : "Node no longer reconnects",
    });
  }
}

async function inBatches<T>(items: readonly T[], work: (batch: readonly T[]) => Promise<void>): Promise<void> {
  for (let at = 0; at < items.length; at += BATCH) await work(items.slice(at, at + BATCH));
}
