import type { AuditParts, EventLog } from "../events/service.ts";
import type { ClusterStore } from "../clusters/store.ts";
import { refuseTriggerFrom, refuseWhileHeld } from "../nodes/held-identity.ts";
import type { NodeService } from "../nodes/service.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { SentTrigger, TriggerProgress, TriggerRequest } from "./records.ts";
import type { TriggerStore } from "./store.ts";
import { callLabel, isRead } from "./trigger-label.ts";

export interface TriggerOptions {
  readonly signal: AbortSignal;
  readonly onProgress?: ((progress: TriggerProgress) => void) | undefined;
  /** Called with the id of the trigger before it is sent. */
  readonly onSent?: ((id: string) => void) | undefined;
  /** Called once with `ok` or an error code. */
  readonly onOutcome?: ((outcome: string) => Promise<void>) | undefined;
}

/** Sends a trigger to a node. */
export type RunTrigger = (uid: string, request: TriggerRequest, options: TriggerOptions) => Promise<unknown>;

export interface TriggerServiceDeps {
  readonly store: AuditParts & {
    readonly nodes: Pick<NodeStore, "credentials" | "label">;
    readonly clusters: Pick<ClusterStore, "get">;
    readonly triggers: Pick<TriggerStore, "get">;
  };
  readonly nodes: Pick<NodeService, "stored">;
  readonly events: Pick<EventLog, "audit">;
  readonly sessions: { get(uid: string): { readonly address: string } | undefined };
  /** Expects a node to reconnect. */
  readonly expect: (uid: string, reason: "restart" | "reboot") => Promise<void>;
  readonly send: RunTrigger;
}

/** Triggers after which a node must reconnect. */
const RESTART_TRIGGERS: Readonly<Record<string, "restart" | "reboot">> = {
  "node-restart-service": "restart",
  "node-reboot": "reboot",
};

/** Triggers of nodes. */
export class TriggerService {
  readonly #deps: TriggerServiceDeps;

  constructor(deps: TriggerServiceDeps) {
    this.#deps = deps;
  }

  /** Returns a trigger that was sent to a node. */
  sent(uid: string, id: string): Promise<SentTrigger | undefined> {
    return this.#deps.store.triggers.get(uid, id);
  }

  /**
   * Sends a signed trigger. Resolves to the node's response with `wait`, otherwise to `true` once sent. `onProgress` receives output as it
   * arrives.
   * @throws {InputError} `not-found`, `busy`, `unauthorized-ip`, `cancelled`, `timeout`; {SessionError} `offline` or the node's error
   */
  async run(uid: string, request: TriggerRequest, options: TriggerOptions): Promise<unknown> {
    const { store, nodes, events, sessions, expect, send } = this.#deps;
    const node = await nodes.stored(uid);
    await refuseWhileHeld(store, uid);
    const session = sessions.get(uid);
    if (session !== undefined) await refuseTriggerFrom(store, uid, session.address, request.event);
    const isAudited = session !== undefined && request.isAudited !== false && !isRead(request);
    if (isAudited) {
      const cluster = node.cluster === undefined ? undefined : await store.clusters.get(node.cluster);
      const label = callLabel(request, cluster?.config.exec ?? node.config.exec ?? {});
      await events.audit(store, node, `${request.user} invoked ${label}`);
    }
    const restart = Object.hasOwn(RESTART_TRIGGERS, request.event) ? RESTART_TRIGGERS[request.event] : undefined;
    if (restart !== undefined && session !== undefined) await expect(uid, restart);
    if (request.wait || !isAudited) return send(uid, request, options);
    // Nobody waits for the outcome, so the audits tell it.
    const onOutcome = async (outcome: string): Promise<void> => {
      const known = await store.nodes.label(uid);
      if (known !== undefined)
        await events.audit(store, known, `${request.event} of ${request.user} ended: ${outcome}`);
    };
    return send(uid, request, { ...options, onOutcome });
  }
}
