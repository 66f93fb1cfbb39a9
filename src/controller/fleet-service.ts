import { randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { InputError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import type { ConfirmRequest } from "../protocol/values/commit.ts";
import { DocumentName } from "../protocol/documents/claims.ts";
import { signJws } from "../protocol/channel/jws.ts";
import { sectionOwners, sectionSuits, type SectionName } from "../protocol/sections/sections.ts";
import type { MetricSample } from "../protocol/documents/telemetry.ts";
import {
  Base64Url32,
  NodeName,
  type JsonObject,
  type LifecycleState,
  type NodeState,
} from "../protocol/values/values.ts";
import type { Announcer } from "./channel/announcer.ts";
import type { Awaiting } from "./channel/awaiting.ts";
import type { Documents } from "./channel/documents/documents.ts";
import { deletedNotice } from "./channel/greeter.ts";
import { refuseAccessTo, refuseTriggerFrom, refuseWhileHeld } from "./nodes/held-identity.ts";
import type { Sessions } from "./channel/sessions.ts";
import type { TriggerOptions, Triggers } from "./channel/triggers.ts";
import type { Fleet } from "./fleet.ts";
import type { ControlKeys } from "./channel/keys/control-keys.ts";
import { checkSection } from "./config/checks.ts";
import { settleIdentity } from "./nodes/identity.ts";
import { isPermitted, placeOf } from "./nodes/ip-lock.ts";
import { callLabel, isRead } from "./triggers/trigger-label.ts";
import { openTerminal, type TerminalDeps } from "./containers/terminals.ts";
import type { AwaitReason } from "./channel/awaited-store.ts";
import type { NodeChange, StoredNode } from "./nodes/store.ts";
import type { Store } from "./stores.ts";
import { defined } from "../lib/defined.ts";
import type { NodeRecord } from "./nodes/records.ts";
import type { ClusterRecord } from "./clusters/records.ts";
import type { AlertRecord, AuditFilter, AuditRecord, EventFilter, EventRecord, NodeLabel } from "./events/records.ts";
import type { TerminalRequest } from "./containers/records.ts";
import type { NodeTerminal } from "./http/upgrade.ts";
import type { TriggerRequest } from "./triggers/records.ts";
import { reportLock } from "./nodes/lock-report.ts";
import { changeTag, checkField } from "./config/checks-tmp.ts";

export interface FleetServiceDeps extends TerminalDeps {
  readonly store: Store;
  readonly documents: Documents;
  readonly sessions: Sessions;
  readonly triggers: Triggers;
  readonly announcer: Announcer;
  readonly awaiting: Pick<Awaiting, "expect">;
  readonly keys: ControlKeys;
  readonly clock: Clock;
  readonly origin: string;
  readonly org: string;
  readonly domain: string;
  /** Set if a front end hides the addresses of nodes. */
  readonly areAddressesHidden: boolean;
  /** Reports whether an address is that of a front end that forwards the addresses of nodes. */
  readonly isFrontEnd: (address: string) => boolean;
}

const LICENSE_SECONDS = 24 * 3600;
const MAX_MEMBERS = 16;
/** Triggers after which a node must reconnect. */
const RESTART_TRIGGERS: Readonly<Record<string, AwaitReason>> = {
  "node-restart-service": "restart",
  "node-reboot": "reboot",
};

/** Fleet over the store and the open sessions. */
export class FleetService implements Fleet {
  readonly #deps: FleetServiceDeps;

  constructor(deps: FleetServiceDeps) {
    this.#deps = deps;
  }

  nodes(): readonly NodeRecord[] {
    return this.#deps.store.nodes.all().map((node) => this.#record(node));
  }

  node(uid: string): NodeRecord | undefined {
    const node = this.#deps.store.nodes.get(uid);
    return node === undefined ? undefined : this.#record(node);
  }

  nodeByFqdn(fqdn: string): NodeRecord | undefined {
    const node = this.#deps.store.nodes.byFqdn(fqdn);
    return node === undefined ? undefined : this.#record(node);
  }

  async issueLicense(request: Parameters<Fleet["issueLicense"]>[0]): Promise<string> {
    const { store, events, keys, clock, origin, org, domain } = this.#deps;
    const { name, type, jkt, user, lifetimeSeconds = LICENSE_SECONDS } = request;
    checkField("name", NodeName, name);
    if (jkt !== undefined) checkField("jkt", Base64Url32, jkt);
    this.#checkNameFree(`${name}.${domain}`);
    const iat = Math.floor(clock.now() / 1000);
    const license = {
      iss: origin,
      jti: randomUUID(),
      name,
      domain,
      org,
      type,
      iat,
      exp: iat + lifetimeSeconds,
      root: keys.rootThumbprint,
      spki: keys.newest.spki,
      ...(jkt === undefined ? {} : { cnf: { jkt } }),
    };
    const jws = await signJws("holdfast-license+jwt", license, keys.signing);
    store.atomic(() => {
      store.licenses.add(license, user);
      const node = { uid: license.jti, name, fqdn: `${name}.${domain}` };
      events.change(node, user, `License issued for ${node.fqdn} (${type})`);
    });
    return jws;
  }

  updateNode(uid: string, change: { state?: NodeState; cluster?: string | null }, user: string): NodeRecord {
    const node = this.#stored(uid);
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
    return this.#change(node, wanted, user, `Node updated: ${parts.join(", ")}`);
  }

  async deleteNode(uid: string, user: string): Promise<void> {
    const { store, events, sessions, triggers, clock } = this.#deps;
    const node = this.#stored(uid);
    this.#announce(() => {
      const credentials = store.nodes.credentials(uid);
      if (credentials !== undefined) {
        store.tombstones.add(uid, credentials.keys.auth, credentials.thumbprints.auth, clock.now() / 1000);
      }
      events.record(node, { eventType: "Node Delete", level: "WARNING", message: "Node deleted", details: { user } });
      store.alerts.closeAll(uid);
      store.nodes.remove(uid);
      return [uid, ...this.#membersOf(node.cluster)];
    });
    triggers.nodeRemoved(uid);
    const session = sessions.remove(uid);
    if (session === undefined) return;
    const claims = { aud: uid, nonce: session.cnonce, iat: session.now() };
    session.peer.notify("session.deleted", { jws: await deletedNotice(this.#deps, claims) });
    session.end("deleted");
  }

  setSection(
    uid: string,
    section: SectionName,
    body: JsonObject | undefined,
    user: string,
    confirm?: Omit<ConfirmRequest, "askedAt">,
    summary?: string,
  ): NodeRecord {
    const node = this.#stored(uid);
    if (!sectionSuits(section, node.type)) {
      throw new InputError("not-supported", `${section} does not exist on nodes of type ${node.type}`);
    }
    if (body !== undefined) checkSection(section, body);
    const { [section]: _replaced, ...others } = node.config;
    const config = body === undefined ? others : { ...others, [section]: body };
    const verb = body === undefined ? "removed" : "changed";
    const confirmation =
      confirm === undefined ? {} : { confirm: { ...confirm, askedAt: Math.round(this.#deps.clock.now()) } };
    const trial = confirm?.tryMinutes === undefined ? "" : `, trial of ${confirm.tryMinutes} minutes`;
    return this.#change(
      node,
      { config, ...confirmation },
      user,
      `Configuration of ${section} ${verb}${trial}${summary === undefined ? "" : `: ${summary}`}`,
    );
  }

  setTag(uid: string, name: string, value: string | undefined, user: string): NodeRecord {
    const node = this.#stored(uid);
    const tags = changeTag(node.tags, name, value);
    return this.#change(
      node,
      { tags },
      user,
      value === undefined ? `Tag ${name} removed` : `Tag ${name} set to ${value}`,
    );
  }

  setLifecycleState(uid: string, state: LifecycleState, user: string): NodeRecord {
    return this.#change(this.#stored(uid), { lifecycleState: state }, user, `Lifecycle state set to ${state}`);
  }

  setLock(uid: string, lock: readonly string[] | "current" | undefined, user: string): NodeRecord {
    const { store, events, sessions, areAddressesHidden, isFrontEnd } = this.#deps;
    if (lock !== undefined && areAddressesHidden) {
      const hint = "start the controller with --trusted-proxy, so that it knows the addresses of nodes";
      throw new InputError("not-configured", `a front end hides the addresses of nodes: ${hint}`);
    }
    const node = this.#stored(uid);
    const current = sessions.get(uid)?.address;
    const known = current ?? node.lastIp;
    if (lock === "current" && known === undefined) {
      throw new InputError(
        "invalid-body",
        "addresses: the node has not connected yet, so its address is unknown; specify addresses",
        {
          details: { field: "addresses" },
        },
      );
    }
    if (lock === "current" && known !== undefined && isFrontEnd(known)) {
      // A lock to a front end would permit every client that it does not identify.
      const hint = "configure it to send X-Forwarded-For, or specify the addresses";
      throw new InputError("not-configured", `the front end ${known} does not forward the node's address: ${hint}`);
    }
    const lockedTo = lock === "current" ? [placeOf(known ?? "")] : lock === undefined ? undefined : [...lock].sort();
    const from = current ?? node.unauthorizedIp;
    const unauthorizedIp = from === undefined || isPermitted(lockedTo, from) ? undefined : from;
    const message = lockedTo === undefined ? "Address lock removed" : `Node locked to ${lockedTo.join(", ")}`;
    return store.atomic(() => {
      const changed = this.#change(node, { lockedTo, unauthorizedIp }, user, message);
      reportLock(events, node, node, changed);
      return changed;
    });
  }

  clusters(): readonly ClusterRecord[] {
    return this.#deps.store.clusters.all();
  }

  cluster(fqdn: string): ClusterRecord | undefined {
    return this.#deps.store.clusters.get(fqdn);
  }

  createCluster({ name }: { name: string }, user: string): ClusterRecord {
    const { store, events, clock, domain } = this.#deps;
    checkField("name", NodeName, name);
    const fqdn = `${name}.${domain}`;
    this.#checkNameFree(fqdn);
    return store.atomic(() => {
      store.clusters.add({ fqdn, name, domain, createdAt: Math.floor(clock.now() / 1000) });
      events.change(clusterLabel({ name, fqdn }), user, `Cluster ${fqdn} created`);
      return this.#cluster(fqdn);
    });
  }

  deleteCluster(fqdn: string, user: string): void {
    const { store, events } = this.#deps;
    const cluster = this.#cluster(fqdn);
    this.#announce(() => {
      for (const uid of cluster.members) store.nodes.change(uid, { cluster: undefined });
      store.clusters.remove(fqdn);
      events.change(clusterLabel(cluster), user, `Cluster ${fqdn} deleted`);
      return cluster.members;
    });
  }

  setClusterSection(fqdn: string, section: SectionName, body: JsonObject | undefined, user: string): ClusterRecord {
    const { store, events } = this.#deps;
    const cluster = this.#cluster(fqdn);
    if (!sectionOwners[section].clusters) throw new InputError("not-supported", `clusters have no ${section} section`);
    if (body !== undefined) checkSection(section, body);
    const { [section]: _replaced, ...others } = cluster.config;
    const config = body === undefined ? others : { ...others, [section]: body };
    if (isDeepStrictEqual(config, cluster.config)) return cluster;
    this.#announce(() => {
      store.clusters.setConfig(fqdn, config);
      const verb = body === undefined ? "removed" : "changed";
      events.change(clusterLabel(cluster), user, `Configuration of ${section} of cluster ${fqdn} ${verb}`);
      return cluster.members;
    });
    return this.#cluster(fqdn);
  }

  setClusterTag(fqdn: string, name: string, value: string | undefined, user: string): ClusterRecord {
    const { store, events } = this.#deps;
    const cluster = this.#cluster(fqdn);
    const tags = changeTag(cluster.tags, name, value);
    if (isDeepStrictEqual(tags, cluster.tags)) return cluster;
    this.#announce(() => {
      store.clusters.setTags(fqdn, tags);
      events.change(clusterLabel(cluster), user, `Tag ${name} of cluster ${fqdn} changed`);
      return cluster.members;
    });
    return this.#cluster(fqdn);
  }

  async runTrigger(uid: string, request: TriggerRequest, options: TriggerOptions): Promise<unknown> {
    const { store, events, triggers, sessions, awaiting } = this.#deps;
    const node = this.#stored(uid);
    refuseWhileHeld(store, uid);
    const session = sessions.get(uid);
    if (session !== undefined) refuseTriggerFrom(store, uid, session.address, request.event);
    if (session !== undefined && request.isAudited !== false && !isRead(request)) {
      const shared = node.cluster === undefined ? undefined : store.clusters.get(node.cluster)?.config.exec;
      const label = callLabel(request, shared ?? node.config.exec ?? {});
      events.audit(node, `${request.user} invoked ${label}`);
    }
    const restart = Object.hasOwn(RESTART_TRIGGERS, request.event) ? RESTART_TRIGGERS[request.event] : undefined;
    if (restart !== undefined && session !== undefined) awaiting.expect(uid, restart);
    return triggers.run(uid, request, options);
  }

  async openTerminal(uid: string, request: TerminalRequest, signal: AbortSignal): Promise<NodeTerminal> {
    const node = this.#stored(uid);
    refuseWhileHeld(this.#deps.store, uid);
    if (node.unauthorizedIp !== undefined) refuseAccessTo(this.#deps.store, uid, node.unauthorizedIp);
    return openTerminal(this.#deps, node, request, signal);
  }

  events(filter: EventFilter): { readonly total: number; readonly items: readonly EventRecord[] } {
    return this.#deps.store.events.find(filter);
  }

  event(nodeId: string, eventUid: string): EventRecord | undefined {
    return this.#deps.store.events.get(nodeId, eventUid);
  }

  alerts(nodeId?: string): readonly AlertRecord[] {
    const { store, clock } = this.#deps;
    const now = clock.now() / 1000;
    return nodeId === undefined ? store.alerts.all(now) : store.alerts.ofNode(nodeId, now);
  }

  /** Dismissing `Identity Shared` releases a held identity. */
  dismissAlert(nodeId: string, eventType: string, user: string): boolean {
    const { store, events, documents, announcer } = this.#deps;
    const { wasOpen, isReleased } = store.atomic(() => {
      const wasOpen = store.alerts.close(nodeId, eventType);
      const isReleased = eventType === "Identity Shared" && this.#releaseIdentity(nodeId);
      const node = store.nodes.label(nodeId) ?? { uid: nodeId, name: "", fqdn: "" };
      if (wasOpen || isReleased) events.change(node, user, `Alert ${eventType} dismissed`);
      return { wasOpen, isReleased };
    });
    if (isReleased) {
      // Its requests were refused while it was held.
      const versions = documents.versions(nodeId);
      announcer.changed(
        nodeId,
        DocumentName.options.filter((name) => versions[name] > 0),
      );
    }
    return isReleased || wasOpen;
  }

  audits(filter: AuditFilter): { readonly total: number; readonly items: readonly AuditRecord[] } {
    return this.#deps.store.audits.find(filter);
  }

  recordChange<T>(user: string, message: string, work: () => T): T {
    return this.#deps.events.changeOutsideDocuments(user, message, work);
  }

  recordNodeChange<T>(uid: string, user: string, message: string, work: () => T): T {
    return this.#deps.events.changeOutsideDocuments(user, message, work, this.#stored(uid));
  }

  metrics(nodeId: string, from: number, to: number): readonly MetricSample[] {
    return this.#deps.store.telemetry.metrics(nodeId, from, to);
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

  #stored(uid: string): StoredNode {
    const node = this.#deps.store.nodes.get(uid);
    if (node === undefined) throw new InputError("not-found", `no node ${uid}`);
    return node;
  }

  #cluster(fqdn: string): ClusterRecord {
    const cluster = this.#deps.store.clusters.get(fqdn);
    if (cluster === undefined) throw new InputError("not-found", `no cluster ${fqdn}`);
    return cluster;
  }

  #checkNameFree(fqdn: string): void {
    const { store } = this.#deps;
    if (store.nodes.byFqdn(fqdn) !== undefined || store.clusters.get(fqdn) !== undefined) {
      throw new InputError("name-taken", `${fqdn} already exists; choose another name`, { details: { field: "name" } });
    }
  }

  #checkJoin(node: StoredNode, fqdn: string): void {
    const cluster = this.#cluster(fqdn);
    if (node.type === "Agent") throw new InputError("not-supported", "cluster: agents cannot be members of a cluster");
    if (cluster.members.length >= MAX_MEMBERS) {
      throw new InputError("invalid-body", `cluster: ${fqdn} has ${MAX_MEMBERS} members`, {
        details: { field: "cluster" },
      });
    }
  }

  /** Stores and records a change of a node; a change without effect is not recorded. */
  #change(node: StoredNode, change: NodeChange, user: string, message: string): NodeRecord {
    const { store, events } = this.#deps;
    if (isDeepStrictEqual({ ...node, ...change }, node)) return this.#record(node);
    this.#announce(() => {
      store.nodes.change(node.uid, change);
      events.change(node, user, message);
      const touched = Object.hasOwn(change, "cluster") ? [node.cluster, change.cluster] : [];
      return new Set([node.uid, ...touched.flatMap((cluster) => this.#membersOf(cluster))]);
    });
    return this.#record(this.#stored(node.uid));
  }

  /** Stores a change and the documents of the returned nodes in one transaction, then notifies nodes that are online. */
  #announce(change: () => Iterable<string>): void {
    const { store, documents, announcer, sessions, awaiting } = this.#deps;
    const changed = store.atomic(() => {
      const refreshed = documents.refresh(change());
      for (const [uid, names] of refreshed) {
        // A change of the domain document disconnects no node.
        if (sessions.get(uid) !== undefined && names.some((name) => name !== "domain")) {
          awaiting.expect(uid, "configuration");
        }
      }
      return refreshed;
    });
    for (const [uid, names] of changed) announcer.changed(uid, names);
  }

  #membersOf(cluster: string | undefined): readonly string[] {
    return cluster === undefined ? [] : this.#deps.store.nodes.members(cluster);
  }

  #releaseIdentity(uid: string): boolean {
    const { store } = this.#deps;
    const trail = store.nodes.credentials(uid)?.trail;
    if (trail?.isHeld !== true) return false;
    store.nodes.setTrail(uid, settleIdentity(trail));
    return true;
  }
}

/** Label of events about a cluster: its name, and no node id. */
function clusterLabel({ name, fqdn }: Pick<ClusterRecord, "name" | "fqdn">): NodeLabel {
  return { uid: "", name, fqdn };
}
