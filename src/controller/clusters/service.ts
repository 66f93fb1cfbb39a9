import { isDeepStrictEqual } from "node:util";
import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { NodeName } from "../../protocol/values/values.ts";
import type { NodeLabel } from "../events/records.ts";
import type { EventLog } from "../events/service.ts";
import type { Changes } from "../nodes/changes.ts";
import { changeTag, checkField } from "../nodes/fields.ts";
import { checkNameFree } from "../nodes/names.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { Atomic } from "../store/atomic.ts";
import type { ClusterRecord } from "./records.ts";
import type { ClusterStore } from "./store.ts";

export interface ClusterServiceDeps {
  readonly store: Atomic & {
    readonly clusters: ClusterStore;
    readonly nodes: Pick<NodeStore, "byFqdn" | "change">;
  };
  readonly events: Pick<EventLog, "change">;
  readonly changes: Changes;
  readonly clock: Clock;
  readonly domain: string;
}

/** Clusters. Changes throw `InputError`: `not-found`, `invalid-body`, `name-taken`. */
export class ClusterService {
  readonly #deps: ClusterServiceDeps;

  constructor(deps: ClusterServiceDeps) {
    this.#deps = deps;
  }

  all(): readonly ClusterRecord[] {
    return this.#deps.store.clusters.all();
  }

  get(fqdn: string): ClusterRecord | undefined {
    return this.#deps.store.clusters.get(fqdn);
  }

  /** Creates a cluster without members. */
  create({ name }: { readonly name: string }, user: string): ClusterRecord {
    const { store, events, clock, domain } = this.#deps;
    checkField("name", NodeName, name);
    const fqdn = `${name}.${domain}`;
    checkNameFree(store, fqdn);
    return store.atomic(() => {
      store.clusters.add({ fqdn, name, domain, createdAt: Math.floor(clock.now() / 1000) });
      events.change(labelOf({ name, fqdn }), user, `Cluster ${fqdn} created`);
      return this.stored(fqdn);
    });
  }

  /** Deletes a cluster; its members leave it. */
  delete(fqdn: string, user: string): void {
    const { store, events, changes } = this.#deps;
    const cluster = this.stored(fqdn);
    changes.apply(() => {
      for (const uid of cluster.members) store.nodes.change(uid, { cluster: undefined });
      store.clusters.remove(fqdn);
      events.change(labelOf(cluster), user, `Cluster ${fqdn} deleted`);
      return cluster.members;
    });
  }

  /** Sets a tag; undefined removes it. */
  setTag(fqdn: string, name: string, value: string | undefined, user: string): ClusterRecord {
    const cluster = this.stored(fqdn);
    const tags = changeTag(cluster.tags, name, value);
    return this.change(cluster, { tags }, user, `Tag ${name} of cluster ${fqdn} changed`);
  }

  /** Stores and records a change of what members inherit; a change without effect is not recorded. */
  change(
    cluster: ClusterRecord,
    change: Partial<Pick<ClusterRecord, "tags" | "config">>,
    user: string,
    message: string,
  ): ClusterRecord {
    const { store, events, changes } = this.#deps;
    if (isDeepStrictEqual({ ...cluster, ...change }, cluster)) return cluster;
    changes.apply(() => {
      if (change.tags !== undefined) store.clusters.setTags(cluster.fqdn, change.tags);
      if (change.config !== undefined) store.clusters.setConfig(cluster.fqdn, change.config);
      events.change(labelOf(cluster), user, message);
      return cluster.members;
    });
    return this.stored(cluster.fqdn);
  }

  /** Returns a cluster. @throws {InputError} `not-found` */
  stored(fqdn: string): ClusterRecord {
    const cluster = this.#deps.store.clusters.get(fqdn);
    if (cluster === undefined) throw new InputError("not-found", `no cluster ${fqdn}`);
    return cluster;
  }
}

/** Label of events about a cluster: its name, and no node id. */
function labelOf({ name, fqdn }: Pick<ClusterRecord, "name" | "fqdn">): NodeLabel {
  return { uid: "", name, fqdn };
}
