import type { Clock } from "../../host/clock.ts";
import type { Atomic } from "../store/atomic.ts";
import type { AlertStore } from "./alert-store.ts";
import type { AlertRecord, NodeLabel } from "./records.ts";
import type { EventLog } from "./service.ts";

export interface AlertsDeps {
  readonly store: Atomic & {
    readonly alerts: AlertStore;
    readonly nodes: { label(uid: string): NodeLabel | undefined };
  };
  readonly events: Pick<EventLog, "change">;
  readonly identities: {
    /** Ends the hold on an identity. Returns false if it is not held. */
    release(uid: string): boolean;
    /** Tells a node what it was refused while its identity was held. */
    resume(uid: string): void;
  };
  readonly clock: Clock;
}

/** Open alerts of nodes. */
export class Alerts {
  readonly #deps: AlertsDeps;

  constructor(deps: AlertsDeps) {
    this.#deps = deps;
  }

  /** Returns the open alerts of one node or of all. */
  find(nodeId?: string): readonly AlertRecord[] {
    const { store, clock } = this.#deps;
    const now = clock.now() / 1000;
    return nodeId === undefined ? store.alerts.all(now) : store.alerts.ofNode(nodeId, now);
  }

  /**
   * Resolves and dismisses one alert; returns false if none of this type is open. Dismissing `Identity Shared` releases a held identity.
   */
  dismiss(nodeId: string, eventType: string, user: string): boolean {
    const { store, events, identities } = this.#deps;
    const { wasOpen, isReleased } = store.atomic(() => {
      const wasOpen = store.alerts.close(nodeId, eventType);
      const isReleased = eventType === "Identity Shared" && identities.release(nodeId);
      const node = store.nodes.label(nodeId) ?? { uid: nodeId, name: "", fqdn: "" };
      if (wasOpen || isReleased) events.change(node, user, `Alert ${eventType} dismissed`);
      return { wasOpen, isReleased };
    });
    if (isReleased) identities.resume(nodeId);
    return isReleased || wasOpen;
  }
}
