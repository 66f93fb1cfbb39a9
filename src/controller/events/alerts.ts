import type { Clock } from "../../host/clock.ts";
import type { Transact } from "../store/transact.ts";
import type { AlertStore } from "./alert-store.ts";
import type { AlertRecord, NodeLabel } from "./records.ts";
import type { EventLog, EventParts } from "./service.ts";

/** Stores of an open transaction that dismisses alerts of nodes, kept in `nodes`. */
export interface AlertParts<Nodes> extends EventParts {
  readonly nodes: Nodes & { label(uid: string): Promise<NodeLabel | undefined> };
}

export interface AlertsDeps<Nodes> {
  readonly store: Transact<AlertParts<Nodes>> & { readonly alerts: AlertStore };
  readonly events: Pick<EventLog, "change">;
  readonly identities: {
    /** Ends the hold on an identity. Resolves to false if it is not held. */
    release(tx: { readonly nodes: Nodes }, uid: string): Promise<boolean>;
    /** Tells a node what it was refused while its identity was held. */
    resume(uid: string): Promise<void>;
  };
  readonly clock: Clock;
}

/** Open alerts of nodes. */
export class Alerts<Nodes = unknown> {
  readonly #deps: AlertsDeps<Nodes>;

  constructor(deps: AlertsDeps<Nodes>) {
    this.#deps = deps;
  }

  /** Returns the open alerts of one node or of all. */
  find(nodeId?: string): Promise<readonly AlertRecord[]> {
    const { store, clock } = this.#deps;
    const now = clock.now() / 1000;
    return nodeId === undefined ? store.alerts.all(now) : store.alerts.ofNode(nodeId, now);
  }

  /**
   * Resolves and dismisses one alert; resolves to false if none of this type is open. Dismissing `Identity Shared` releases a held identity.
   */
  async dismiss(nodeId: string, eventType: string, user: string): Promise<boolean> {
    const { store, events, identities } = this.#deps;
    const { wasOpen, isReleased } = await store.transact(async (tx) => {
      const wasOpen = await tx.alerts.close(nodeId, eventType);
      const isReleased = eventType === "Identity Shared" && (await identities.release(tx, nodeId));
      const node = (await tx.nodes.label(nodeId)) ?? { uid: nodeId, name: "", fqdn: "" };
      if (wasOpen || isReleased)
        await events.change(tx, node, user, `Alert ${eventType} dismissed`, { action: "action" });
      return { wasOpen, isReleased };
    });
    if (isReleased) await identities.resume(nodeId);
    return isReleased || wasOpen;
  }
}
