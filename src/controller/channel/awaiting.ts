import type { Clock } from "../../host/clock.ts";
import type { KeyedQueue } from "../../lib/async/keyed-queue.ts";
import type { EventLog, EventParts } from "../events/service.ts";
import type { Transact } from "../store/transact.ts";
import type { Awaited, AwaitedStore, AwaitReason } from "./awaited-store.ts";
import type { NodeStore } from "../nodes/store.ts";
import { defined } from "../../lib/defined.ts";

export interface AwaitingParts extends EventParts {
  readonly awaited: AwaitedStore;
  readonly nodes: Pick<NodeStore, "get" | "label">;
}

export interface AwaitingDeps {
  readonly store: Transact<AwaitingParts> & { readonly awaited: Pick<AwaitedStore, "due"> };
  readonly events: EventLog;
  readonly clock: Clock;
  readonly sessions: { get(uid: string): unknown };
  /** Work on one node at a time; a sweep sees no node between its disconnect and the record of it. */
  readonly turns: Pick<KeyedQueue, "runAll">;
}

/** Time within which a node must connect after an event that restarts it, or after it disconnected because of one, in seconds. */
export const WAIT_SECONDS = 600;
/** Nodes that are checked in one transaction. */
const BATCH = 100;
/** Time for nodes to reconnect after the controller starts: more than twice their longest retry delay, in milliseconds. */
export const RETURN_MS = 5 * 60_000;

const AFTER: Readonly<Record<AwaitReason, string>> = {
  registration: "its registration",
  configuration: "a change of its configuration",
  restart: "the restart of its service",
  reboot: "its reboot",
};

/** Reports nodes that do not connect after registration, a change of configuration, a restart or a reboot. */
export class Awaiting {
  readonly #deps: AwaitingDeps;
  readonly #startsAt: number;

  constructor(deps: AwaitingDeps) {
    this.#deps = deps;
    this.#startsAt = deps.clock.elapsed() + RETURN_MS;
  }

  /** Requires a node to connect, or to stay connected, within `WAIT_SECONDS`. */
  async expect(tx: Pick<AwaitingParts, "awaited">, uid: string, reason: AwaitReason): Promise<void> {
    const since = this.#deps.clock.now() / 1000;
    await tx.awaited.put({ uid, reason, since, deadline: since + WAIT_SECONDS });
  }

  /** Clears the expectation of a node that connected. */
  async connected(tx: AwaitingParts, uid: string): Promise<void> {
    const node = (await tx.awaited.remove(uid)) ? await tx.nodes.label(uid) : undefined;
    if (node === undefined) return;
    await this.#deps.events.record(tx, node, {
      eventType: "Connection Timeout",
      level: "INFO",
      state: "CLEARED",
      message: "Node connected",
    });
  }

  /** Reports nodes whose deadline has passed. */
  async sweep(): Promise<void> {
    const { store, clock, turns } = this.#deps;
    if (clock.elapsed() < this.#startsAt) return;
    const now = clock.now() / 1000;
    const due = (await store.awaited.due(now)).map(({ uid }) => uid);
    for (let at = 0; at < due.length; at += BATCH) {
      const uids = due.slice(at, at + BATCH);
      await turns.runAll(uids, () => store.transact((tx) => this.#checkAll(tx, new Set(uids), now)));
    }
  }

  async #checkAll(tx: AwaitingParts, uids: ReadonlySet<string>, now: number): Promise<void> {
    for (const awaited of await tx.awaited.due(now)) if (uids.has(awaited.uid)) await this.#check(tx, awaited, now);
  }

  async #check(tx: AwaitingParts, { uid, reason, since }: Awaited, now: number): Promise<void> {
    const { events, sessions } = this.#deps;
    const node = await tx.nodes.get(uid);
    if (node === undefined || sessions.get(uid) !== undefined) {
      await tx.awaited.remove(uid);
      return;
    }
    const { disconnectTime } = node;
    // A node that just disconnected gets the full time.
    const until = (disconnectTime ?? 0) + WAIT_SECONDS;
    if (until > now) return tx.awaited.postpone(uid, until);
    await tx.awaited.reported(uid);
    await events.record(tx, node, {
      eventType: "Connection Timeout",
      level: "ERROR",
      state: "EXCEEDED",
      message: `Node has not connected for ${Math.floor((now - Math.max(since, disconnectTime ?? 0)) / 60)} minutes after ${AFTER[reason]}`,
      details: { reason, since, ...defined({ disconnectTime }) },
    });
  }
}
