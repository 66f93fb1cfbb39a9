import type { Logger } from "pino";
import { Background } from "../../lib/async/background.ts";
import type { Clock } from "../../host/clock.ts";
import type { EventLog, EventParts } from "../events/service.ts";
import type { ControlPlaneEvent } from "../events/control-plane-events.ts";
import type { NodeStore } from "../nodes/store.ts";
import { whileUnavailable, type Transact } from "../store/transact.ts";

/** Kinds of refused input; refusing changes nothing. */
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

/** Source and reason of a refusal; `uid` is set only for known nodes. */
export interface Refused {
  readonly uid?: string | undefined;
  readonly address: string;
  readonly message: string;
}

export interface RefusalsDeps {
  readonly store: Transact<EventParts & { readonly nodes: Pick<NodeStore, "label"> }>;
  readonly events: Pick<EventLog, "record">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Event types of our own: `Signature Refused` is a node's event about us. */
const EVENT_TYPES: Readonly<Partial<Record<RefusalKind, ControlPlaneEvent>>> = {
  signature: "Node Signature Refused",
  audience: "Node Signature Refused",
  "tls-intercepted": "Node Signature Refused",
  "too-large": "Message Too Large",
  "unauthorized-ip": "Unauthorized IP",
};
/** Minimum interval of one event type per node, since anyone can cause refusals, in milliseconds. */
const EVENT_MS = 10 * 60_000;
const SUMMARY_MS = 60_000;
/** Limit of log lines about single refusals between two summaries. */
const MAX_LINES = 10;

/** Limit of events that are being stored; further ones are dropped, and logged as refusals like all. */
const MAX_STORING = 256;

/** Counts refusals, logs them within limits, and raises events of the nodes concerned. */
export class Refusals {
  readonly #deps: RefusalsDeps;
  readonly #counts = new Map<RefusalKind, number>();
  /** Time of the latest event by node and event type, oldest first. */
  readonly #reported = new Map<string, number>();
  readonly #storing: Background;
  #summedAt: number;
  #lines = 0;
  #hasMore = false;

  constructor(deps: RefusalsDeps) {
    this.#deps = deps;
    this.#summedAt = deps.clock.elapsed();
    const onFailure = (err: Error): void => deps.log.error({ err }, "event not stored");
    this.#storing = new Background({ limit: MAX_STORING, onFailure, repeat: whileUnavailable(deps.clock) });
  }

  /** Counts and logs a refusal; the event of its node is stored later. */
  note(kind: RefusalKind, { uid, address, message }: Refused): void {
    this.#counts.set(kind, (this.#counts.get(kind) ?? 0) + 1);
    this.#hasMore = true;
    const reason = message.slice(0, 256);
    this.#lines += 1;
    if (this.#lines <= MAX_LINES) this.#deps.log.warn({ kind, node: uid, address, reason }, "refused");
    const eventType = EVENT_TYPES[kind];
    if (uid === undefined || eventType === undefined) return;
    this.#report(uid, eventType, `Refused from ${address}: ${reason}`, { kind, address });
  }

  /** Waits for the events that are being stored. */
  close(): Promise<void> {
    return this.#storing.settled();
  }

  /** Logs the counts once a minute, if they changed. */
  sweep(): void {
    const now = this.#deps.clock.elapsed();
    if (now - this.#summedAt < SUMMARY_MS) return;
    this.#summedAt = now;
    this.#lines = 0;
    for (const [key, at] of this.#reported) {
      if (now - at < EVENT_MS) break;
      this.#reported.delete(key);
    }
    if (!this.#hasMore) return;
    this.#hasMore = false;
    this.#deps.log.warn({ counts: Object.fromEntries(this.#counts) }, "refused so far");
  }

  #report(uid: string, eventType: ControlPlaneEvent, message: string, details: Readonly<Record<string, string>>): void {
    const { store, events, clock } = this.#deps;
    const key = `${uid} ${eventType}`;
    const reportedAt = this.#reported.get(key);
    const now = clock.elapsed();
    if (reportedAt !== undefined && now - reportedAt < EVENT_MS) return;
    const isStoring = this.#storing.run(() =>
      store.transact(async (tx) => {
        const node = await tx.nodes.label(uid);
        if (node !== undefined) await events.record(tx, node, { eventType, level: "WARNING", message, details });
      }),
    );
    if (!isStoring) return;
    this.#reported.delete(key);
    this.#reported.set(key, now);
  }
}
