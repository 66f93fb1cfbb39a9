import { isDeepStrictEqual } from "node:util";
import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { defined } from "../../lib/defined.ts";
import type { LifecycleState, NodeState, NodeType } from "../../protocol/values/values.ts";
import type { AlertStore } from "../events/alert-store.ts";
import type { EventLog } from "../events/service.ts";
import type { Sources } from "../http/sources.ts";
import type { Atomic } from "../store/atomic.ts";
import type { Changes } from "./changes.ts";
import { changeTag } from "./fields.ts";
import { isPermitted, placeOf } from "./ip-lock.ts";
import { reportLock } from "./lock-report.ts";
import type { NodeRecord } from "./records.ts";
import type { NodeChange, NodeStore, StoredHeartbeat, StoredNode } from "./store.ts";
import type { TombstoneStore } from "./tombstone-store.ts";

export interface NodeServiceDeps {
  readonly store: Atomic & {
    readonly nodes: NodeStore;
    readonly tombstones: Pick<TombstoneStore, "add">;
    readonly alerts: Pick<AlertStore, "closeAll">;
    readonly clusters: { get(fqdn: string): { readonly members: readonly string[] } | undefined };
    readonly documents: { applied(uid: string): NodeRecord["applied"] };
  };
  readonly events: Pick<EventLog, "record" | "change" | "changeOutsideDocuments">;
  readonly changes: Changes;
  readonly sessions: {
    get(uid: string): { readonly address: string } | undefined;
    heartbeat(uid: string): StoredHeartbeat | undefined;
  };
  /** Tells a deleted node so and ends its session. */
  readonly dismiss: (uid: string) => Promise<void>;
  readonly sources: Pick<Sources, "areHidden" | "isFrontEnd">;
  readonly clock: Clock;
}

const MAX_MEMBERS = 16;

/**
 * Nodes. A change is stored, raises the version of each affected document, and is announced to online nodes, in this order.
 * Changes throw `InputError`: `not-found`, `invalid-body`, `not-supported`.
 */
export class NodeService {
  readonly #deps: NodeServiceDeps;

  constructor(deps: NodeServiceDeps) {
    this.#deps = deps;
  }

  all(): readonly NodeRecord[] {
    return this.#deps.store.nodes.all().map((node) => this.#record(node));
  }

  /** Returns the tags of every node that has some. */
  tags(): readonly Pick<StoredNode, "uid" | "tags">[] {
    return this.#deps.store.nodes.tags();
  }

  countOf(type: NodeType): number {
    return this.#deps.store.nodes.countOf(type);
  }

  get(uid: string): NodeRecord | undefined {
    const node = this.#deps.store.nodes.get(uid);
    return node === undefined ? undefined : this.#record(node);
  }

  byFqdn(fqdn: string): NodeRecord | undefined {
    const node = this.#deps.store.nodes.byFqdn(fqdn);
    return node === undefined ? undefined : this.#record(node);
  }

  /** Sets the state of a node, or its cluster; null removes it from its cluster. */
  update(uid: string, change: { state?: NodeState; cluster?: string | null }, user: string): NodeRecord {
    const node = this.stored(uid);
    const wanted: NodeChange = {
      ...defined({ state: change.state }),
      ...(change.cluster === undefined ? {} : { cluster: change.cluster ?? undefined }),
    };
    if (typeof change.cluster === "string" && change.cluster !== node.cluster) this.#checkJoin(node, change.cluster);
    const parts = [
      ...(change.state === undefined || change.state === node.state ? [] : [`state ${change.state}`]),
      ...(change.cluster === undefined || (change.cluster ?? undefined) === node.cluster
        ? []
        : [`cluster ${change.cluster ?? "none"}`]),
    ];
    return this.change(node, wanted, user, `Node updated: ${parts.join(", ")}`);
  }

  async delete(uid: string, user: string): Promise<void> {
    const { store, events, changes, dismiss, clock } = this.#deps;
    const node = this.stored(uid);
    changes.apply(() => {
      const credentials = store.nodes.credentials(uid);
      if (credentials !== undefined) {
        store.tombstones.add(uid, credentials.keys.auth, credentials.thumbprints.auth, clock.now() / 1000);
      }
      events.record(node, { eventType: "Node Delete", level: "WARNING", message: "Node deleted", details: { user } });
      store.alerts.closeAll(uid);
      store.nodes.remove(uid);
      return [uid, ...this.#membersOf(node.cluster)];
    });
    await dismiss(uid);
  }

  /** Sets a tag; undefined removes it. */
  setTag(uid: string, name: string, value: string | undefined, user: string): NodeRecord {
    const node = this.stored(uid);
    const tags = changeTag(node.tags, name, value);
    const message = value === undefined ? `Tag ${name} removed` : `Tag ${name} set to ${value}`;
    return this.change(node, { tags }, user, message);
  }

  setLifecycleState(uid: string, state: LifecycleState, user: string): NodeRecord {
    return this.change(this.stored(uid), { lifecycleState: state }, user, `Lifecycle state set to ${state}`);
  }

  /** Locks a node to address blocks, or to its current address; undefined removes the lock. @throws {InputError} `not-configured` */
  setLock(uid: string, lock: readonly string[] | "current" | undefined, user: string): NodeRecord {
    const { store, events, sessions, sources } = this.#deps;
    if (lock !== undefined && sources.areHidden) {
      const hint = "start the controller with --trusted-proxy, so that it knows the addresses of nodes";
      throw new InputError("not-configured", `a front end hides the addresses of nodes: ${hint}`);
    }
    const node = this.stored(uid);
    const current = sessions.get(uid)?.address;
    const known = current ?? node.lastIp;
    if (lock === "current" && known === undefined) {
      const reason = "the node has not connected yet, so its address is unknown; specify addresses";
      throw new InputError("invalid-body", `addresses: ${reason}`, { details: { field: "addresses" } });
    }
    if (lock === "current" && known !== undefined && sources.isFrontEnd(known)) {
      // A lock to a front end would permit every client that it does not identify.
      const hint = "configure it to send X-Forwarded-For, or specify the addresses";
      throw new InputError("not-configured", `the front end ${known} does not forward the node's address: ${hint}`);
    }
    const lockedTo = lock === "current" ? [placeOf(known ?? "")] : lock === undefined ? undefined : [...lock].sort();
    const from = current ?? node.unauthorizedIp;
    const unauthorizedIp = from === undefined || isPermitted(lockedTo, from) ? undefined : from;
    const message = lockedTo === undefined ? "Address lock removed" : `Node locked to ${lockedTo.join(", ")}`;
    return store.atomic(() => {
      const changed = this.change(node, { lockedTo, unauthorizedIp }, user, message);
      reportLock(events, node, node, changed);
      return changed;
    });
  }

  /** Stores and records a change of a node; a change without effect is not recorded. */
  change(node: StoredNode, change: NodeChange, user: string, message: string): NodeRecord {
    const { store, events, changes } = this.#deps;
    if (isDeepStrictEqual({ ...node, ...change }, node)) return this.#record(node);
    changes.apply(() => {
      store.nodes.change(node.uid, change);
      events.change(node, user, message);
      const touched = Object.hasOwn(change, "cluster") ? [node.cluster, change.cluster] : [];
      return new Set([node.uid, ...touched.flatMap((cluster) => this.#membersOf(cluster))]);
    });
    return this.#record(this.stored(node.uid));
  }

  /** Runs a change that belongs to a node and records it by this user, in one transaction. @throws {InputError} `not-found` */
  recordChange<T>(uid: string, user: string, message: string, work: () => T): T {
    return this.#deps.events.changeOutsideDocuments(user, message, work, this.stored(uid));
  }

  /** Returns a node as stored. @throws {InputError} `not-found` */
  stored(uid: string): StoredNode {
    const node = this.#deps.store.nodes.get(uid);
    if (node === undefined) throw new InputError("not-found", `no node ${uid}`);
    return node;
  }

  #record(node: StoredNode): NodeRecord {
    const { sessions, store } = this.#deps;
    return {
      ...node,
      isOnline: sessions.get(node.uid) !== undefined,
      heartbeat: sessions.heartbeat(node.uid) ?? node.heartbeat,
      applied: store.documents.applied(node.uid),
    };
  }

  #checkJoin(node: StoredNode, fqdn: string): void {
    const cluster = this.#deps.store.clusters.get(fqdn);
    if (cluster === undefined) throw new InputError("not-found", `no cluster ${fqdn}`);
    if (node.type === "Agent") throw new InputError("not-supported", "cluster: agents cannot be members of a cluster");
    if (cluster.members.length >= MAX_MEMBERS) {
      throw new InputError("invalid-body", `cluster: ${fqdn} has ${MAX_MEMBERS} members`, {
        details: { field: "cluster" },
      });
    }
  }

  #membersOf(cluster: string | undefined): readonly string[] {
    return cluster === undefined ? [] : this.#deps.store.nodes.members(cluster);
  }
}
