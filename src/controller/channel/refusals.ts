import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { EventLog } from "../event-log.ts";
import type { ControlPlaneEvent } from "../model/control-plane-events.ts";
import type { Store } from "../store/store.ts";

/** What is refused by its looks, and changes nothing. */
export type RefusalKind =
  | "signature"
  | "audience"
  | "tls-intercepted"
  | "unknown-node"
  | "too-large"
  | "too-many-messages"
  | "malformed"
  | "registration"
  | "activation"
  | "authentication"
  | "reserved-event"
  | "unauthorized-ip";

/** Who was refused, and why; `uid` only of a node that is known. */
export interface Refused {
  readonly uid?: string | undefined;
  readonly address: string;
  readonly message: string;
}

export interface RefusalsDeps {
  readonly store: Store;
  readonly events: EventLog;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A name of our own: `Signature Refused` is what a node says about us. */
const EVENT_TYPES: Readonly<Partial<Record<RefusalKind, ControlPlaneEvent>>> = {
  signature: "Node Signature Refused",
  audience: "Node Signature Refused",
  "tls-intercepted": "Node Signature Refused",
  "too-large": "Message Too Large",
  "unauthorized-ip": "Unauthorized IP",
};
/** Anybody can make us refuse something, so each node has one event of a type in this time. */
const EVENT_MS = 10 * 60_000;
const SUM_MS = 60_000;
/** Lines that tell of single refusals, between two sums. */
const MAX_LINES = 10;

/** Counts what is refused, logs it within bounds, and raises events about the nodes that are named. */
export class Refusals {
  readonly #deps: RefusalsDeps;
  readonly #counts = new Map<RefusalKind, number>();
  /** When each node and event type was told last, oldest first. */
  readonly #told = new Map<string, number>();
  #summedAt: number;
  #lines = 0;
  #hasMore = false;

  constructor(deps: RefusalsDeps) {
    this.#deps = deps;
    this.#summedAt = deps.clock.elapsed();
  }

  note(kind: RefusalKind, { uid, address, message }: Refused): void {
    this.#counts.set(kind, (this.#counts.get(kind) ?? 0) + 1);
    this.#hasMore = true;
    const reason = message.slice(0, 256);
    this.#lines += 1;
    if (this.#lines <= MAX_LINES) this.#deps.log.warn({ kind, node: uid, address, reason }, "refused");
    const eventType = EVENT_TYPES[kind];
    if (uid === undefined || eventType === undefined) return;
    try {
      this.#tell(uid, eventType, `Refused from ${address}: ${reason}`, { kind, address });
    } catch (error) {
      this.#deps.log.error({ node: uid, err: toError(error) }, "event not stored");
    }
  }

  /** Once a minute logs the sums, when there is more to tell than the last time. */
  sweep(): void {
    const now = this.#deps.clock.elapsed();
    if (now - this.#summedAt < SUM_MS) return;
    this.#summedAt = now;
    this.#lines = 0;
    for (const [key, at] of this.#told) {
      if (now - at < EVENT_MS) break;
      this.#told.delete(key);
    }
    if (!this.#hasMore) return;
    this.#hasMore = false;
    this.#deps.log.warn({ counts: Object.fromEntries(this.#counts) }, "refused so far");
  }

  #tell(uid: string, eventType: ControlPlaneEvent, message: string, details: Readonly<Record<string, string>>): void {
    const { store, events, clock } = this.#deps;
    const key = `${uid} ${eventType}`;
    const toldAt = this.#told.get(key);
    const now = clock.elapsed();
    if (toldAt !== undefined && now - toldAt < EVENT_MS) return;
    const node = store.nodes.label(uid);
    if (node === undefined) return;
    this.#told.delete(key);
    this.#told.set(key, now);
    events.record(node, { eventType, level: "WARNING", message, details });
  }
}
