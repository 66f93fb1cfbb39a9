import { isDeepStrictEqual } from "node:util";
import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { NodeName } from "../../protocol/values/values.ts";
import type { NodeLabel } from "../events/records.ts";
import type { EventLog, EventParts } from "../events/service.ts";
import type { Changes } from "../nodes/changes.ts";
import { changeTag, checkField, checkTags, namesOf } from "../nodes/fields.ts";
import { checkNameFree } from "../nodes/names.ts";
import { promotedRoles, withoutMembership } from "../nodes/membership.ts";
import type { NodeStore, StoredNode } from "../nodes/store.ts";
import type { Transact } from "../store/transact.ts";
import type { ClusterRecord } from "./records.ts";
import type { ClusterStore } from "./store.ts";

/** Stores of an open transaction that changes clusters. */
export interface ClusterParts extends EventParts {
  readonly clusters: ClusterStore;
  readonly nodes: Pick<NodeStore, "byFqdn" | "change" | "get">;
}

export interface ClusterServiceDeps {
  readonly store: Transact<ClusterParts> & { readonly clusters: Pick<ClusterStore, "all" | "get"> };
  readonly events: Pick<EventLog, "change">;
  readonly changes: Changes<ClusterParts>;
  readonly clock: Clock;
  readonly domain: string;
}

/** A change of what members inherit, and its text in the event. */
export interface ClusterChange {
  readonly tags?: ClusterRecord["tags"];
  readonly config?: ClusterRecord["config"];
  readonly message: string;
}

/** Clusters. Changes reject with `InputError`: `not-found`, `invalid-body`, `name-taken`. */
export class ClusterService {
  readonly #deps: ClusterServiceDeps;

  constructor(deps: ClusterServiceDeps) {
    this.#deps = deps;
  }

  all(): Promise<readonly ClusterRecord[]> {
    return this.#deps.store.clusters.all();
  }

  get(fqdn: string): Promise<ClusterRecord | undefined> {
    return this.#deps.store.clusters.get(fqdn);
  }

  /** Creates a cluster without members. */
  async create({ name }: { readonly name: string }, user: string): Promise<ClusterRecord> {
    const { store, events, clock, domain } = this.#deps;
    checkField("name", NodeName, name);
    const fqdn = `${name}.${domain}`;
    return store.transact(async (tx) => {
      await checkNameFree(tx, fqdn);
      await tx.clusters.add({ fqdn, name, domain, createdAt: Math.floor(clock.now() / 1000) });
      await events.change(tx, labelOf({ name, fqdn }), user, `Cluster ${fqdn} created`, { action: "create" });
      return storedIn(tx, fqdn);
    });
  }

  /** Deletes a cluster; its members leave it. */
  async delete(fqdn: string, user: string): Promise<void> {
    const { events, changes } = this.#deps;
    await changes.apply(async (tx) => {
      const cluster = await storedIn(tx, fqdn);
      for (const uid of cluster.members) {
        const config = withoutMembership((await tx.nodes.get(uid))?.config ?? {});
        await tx.nodes.change(uid, { cluster: undefined, config });
      }
      await tx.clusters.remove(fqdn);
      await events.change(tx, labelOf(cluster), user, `Cluster ${fqdn} deleted`, { action: "delete" });
      return { uids: cluster.members, result: undefined };
    });
  }

  /**
   * Makes a member the configured active one and counts the promotion on every member; promoting the active member again changes nothing.
   */
  async promote(fqdn: string, uid: string, user: string): Promise<ClusterRecord> {
    const { events, changes, clock } = this.#deps;
    await changes.apply(async (tx) => {
      const { members } = await storedIn(tx, fqdn);
      const promoted = members.includes(uid) ? await tx.nodes.get(uid) : undefined;
      if (promoted === undefined) {
        // The same for a node that does not exist: the caller may not be permitted to read it.
        const text = `node ${uid} is not a member of ${fqdn}; put it into the cluster first`;
        throw new InputError("invalid-body", text, { details: { field: "nodeID" } });
      }
      const nodes = (await readAll(tx, members)).filter((node) => node !== undefined);
      const roles = promotedRoles(nodes, uid, Math.floor(clock.now() / 1000));
      for (const [node, cluster] of roles) {
        await tx.nodes.change(node.uid, { config: { ...node.config, cluster } });
        await events.change(tx, node, user, `${promoted.fqdn} is the configured active member of ${fqdn}`);
      }
      return { uids: roles.map(([node]) => node.uid), result: undefined };
    });
    return storedIn(this.#deps.store, fqdn);
  }

  /** Sets a tag; undefined removes it. `check` may refuse it by throwing. */
  setTag(
    fqdn: string,
    name: string,
    value: string | undefined,
    user: string,
    check: (cluster: ClusterRecord) => void = () => undefined,
  ): Promise<ClusterRecord> {
    const message = `Tag ${name} of cluster ${fqdn} changed`;
    return this.change(fqdn, user, (cluster) => {
      check(cluster);
      return { tags: changeTag(cluster.tags, name, value), message };
    });
  }

  /** Replaces all tags. */
  setTags(fqdn: string, tags: ClusterRecord["tags"], user: string): Promise<ClusterRecord> {
    return this.change(fqdn, user, (cluster) => {
      checkTags(tags, cluster.tags);
      return { tags, message: `Tags of cluster ${fqdn} replaced: ${namesOf(tags)}` };
    });
  }

  /**
   * Stores and records a change of what members inherit, which `decide` makes of the stored cluster and may refuse by throwing; it may
   * run again. A change without effect is not recorded.
   */
  async change(fqdn: string, user: string, decide: (cluster: ClusterRecord) => ClusterChange): Promise<ClusterRecord> {
    const { events, changes } = this.#deps;
    await changes.apply(async (tx) => {
      const cluster = await storedIn(tx, fqdn);
      const { message, ...change } = decide(cluster);
      if (isDeepStrictEqual({ ...cluster, ...change }, cluster)) return { uids: [], result: undefined };
      if (change.tags !== undefined) await tx.clusters.setTags(fqdn, change.tags);
      if (change.config !== undefined) await tx.clusters.setConfig(fqdn, change.config);
      await events.change(tx, labelOf(cluster), user, message);
      return { uids: cluster.members, result: undefined };
    });
    return storedIn(this.#deps.store, fqdn);
  }
}

/** @throws {InputError} `not-found` */
async function storedIn(
  { clusters }: { readonly clusters: Pick<ClusterStore, "get"> },
  fqdn: string,
): Promise<ClusterRecord> {
  const cluster = await clusters.get(fqdn);
  if (cluster === undefined) throw new InputError("not-found", `there is no cluster ${fqdn}`);
  return cluster;
}

/** Reads nodes one after the other, as a transaction needs it. */
async function readAll(
  { nodes }: Pick<ClusterParts, "nodes">,
  uids: readonly string[],
): Promise<readonly (StoredNode | undefined)[]> {
  const found: (StoredNode | undefined)[] = [];
  for (const uid of uids) found.push(await nodes.get(uid));
  return found;
}

/** Label of events about a cluster: its name, and no node id. */
function labelOf({ name, fqdn }: Pick<ClusterRecord, "name" | "fqdn">): NodeLabel {
  return { uid: "", name, fqdn };
}
