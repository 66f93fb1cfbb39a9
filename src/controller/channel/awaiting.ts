import type { Clock } from "../../host/clock.ts";
import type { EventLog } from "../events/service.ts";
import type { Awaited, AwaitReason } from "./awaited-store.ts";
import type { Atomic } from "../store/atomic.ts";
import type { AwaitedStore } from "./awaited-store.ts";
import type { NodeStore } from "../nodes/store.ts";
import { defined } from "../../lib/defined.ts";

export interface AwaitingDeps {
  readonly store: Atomic & { readonly awaited: AwaitedStore; readonly nodes: NodeStore };
  readonly events: EventLog;
  readonly clock: Clock;
  readonly sessions: { get(uid: string): unknown };
}

/** Time within which a node must connect after an event that restarts it, or after it disconnected because of one, in seconds. */
export const WAIT_SECONDS = 600;
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
  expect(uid: string, reason: AwaitReason): void {
    const since = this.#deps.clock.now() / 1000;
    this.#deps.store.awaited.put({ uid, reason, since, deadline: since + WAIT_SECONDS });
  }

  /** Clears the expectation of a node that connected. */
  connected(uid: string): void {
    const { store, events } = this.#deps;
    const node = store.awaited.remove(uid) ? store.nodes.label(uid) : undefined;
    if (node === undefined) return;
    events.record(node, {
      eventType: "Connection Timeout",
      level: "INFO",
      state: "CLEARED",
      message: "Node connected",
    });
  }

  /** Reports nodes whose deadline has passed. */
  sweep(): void {
    const { store, clock } = this.#deps;
    if (clock.elapsed() < this.#startsAt) return;
    const now = clock.now() / 1000;
    const due = store.awaited.due(now);
    if (due.length > 0) store.atomic(() => due.forEach((awaited) => this.#check(awaited, now)));
  }

  #check({ uid, reason, since }: Awaited, now: number): void {
    const { store, events, sessions } = this.#deps;
    const node = store.nodes.get(uid);
    if (node === undefined || sessions.get(uid) !== undefined) return void store.awaited.remove(uid);
    const { disconnectTime } = node;
    // A node that just disconnected gets the full time.
    const until = (disconnectTime ?? 0) + WAIT_SECONDS;
    if (until > now) return store.awaited.postpone(uid, until);
    store.awaited.reported(uid);
    events.record(node, {
      eventType: "Connection Timeout",
      level: "ERROR",
      state: "EXCEEDED",
      message: `Node has not connected for ${Math.floor((now - Math.max(since, disconnectTime ?? 0)) / 60)} minutes after ${AFTER[reason]}`,
      details: { reason, since, ...defined({ disconnectTime }) },
    });
  }
}
