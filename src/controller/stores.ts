import { systemClock, type Clock } from "../host/clock.ts";
import { accessStore, type AccessStore } from "./access/store.ts";
import { agentTokenStore, type AgentTokenStore } from "./access/agent-tokens/store.ts";
import { awaitedStore, type AwaitedStore } from "./channel/awaited-store.ts";
import { meshStore, type MeshStore } from "./channel/documents/mesh-store.ts";
import { documentStore, type DocumentStore } from "./channel/documents/store.ts";
import { certificateStore, type CertificateStore } from "./certificates/store.ts";
import { clusterStore, type ClusterStore } from "./clusters/store.ts";
import { containerOutputStore, type ContainerOutputStore } from "./containers/output-store.ts";
import { alertStore, type AlertStore } from "./events/alert-store.ts";
import { orgAuditStore, type OrgAuditStore } from "./events/org-audit-store.ts";
import { auditStore, type AuditStore } from "./events/audit-store.ts";
import { eventStore, type EventStore } from "./events/store.ts";
import { machineVolumeStore, type MachineVolumeStore } from "./images/volume-store.ts";
import { imageStore, type ImageStore } from "./images/store.ts";
import { licenseStore, type LicenseStore } from "./nodes/license-store.ts";
import { nodeStore, NodeTexts, type NodeStore } from "./nodes/store.ts";
import { tagStore, type TagStore } from "./nodes/tag-store.ts";
import { tombstoneStore, type TombstoneStore } from "./nodes/tombstone-store.ts";
import { flowStore, type FlowStore, type UidsOf } from "./stats/flow-store.ts";
import { gatewayDetailsStore, type GatewayDetailsStore } from "./stats/gateway-details-store.ts";
import { telemetryStore, type TelemetryStore } from "./stats/telemetry-store.ts";
import type { Executor, StoreDatabase } from "./store/database.ts";
import { storable } from "./store/columns.ts";
import { metaStore, type MetaStore } from "./store/meta.ts";
import type { Transact } from "./store/transact.ts";
import { Uncounted } from "./store/trimmer.ts";
import { triggerStore, type TriggerStore } from "./triggers/store.ts";

/** Stores of the controller, one per entity: of the database, or of an open transaction. */
export interface Stores {
  readonly meta: MetaStore;
  readonly licenses: LicenseStore;
  readonly nodes: NodeStore;
  readonly mesh: MeshStore;
  readonly tombstones: TombstoneStore;
  readonly resourceTags: TagStore;
  readonly clusters: ClusterStore;
  readonly documents: DocumentStore;
  readonly events: EventStore;
  readonly alerts: AlertStore;
  readonly audits: AuditStore;
  readonly orgAudits: OrgAuditStore;
  readonly awaited: AwaitedStore;
  readonly agentTokens: AgentTokenStore;
  readonly triggers: TriggerStore;
  readonly telemetry: TelemetryStore;
  readonly flows: FlowStore;
  readonly gatewayDetails: GatewayDetailsStore;
  readonly containerOutput: ContainerOutputStore;
  readonly images: ImageStore;
  readonly machineVolumes: MachineVolumeStore;
  readonly certificates: CertificateStore;
  readonly access: AccessStore;
}

/** The controller's store. Single statements are transactions of their own. */
export interface Store extends Stores, Transact<Stores> {
  /** Drops records beyond their retention period. */
  prune(nowSeconds: number): Promise<void>;
  /** @throws {HostError} `store-unavailable` while the database cannot be used */
  check(): Promise<void>;
  close(): Promise<void>;
}

/** Returns the store over an open database with all migrations; closing it closes the database. */
export function storeIn(database: StoreDatabase, clock: Pick<Clock, "now"> = systemClock()): Store {
  const { db, transactions } = database;
  const [uncounted, texts] = [new Uncounted(), new NodeTexts()];
  const parts = storesOver(db, uncounted, texts, clock);
  return {
    ...parts,
    transact: (work) => transactions.run((tx) => work(storesOver(tx, uncounted, texts, clock))),
    async prune(nowSeconds) {
      const { licenses, events, alerts, audits, triggers, telemetry, flows, gatewayDetails, containerOutput } = parts;
      const kept = [licenses, events, alerts, audits, triggers, telemetry, flows, gatewayDetails, containerOutput];
      for (const part of [...kept, parts.agentTokens, parts.orgAudits]) await part.prune(nowSeconds);
    },
    async check() {
      await parts.meta.get("org");
    },
    close: () => database.close(),
  };
}

/** Returns the stores of an executor, each made when it is first used: most transactions use few of them. */
function storesOver(db: Executor, uncounted: Uncounted, texts: NodeTexts, clock: Pick<Clock, "now">): Stores {
  const made: { -readonly [Name in keyof Stores]?: Stores[Name] } = {};
  const uidsOf: UidsOf = async (names) => {
    const found = await stores.nodes.called(names.map(storable));
    return new Map(found.flatMap(({ uid, name, fqdn }) => [[name, uid] as const, [fqdn, uid] as const]));
  };
  const stores: Stores = {
    get nodes() {
      return (made.nodes ??= nodeStore(db, texts));
    },
    get meta() {
      return (made.meta ??= metaStore(db));
    },
    get licenses() {
      return (made.licenses ??= licenseStore(db));
    },
    get mesh() {
      return (made.mesh ??= meshStore(db));
    },
    get tombstones() {
      return (made.tombstones ??= tombstoneStore(db));
    },
    get resourceTags() {
      return (made.resourceTags ??= tagStore(db));
    },
    get clusters() {
      return (made.clusters ??= clusterStore(db));
    },
    get documents() {
      return (made.documents ??= documentStore(db));
    },
    get events() {
      return (made.events ??= eventStore(db, uncounted));
    },
    get alerts() {
      return (made.alerts ??= alertStore(db));
    },
    get audits() {
      return (made.audits ??= auditStore(db, uncounted));
    },
    get awaited() {
      return (made.awaited ??= awaitedStore(db));
    },
    get agentTokens() {
      return (made.agentTokens ??= agentTokenStore(db));
    },
    get triggers() {
      return (made.triggers ??= triggerStore(db));
    },
    get telemetry() {
      return (made.telemetry ??= telemetryStore(db));
    },
    get flows() {
      return (made.flows ??= flowStore(db, uncounted, uidsOf));
    },
    get gatewayDetails() {
      return (made.gatewayDetails ??= gatewayDetailsStore(db, uncounted, uidsOf));
    },
    get containerOutput() {
      return (made.containerOutput ??= containerOutputStore(db, uncounted));
    },
    get images() {
      return (made.images ??= imageStore(db));
    },
    get orgAudits() {
      return (made.orgAudits ??= orgAuditStore(db));
    },
    get certificates() {
      return (made.certificates ??= certificateStore(db));
    },
    get machineVolumes() {
      return (made.machineVolumes ??= machineVolumeStore(db));
    },
    get access() {
      return (made.access ??= accessStore(db, clock));
    },
  };
  return stores;
}
