import { randomUUID } from "node:crypto";
import { pino, type Logger } from "pino";
import { KeyedQueue } from "../../../src/lib/async/keyed-queue.ts";
import { ClusterService } from "../../../src/controller/clusters/service.ts";
import type { ClusterRecord } from "../../../src/controller/clusters/records.ts";
import { ConfigService } from "../../../src/controller/config/service.ts";
import { Terminals } from "../../../src/controller/containers/terminals.ts";
import type { TerminalRequest } from "../../../src/controller/containers/records.ts";
import type { Services } from "../../../src/controller/controller.ts";
import { Alerts } from "../../../src/controller/events/alerts.ts";
import { eventLog } from "../../../src/controller/events/service.ts";
import type { EventRecord } from "../../../src/controller/events/records.ts";
import { RequestScope } from "../../../src/controller/http/sources.ts";
import type { Changed } from "../../../src/controller/nodes/changes.ts";
import { NEW_IDENTITY } from "../../../src/controller/nodes/identity.ts";
import { Licenses } from "../../../src/controller/nodes/licenses.ts";
import { releaseIdentity } from "../../../src/controller/nodes/held-identity.ts";
import { ownKeys } from "../../../src/controller/nodes/client-keys.ts";
import type { NodeRecord } from "../../../src/controller/nodes/records.ts";
import { NodeService } from "../../../src/controller/nodes/service.ts";
import type { Stores } from "../../../src/controller/stores.ts";
import type { TriggerRequest } from "../../../src/controller/triggers/records.ts";
import { TriggerService, type TriggerOptions } from "../../../src/controller/triggers/service.ts";
import { SessionError } from "../../../src/errors.ts";
import type { Clock } from "../../../src/host/clock.ts";
import type { Signer } from "../../../src/protocol/channel/jws.ts";
import { openTestStore, type TestStore } from "./test-store.ts";

export const ORG = "0f0e0d0c-0b0a-4908-8706-050403020100";
export const DOMAIN = "example.net";

/** A node's answer to a trigger; called with the request of the API. */
export type TriggerScript = (request: TriggerRequest, options: TriggerOptions) => Promise<unknown>;

const X = "A".repeat(43);

type NodeTables = {
  readonly nodes: {
    readonly uid: string;
    readonly last_ip: string | null;
    readonly last_connect: number | null;
    readonly disconnect_time: number | null;
    readonly device: string | null;
    readonly heartbeat: string | null;
  };
};

/** A node record with everything known; parts can be given. */
export function nodeRecord(change: Partial<NodeRecord> = {}): NodeRecord {
  const name = change.name ?? "edge-1";
  return {
    uid: randomUUID(),
    name,
    fqdn: `${name}.${DOMAIN}`,
    domain: DOMAIN,
    org: ORG,
    type: "Node",
    state: "ACTIVE",
    lifecycleState: "production",
    cluster: undefined,
    tags: { site: "berlin" },
    keys: ownKeys({
      auth: { kty: "OKP", crv: "Ed25519", x: X },
      overlay: { kty: "EC", crv: "P-256", x: X, y: X },
      wireguard: { kty: "OKP", crv: "X25519", x: X },
    }),
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
    desired: {},
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

/** A change that was recorded by a user. */
interface RecordedChange {
  readonly user: string;
  readonly message: string;
}

/** The services over a database in memory, with nodes whose sessions the test plays. */
export class FleetStage {
  readonly store: TestStore;
  readonly services: Services;
  readonly requests = new RequestScope();
  readonly triggered: { readonly uid: string; readonly request: TriggerRequest }[] = [];
  readonly terminals: { readonly uid: string; readonly request: Omit<TerminalRequest, "user"> }[] = [];
  /** UIDs that were told that they are deleted. */
  readonly dismissed: string[] = [];
  readonly #online = new Map<string, string>();
  #changesSeen = 0;
  script: TriggerScript = ({ wait }) => Promise.resolve(wait ? { output: { message: "pong" } } : true);

  static async open(
    clock: Clock,
    origin: string,
    signing: Signer,
    log: Logger = pino({ level: "silent" }),
  ): Promise<FleetStage> {
    return new FleetStage(await openTestStore(clock), clock, origin, signing, log);
  }

  private constructor(store: TestStore, clock: Clock, origin: string, signing: Signer, log: Logger) {
    this.store = store;
    const identity = { org: ORG, domain: DOMAIN };
    const events = eventLog(store, clock, identity, this.requests);
    const changes = {
      apply: async <T>(change: (tx: Stores) => Promise<Changed<T>>) => (await store.transact(change)).result,
    };
    const sessions = {
      get: (uid: string) => {
        const address = this.#online.get(uid);
        return address === undefined ? undefined : { address };
      },
      heartbeat: () => undefined,
    };
    const keys = { rootThumbprint: X, newest: { spki: [] }, signing };
    const sources = { areHidden: false, isFrontEnd: () => false };
    const dismiss = (uid: string): Promise<void> => {
      this.dismissed.push(uid);
      return Promise.resolve();
    };
    const nodes = new NodeService({
      store,
      events,
      changes,
      sessions,
      dismiss,
      sources,
      turns: new KeyedQueue(),
      locations: undefined,
      clock,
    });
    const clusters = new ClusterService({ store, events, changes, clock, ...identity });
    this.services = {
      nodes,
      clusters,
      events,
      licenses: new Licenses({ store, events, keys, clock, origin, ...identity }),
      config: new ConfigService({ nodes, clusters, clock }),
      triggers: new TriggerService({
        store,
        nodes,
        events,
        sessions,
        expect: () => Promise.resolve(),
        send: (uid, request, options) => {
          if (!this.#online.has(uid)) return Promise.reject(new SessionError("offline", "the node has no session"));
          this.triggered.push({ uid, request });
          return this.script(request, options);
        },
      }),
      terminals: new Terminals({
        store,
        nodes,
        events,
        log,
        streams: {
          open: (uid, { params }) => {
            this.terminals.push({ uid, request: params });
            return Promise.reject(new SessionError("not-found", `there is no container ${params.container}`));
          },
        },
      }),
      alerts: new Alerts({
        store,
        events,
        clock,
        identities: { release: releaseIdentity, resume: () => Promise.resolve() },
      }),
      telemetry: store.telemetry,
    };
  }

  /** Adds a node; parts of its record can be given. */
  async add(change: Partial<NodeRecord> = {}): Promise<NodeRecord> {
    const { store } = this;
    const record = nodeRecord(change);
    const { uid, name, fqdn, domain, org, type, keys, createdAt, device, reported, lastIp, isOnline } = record;
    const thumbprints = { auth: `${uid} auth`, overlay: `${uid} overlay`, wireguard: `${uid} wireguard` };
    const made = { vendor: "", model: "", mac: "", wan: "" };
    const trail = NEW_IDENTITY;
    await store.nodes.add({
      uid,
      name,
      fqdn,
      domain,
      org,
      type,
      keys: keys.jwk,
      thumbprints,
      createdAt,
      trail,
      device: device ?? made,
    });
    const { state, lifecycleState, cluster, tags, config, confirm, lockedTo, unauthorizedIp } = record;
    await store.nodes.change(uid, { state, lifecycleState, cluster, tags, config, confirm, lockedTo, unauthorizedIp });
    const { lastConnect, disconnectTime, heartbeat } = record;
    await store.database.db
      .$extendTables<NodeTables>()
      .updateTable("nodes")
      .set({
        last_ip: lastIp ?? null,
        last_connect: lastConnect ?? null,
        disconnect_time: disconnectTime ?? null,
        device: text(device),
        heartbeat: text(heartbeat),
      })
      .where("uid", "=", uid)
      .execute();
    await store.nodes.setReported(uid, { version: 1, reported });
    for (const report of Object.values(record.applied)) await store.documents.setApplied(uid, report);
    this.setOnline(uid, isOnline, lastIp);
    return this.#found(uid);
  }

  /** Opens or closes the session of a node. */
  setOnline(uid: string, isOnline: boolean, address = "192.0.2.7"): void {
    if (isOnline) this.#online.set(uid, address);
    else this.#online.delete(uid);
  }

  node(uid: string): Promise<NodeRecord | undefined> {
    return this.services.nodes.get(uid);
  }

  cluster(fqdn: string): Promise<ClusterRecord | undefined> {
    return this.services.clusters.get(fqdn);
  }

  /** Changes that were recorded since `forget`, oldest first. */
  async recorded(): Promise<readonly RecordedChange[]> {
    return (await this.#all()).slice(this.#changesSeen);
  }

  /** The same, as lines of text. */
  async changes(): Promise<readonly string[]> {
    return (await this.recorded()).map(({ user, message }) => `${user}: ${message}`);
  }

  /** Their users. */
  async users(): Promise<readonly string[]> {
    return (await this.recorded()).map(({ user }) => user);
  }

  /** Leaves the changes so far out of `recorded`. */
  async forget(): Promise<void> {
    this.#changesSeen = (await this.#all()).length;
  }

  async #all(): Promise<readonly RecordedChange[]> {
    const filter = { eventTypes: ["Configuration Change", "Node Delete"], limit: 1000, offset: 0 };
    const { items } = await this.store.events.find({ ...filter, sort: { by: "timestamp", order: "asc" } });
    return items.map(({ details, message }) => ({ user: String(details["user"]), message }));
  }

  async #found(uid: string): Promise<NodeRecord> {
    const record = await this.node(uid);
    if (record === undefined) throw new Error(`no node ${uid}`);
    return record;
  }
}

const text = (value: unknown): string | null => (value === undefined ? null : JSON.stringify(value));
