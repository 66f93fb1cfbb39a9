import type { ConfirmRequest } from "../../../src/protocol/values/commit.ts";
import { randomUUID } from "node:crypto";
import { InputError, SessionError } from "../../../src/errors.ts";
import type { Fleet } from "../../../src/controller/fleet.ts";
import type { SectionName } from "../../../src/protocol/sections/sections.ts";
import type { JsonObject, LifecycleState, NodeState, NodeType } from "../../../src/protocol/values/values.ts";
import type { NodeRecord } from "../../../src/controller/nodes/records.ts";
import type { ClusterRecord } from "../../../src/controller/clusters/records.ts";
import type { AlertRecord, AuditFilter, AuditRecord, EventFilter, EventRecord } from "../../../src/controller/events/records.ts";
import type { TerminalRequest } from "../../../src/controller/containers/records.ts";
import type { NodeTerminal } from "../../../src/controller/http/upgrade.ts";
import type { TriggerProgress, TriggerRequest } from "../../../src/controller/triggers/records.ts";

/** The end of a trigger in the fake; called with the request of the API. */
export type TriggerScript = (
  request: TriggerRequest,
  options: { readonly signal: AbortSignal; readonly onProgress?: (progress: TriggerProgress) => void },
) => Promise<unknown>;

const X = "A".repeat(43);

/** A node record with everything known; parts can be given. */
export function nodeRecord(change: Partial<NodeRecord> = {}): NodeRecord {
  const name = change.name ?? "edge-1";
  return {
    uid: randomUUID(),
    name,
    fqdn: `${name}.example.net`,
    domain: "example.net",
    org: "0f0e0d0c-0b0a-4908-8706-050403020100",
    type: "Node",
    state: "ACTIVE",
    lifecycleState: "production",
    cluster: undefined,
    tags: { site: "berlin" },
    keys: {
      auth: { kty: "OKP", crv: "Ed25519", x: X },
      overlay: { kty: "EC", crv: "P-256", x: X, y: X },
      wireguard: { kty: "OKP", crv: "X25519", x: X },
    },
    isOnline: true,
    lastIp: "192.0.2.7",
    lastConnect: 1_760_000_000_123,
    disconnectTime: 1_759_999_000,
    createdAt: 1_750_000_000,
    device: { vendor: "kvm", model: "kvm", mac: "52:54:00:00:00:01", wan: "ens3" },
    heartbeat: {
      seq: 4,
      at: 1_760_000_000_999,
      uptimeSeconds: 60,
      load: 0.5,
      memory: { totalBytes: 1, availableBytes: 1 },
      disk: { totalBytes: 1, freeBytes: 1, usedRatio: 0 },
      overlay: "UP",
      queue: { records: 0, dropped: 0 },
      receivedAt: 1_760_000_001_000,
    },
    config: { gateway: { enabled: true, host: "gw.example.net" } },
    reported: { memory: 2048, "node-core.version": "1.2.3", features: { exec: true } },
    applied: {},
    ...change,
  };
}

/** An event record; parts can be given. */
export function eventRecord(node: NodeRecord, change: Partial<EventRecord> = {}): EventRecord {
  return {
    uid: randomUUID(),
    eventType: "Node Connect",
    level: "INFO",
    message: "Node connected from IP address 192.0.2.7",
    timestamp: 1_760_000_000,
    receivedTime: 1_760_000_001,
    details: {},
    state: "UNKNOWN",
    subject: "Node",
    orgId: node.org,
    nodeId: node.uid,
    nodeName: node.name,
    domain: node.domain,
    fqdn: node.fqdn,
    origin: "control-plane",
    ...change,
  };
}

const LEVELS = ["INFO", "WARNING", "ERROR", "CRITICAL"];

/** A fleet in memory that stores its changes and their authors. */
export class FakeFleet implements Fleet {
  readonly records = new Map<string, NodeRecord>();
  readonly clusterRecords = new Map<string, ClusterRecord>();
  readonly eventRecords: EventRecord[] = [];
  readonly alertRecords: AlertRecord[] = [];
  readonly auditRecords: AuditRecord[] = [];
  /** Changes other than those of nodes. */
  readonly changes: string[] = [];
  readonly users: string[] = [];
  readonly triggered: { readonly uid: string; readonly request: TriggerRequest }[] = [];
  readonly filters: EventFilter[] = [];
  script: TriggerScript = ({ wait }) => Promise.resolve(wait ? { output: { message: "pong" } } : true);

  add(change: Partial<NodeRecord> = {}): NodeRecord {
    const record = nodeRecord(change);
    this.records.set(record.uid, record);
    return record;
  }

  nodes(): readonly NodeRecord[] {
    return [...this.records.values()];
  }

  node(uid: string): NodeRecord | undefined {
    return this.records.get(uid);
  }

  nodeByFqdn(fqdn: string): NodeRecord | undefined {
    return this.nodes().find((record) => record.fqdn === fqdn);
  }

  issueLicense(request: { name: string; type: NodeType; jkt?: string; user: string }): Promise<string> {
    const isTaken = this.nodes().some(({ name }) => name === request.name);
    if (isTaken) return Promise.reject(new InputError("name-taken", `${request.name} is taken`));
    this.users.push(request.user);
    return Promise.resolve(`header.${request.name}-${request.type}.signature`);
  }

  updateNode(uid: string, change: { state?: NodeState; cluster?: string | null }, user: string): NodeRecord {
    const { cluster, ...rest } = change;
    return this.#change(uid, { ...rest, ...(cluster === undefined ? {} : { cluster: cluster ?? undefined }) }, user);
  }

  deleteNode(uid: string, user: string): Promise<void> {
    this.users.push(user);
    this.records.delete(uid);
    return Promise.resolve();
  }

  setSection(
    uid: string,
    section: SectionName,
    body: JsonObject | undefined,
    user: string,
    confirm?: Omit<ConfirmRequest, "askedAt">,
    about?: string,
  ): NodeRecord {
    if (about !== undefined) this.changes.push(about);
    const { [section]: _, ...rest } = this.#node(uid).config;
    const asked = confirm === undefined ? undefined : { ...confirm, askedAt: 1 };
    const config = body === undefined ? rest : { ...rest, [section]: body };
    return this.#change(uid, { config, confirm: asked }, user);
  }

  setTag(uid: string, name: string, value: string | undefined, user: string): NodeRecord {
    return this.#change(uid, { tags: withTag(this.#node(uid).tags, name, value) }, user);
  }

  setLock(uid: string, lock: readonly string[] | "current" | undefined, user: string): NodeRecord {
    const lockedTo = lock === "current" ? ["192.0.2.7"] : lock;
    return this.#change(uid, { lockedTo }, user);
  }

  setLifecycleState(uid: string, lifecycleState: LifecycleState, user: string): NodeRecord {
    return this.#change(uid, { lifecycleState }, user);
  }

  clusters(): readonly ClusterRecord[] {
    return [...this.clusterRecords.values()];
  }

  cluster(fqdn: string): ClusterRecord | undefined {
    return this.clusterRecords.get(fqdn);
  }

  createCluster({ name }: { name: string }, user: string): ClusterRecord {
    const fqdn = `${name}.example.net`;
    if (this.clusterRecords.has(fqdn)) throw new InputError("name-taken", `${name} is taken`);
    this.users.push(user);
    const record = { fqdn, name, domain: "example.net", createdAt: 1_750_000_000, tags: {}, config: {}, members: [] };
    this.clusterRecords.set(fqdn, record);
    return record;
  }

  deleteCluster(fqdn: string, user: string): void {
    this.users.push(user);
    this.clusterRecords.delete(fqdn);
  }

  setClusterSection(fqdn: string, section: SectionName, body: JsonObject | undefined, user: string): ClusterRecord {
    const record = this.clusterRecords.get(fqdn);
    if (record === undefined) throw new InputError("not-found", `there is no cluster ${fqdn}`);
    this.users.push(user);
    const { [section]: _, ...rest } = record.config;
    const changed = { ...record, config: body === undefined ? rest : { ...rest, [section]: body } };
    this.clusterRecords.set(fqdn, changed);
    return changed;
  }

  setClusterTag(fqdn: string, name: string, value: string | undefined, user: string): ClusterRecord {
    const record = this.clusterRecords.get(fqdn);
    if (record === undefined) throw new InputError("not-found", `there is no cluster ${fqdn}`);
    this.users.push(user);
    const changed = { ...record, tags: withTag(record.tags, name, value) };
    this.clusterRecords.set(fqdn, changed);
    return changed;
  }

  runTrigger(
    uid: string,
    request: TriggerRequest,
    options: { readonly signal: AbortSignal; readonly onProgress?: (progress: TriggerProgress) => void },
  ): Promise<unknown> {
    if (!this.#node(uid).isOnline) return Promise.reject(new SessionError("offline", "the node has no session"));
    this.triggered.push({ uid, request });
    return this.script(request, options);
  }

  terminal: NodeTerminal | undefined;
  readonly terminals: { readonly uid: string; readonly request: TerminalRequest }[] = [];

  openTerminal(uid: string, request: TerminalRequest): Promise<NodeTerminal> {
    this.terminals.push({ uid, request });
    if (this.terminal !== undefined) return Promise.resolve(this.terminal);
    return Promise.reject(new SessionError("not-found", `there is no container ${request.container}`));
  }

  events(filter: EventFilter): { readonly total: number; readonly items: readonly EventRecord[] } {
    this.filters.push(filter);
    const { sort } = filter;
    const found = this.eventRecords.filter(
      (event) =>
        (filter.nodeIds?.includes(event.nodeId) ?? true) &&
        (filter.eventTypes?.includes(event.eventType) ?? true) &&
        (filter.levels?.includes(event.level) ?? true) &&
        (filter.subjects?.includes(event.subject) ?? true) &&
        event.timestamp >= (filter.from ?? 0) &&
        event.timestamp <= (filter.to ?? Infinity) &&
        event.message.includes(filter.text ?? ""),
    );
    const rank = (event: EventRecord): number => (sort.by === "level" ? LEVELS.indexOf(event.level) : event.timestamp);
    found.sort((a, b) => (sort.order === "asc" ? rank(a) - rank(b) : rank(b) - rank(a)));
    return { total: found.length, items: found.slice(filter.offset, filter.offset + filter.limit) };
  }

  event(nodeId: string, eventUid: string): EventRecord | undefined {
    return this.eventRecords.find((event) => event.nodeId === nodeId && event.uid === eventUid);
  }

  alerts(nodeId?: string): readonly AlertRecord[] {
    return this.alertRecords.filter((alert) => nodeId === undefined || alert.nodeId === nodeId);
  }

  dismissAlert(nodeId: string, eventType: string, user: string): boolean {
    this.users.push(user);
    const at = this.alertRecords.findIndex((alert) => alert.nodeId === nodeId && alert.eventType === eventType);
    if (at !== -1) this.alertRecords.splice(at, 1);
    return at !== -1;
  }

  audits({ nodeIds, from = 0, to = Infinity, limit, offset }: AuditFilter) {
    const found = this.auditRecords.filter(
      ({ nodeId, timestamp }) => (nodeIds?.includes(nodeId) ?? true) && timestamp >= from && timestamp <= to,
    );
    return { total: found.length, items: found.slice(offset, offset + limit) };
  }

  recordChange<T>(user: string, message: string, work: () => T): T {
    const done = work();
    this.changes.push(`${user}: ${message}`);
    return done;
  }

  recordNodeChange<T>(uid: string, user: string, message: string, work: () => T): T {
    this.#node(uid);
    return this.recordChange(user, message, work);
  }

  metrics(): readonly [] {
    return [];
  }

  #node(uid: string): NodeRecord {
    const record = this.records.get(uid);
    if (record === undefined) throw new InputError("not-found", `there is no node ${uid}`);
    return record;
  }

  #change(uid: string, change: Partial<NodeRecord>, user: string): NodeRecord {
    this.users.push(user);
    const record = { ...this.#node(uid), ...change };
    this.records.set(uid, record);
    return record;
  }
}

function withTag(tags: Readonly<Record<string, string>>, name: string, value: string | undefined) {
  const { [name]: _, ...rest } = tags;
  return value === undefined ? rest : { ...rest, [name]: value };
}
