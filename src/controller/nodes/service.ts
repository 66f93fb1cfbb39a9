import { setImmediate as nextTurn } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { KeyedQueue } from "../../lib/async/keyed-queue.ts";
import { defined } from "../../lib/defined.ts";
import type { LifecycleState, NodeState, NodeType } from "../../protocol/values/values.ts";
import type { AlertStore } from "../events/alert-store.ts";
import type { EventLog, EventParts } from "../events/service.ts";
import { Violations } from "../http/problem.ts";
import type { Sources } from "../http/sources.ts";
import type { Transact } from "../store/transact.ts";
import type { Changes } from "./changes.ts";
import { changeTag, checkTags, namesOf } from "./fields.ts";
import { isPermitted, placeOf } from "./ip-lock.ts";
import { reportLock } from "./lock-report.ts";
import { desiredOf, type UnacknowledgedDocument } from "./desired.ts";
import type { Locations } from "./locations.ts";
import { hasRoomFor, type ClientKeys, type KeyForm } from "./client-keys.ts";
import { withoutMembership } from "./membership.ts";
import type { ListedNode, NodeRecord, Part } from "./records.ts";
import { NODES_OF_PAGE, type NodeChange, type NodeFilter, type NodeStore } from "./store.ts";
import type { StoredHeartbeat, StoredNode } from "./store.ts";
import type { TombstoneStore } from "./tombstone-store.ts";

/** Stores of an open transaction that changes nodes. */
export interface NodeParts extends EventParts {
  readonly nodes: NodeStore;
  readonly tombstones: Pick<TombstoneStore, "add">;
  readonly alerts: Pick<AlertStore, "open" | "close" | "closeAll" | "countOf">;
  readonly clusters: { get(fqdn: string): Promise<{ readonly members: readonly string[] } | undefined> };
}

export interface NodeServiceDeps {
  readonly store: Transact<NodeParts> & {
    readonly nodes: NodeStore;
    readonly documents: {
      applied(uid: string): Promise<NodeRecord["applied"]>;
      unacknowledged(uid?: string): Promise<readonly UnacknowledgedDocument[]>;
    };
  };
  readonly events: Pick<EventLog, "record" | "change" | "auditChange">;
  readonly changes: Changes<NodeParts>;
  readonly sessions: {
    get(uid: string): { readonly address: string } | undefined;
    heartbeat(uid: string): StoredHeartbeat | undefined;
  };
  /** Work on one node at a time: its session, and what the store says of it, agree. */
  readonly turns: Pick<KeyedQueue, "run">;
  /** Notifies a deleted node and ends its session. */
  readonly dismiss: (uid: string) => Promise<void>;
  readonly sources: Pick<Sources, "areHidden" | "isFrontEnd">;
  /** Undefined without a geolocation file. */
  readonly locations: Pick<Locations, "of"> | undefined;
  /** Form in which public keys are shown; text by default. */
  readonly keyForm?: KeyForm;
  readonly clock: Clock;
}

/** A change of a node, and its text in the event. */
export interface NodeDecision {
  readonly change: NodeChange;
  readonly message: string;
}

const MAX_MEMBERS = 16;
const ALL_PARTS: ReadonlySet<Part> = new Set(["config", "details", "heartbeat", "inheritedTags", "location", "shadow"]);

/**
 * Nodes. A change is stored, raises the version of each affected document, and is announced to online nodes, in this order.
 * Changes throw `InputError`: `not-found`, `invalid-body`, `not-supported`.
 */
export class NodeService {
  readonly #deps: NodeServiceDeps;

  constructor(deps: NodeServiceDeps) {
    this.#deps = deps;
  }

  /**
   * Returns all nodes, or those of a cluster, by FQDN with these parts; the others are empty. They come some at a time, and other
   * requests are served in between.
   */
  async *pages(
    parts: ReadonlySet<Part> = ALL_PARTS,
    { cluster }: Pick<NodeFilter, "cluster"> = {},
  ): AsyncIterable<readonly ListedNode[]> {
    const { nodes, documents } = this.#deps.store;
    const unacknowledged = parts.has("shadow") ? await documents.unacknowledged() : [];
    const pending = Map.groupBy(unacknowledged, ({ node }) => node);
    let after: string | undefined;
    for (;;) {
      const page = await nodes.page(parts, { after, cluster });
      yield page.map((node) => this.#listed(node, pending.get(node.uid) ?? [], parts));
      after = page.at(-1)?.fqdn;
      if (page.length < NODES_OF_PAGE) return;
      await nextTurn();
    }
  }

  /** Returns all nodes, whole. */
  async all(): Promise<readonly ListedNode[]> {
    const all: ListedNode[] = [];
    for await (const page of this.pages()) all.push(...page);
    return all;
  }

  uids(): Promise<readonly string[]> {
    return this.#deps.store.nodes.uids();
  }

  /** Returns the tags that count, its own and those of its cluster below them, and the creation of every node that has some. */
  tags(): Promise<readonly Pick<StoredNode, "uid" | "tags" | "createdAt">[]> {
    return this.#deps.store.nodes.tags();
  }

  countOf(type: NodeType): Promise<number> {
    return this.#deps.store.nodes.countOf(type);
  }

  async get(uid: string): Promise<NodeRecord | undefined> {
    const node = await this.#deps.store.nodes.get(uid);
    return node === undefined ? undefined : this.#read(node);
  }

  async byFqdn(fqdn: string): Promise<NodeRecord | undefined> {
    const node = await this.#deps.store.nodes.byFqdn(fqdn);
    return node === undefined ? undefined : this.#read(node);
  }

  /** Sets the state of a node, or its cluster; null removes it from its cluster. `mayJoin` may refuse by throwing that it joins one. */
  update(
    uid: string,
    wanted: { state?: NodeState; cluster?: string | null },
    user: string,
    mayJoin: () => void = () => undefined,
  ): Promise<NodeRecord> {
    const { state, cluster } = wanted;
    return this.change(uid, user, async (node, tx) => {
      if (typeof cluster === "string" && cluster !== node.cluster) {
        // Before the lookup, so that names cannot be guessed.
        mayJoin();
        await checkJoin(tx, node, cluster);
      }
      const hasLeft = cluster !== undefined && node.cluster !== undefined && cluster !== node.cluster;
      const parts = [
        ...(state === undefined || state === node.state ? [] : [`state ${state}`]),
        ...(cluster === undefined || (cluster ?? undefined) === node.cluster ? [] : [`cluster ${cluster ?? "none"}`]),
      ];
      const change = {
        ...defined({ state }),
        ...(cluster === undefined ? {} : { cluster: cluster ?? undefined }),
        ...(hasLeft ? { config: withoutMembership(node.config) } : {}),
      };
      return { change, message: `Node updated: ${parts.join(", ")}` };
    });
  }

  async delete(uid: string, user: string): Promise<void> {
    const { events, changes, dismiss, clock } = this.#deps;
    await changes.apply(async (tx) => {
      const node = await storedIn(tx, uid);
      const credentials = await tx.nodes.credentials(uid);
      if (credentials !== undefined) {
        await tx.tombstones.add(uid, credentials.keys.auth, credentials.thumbprints.auth, clock.now() / 1000);
      }
      const event = { eventType: "Node Delete", level: "WARNING", message: "Node deleted", details: { user } } as const;
      await events.record(tx, node, event);
      await events.auditChange(tx, node, user, event.message, { action: "delete" });
      await tx.alerts.closeAll(uid);
      await tx.nodes.remove(uid);
      return { uids: [uid, ...(await membersOf(tx, node.cluster))], result: undefined };
    });
    await dismiss(uid);
  }

  /** Sets a tag; undefined removes it. `check` may refuse it by throwing. */
  setTag(
    uid: string,
    name: string,
    value: string | undefined,
    user: string,
    check: (node: StoredNode) => void = () => undefined,
  ): Promise<NodeRecord> {
    const message = value === undefined ? `Tag ${name} removed` : `Tag ${name} set to ${value}`;
    return this.change(uid, user, (node) => {
      check(node);
      return { change: { tags: changeTag(node.tags, name, value) }, message };
    });
  }

  /** Replaces all tags. */
  setTags(uid: string, tags: StoredNode["tags"], user: string): Promise<NodeRecord> {
    return this.change(uid, user, (node) => {
      checkTags(tags, node.tags);
      return { change: { tags }, message: `Tags replaced: ${namesOf(tags)}` };
    });
  }

  /** Keeps a public key of a client. @throws {Violations} at the limit of 32 */
  setClientKey(uid: string, name: string, key: ClientKeys[string], user: string): Promise<NodeRecord> {
    return this.change(uid, user, ({ clientKeys = {} }) => {
      if (!hasRoomFor(clientKeys, name))
        throw new Violations(["keyName: cannot add a key: the limit of 32 keys is reached"]);
      return { change: { clientKeys: { ...clientKeys, [name]: key } }, message: `Public key ${name} set` };
    });
  }

  setLifecycleState(uid: string, state: LifecycleState, user: string): Promise<NodeRecord> {
    const decision = { change: { lifecycleState: state }, message: `Lifecycle state set to ${state}` };
    return this.change(uid, user, () => decision);
  }

  /** Locks a node to address blocks, or to its current address; undefined removes the lock. @throws {InputError} `not-configured` */
  async setLock(uid: string, lock: readonly string[] | "current" | undefined, user: string): Promise<NodeRecord> {
    const { sessions, sources, turns } = this.#deps;
    if (lock !== undefined && sources.areHidden) {
      const hint = "start the controller with --trusted-proxy, so that it knows the addresses of nodes";
      throw new InputError("not-configured", `a front end hides the addresses of nodes: ${hint}`);
    }
    const decide = (node: StoredNode): NodeDecision => {
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
      return { change: { lockedTo, unauthorizedIp }, message };
    };
    return turns.run(uid, () => this.change(uid, user, decide));
  }

  /**
   * Stores and records a change of a node, which `decide` makes of the stored node and may refuse by throwing; it may run again, and reads
   * through `tx` alone. A change without effect is not recorded.
   */
  async change(
    uid: string,
    user: string,
    decide: (node: StoredNode, tx: NodeParts) => NodeDecision | Promise<NodeDecision>,
  ): Promise<NodeRecord> {
    const { events, changes } = this.#deps;
    const stored = await changes.apply(async (tx) => {
      const node = await storedIn(tx, uid);
      const { change, message } = await decide(node, tx);
      const changed = { ...node, ...change };
      if (isDeepStrictEqual(changed, node)) return { uids: [], result: node };
      await tx.nodes.change(uid, change);
      await events.change(tx, node, user, message);
      await reportLock(tx, events, node, node, changed);
      const touched = Object.hasOwn(change, "cluster") ? [node.cluster, change.cluster] : [];
      const affected = new Set([uid]);
      for (const cluster of touched) for (const member of await membersOf(tx, cluster)) affected.add(member);
      // The tags of a cluster come with its members.
      const result = touched.length > 0 ? await storedIn(tx, uid) : { ...changed, confirm: change.confirm };
      return { uids: affected, result };
    });
    return this.#read(stored);
  }

  /** Returns a node as stored. @throws {InputError} `not-found` */
  stored(uid: string): Promise<StoredNode> {
    return storedIn(this.#deps.store, uid);
  }

  async #read(node: StoredNode): Promise<NodeRecord> {
    const { documents } = this.#deps.store;
    const pending = await documents.unacknowledged(node.uid);
    return { ...this.#listed(node, pending), applied: await documents.applied(node.uid) };
  }

  #listed(node: StoredNode, pending: readonly UnacknowledgedDocument[], parts = ALL_PARTS): ListedNode {
    const { sessions, locations, keyForm } = this.#deps;
    return {
      ...node,
      isOnline: sessions.get(node.uid) !== undefined,
      heartbeat: parts.has("heartbeat") ? (sessions.heartbeat(node.uid) ?? node.heartbeat) : undefined,
      desired: desiredOf(node, pending),
      keyForm,
      location: node.lastIp === undefined || !parts.has("location") ? undefined : locations?.of(node.lastIp),
    };
  }
}

/** @throws {InputError} `not-found` */
async function storedIn({ nodes }: { readonly nodes: Pick<NodeStore, "get"> }, uid: string): Promise<StoredNode> {
  const node = await nodes.get(uid);
  if (node === undefined) throw new InputError("not-found", `there is no node ${uid}`);
  return node;
}

async function checkJoin(tx: Pick<NodeParts, "clusters">, node: StoredNode, fqdn: string): Promise<void> {
  const cluster = await tx.clusters.get(fqdn);
  if (cluster === undefined) throw new Violations([`cluster: there is no cluster ${fqdn}`]);
  if (node.type === "Agent") throw new InputError("not-supported", "cluster: agents cannot be members of a cluster");
  if (cluster.members.length >= MAX_MEMBERS) {
    throw new InputError("invalid-body", `cluster: ${fqdn} has ${MAX_MEMBERS} members`, {
      details: { field: "cluster" },
    });
  }
}

async function membersOf({ nodes }: Pick<NodeParts, "nodes">, cluster: string | undefined): Promise<readonly string[]> {
  return cluster === undefined ? [] : nodes.members(cluster);
}
