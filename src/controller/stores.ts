import type { Atomic } from "./store/atomic.ts";
import { AccessStore } from "./access/store.ts";
import { atomic, openDatabase } from "../host/files/database.ts";
import type { DatabaseSync } from "node:sqlite";
import { alertStore, type AlertStore } from "./events/alert-store.ts";
import { auditStore, type AuditStore } from "./events/audit-store.ts";
import { agentTokenStore, type AgentTokenStore } from "./access/agent-tokens/store.ts";
import { awaitedStore, type AwaitedStore } from "./channel/awaited-store.ts";
import { clusterStore, type ClusterStore } from "./clusters/store.ts";
import { documentStore, type DocumentStore } from "./channel/documents/store.ts";
import { eventStore, type EventStore } from "./events/store.ts";
import { flowStore, type FlowStore } from "./stats/flow-store.ts";
import { containerOutputStore, type ContainerOutputStore } from "./containers/output-store.ts";
import { gatewayDetailsStore, type GatewayDetailsStore } from "./stats/gateway-details-store.ts";
import { imageStore, type ImageStore } from "./images/store.ts";
import { licenseStore, type LicenseStore } from "./nodes/license-store.ts";
import { meshStore, type MeshStore } from "./channel/documents/mesh-store.ts";
import { metaStore, type MetaStore } from "./store/meta.ts";
import { migrations } from "./store/migrations.ts";
import { nodeStore, type NodeStore } from "./nodes/store.ts";
import { telemetryStore, type TelemetryStore } from "./stats/telemetry-store.ts";
import { tombstoneStore, type TombstoneStore } from "./nodes/tombstone-store.ts";
import { triggerStore, type TriggerStore } from "./triggers/store.ts";

/** Persistent state of the controller, one part per entity, in a database file locked by this process. */
export interface Stores extends Atomic {
  readonly sql: DatabaseSync;
  readonly isPersistent: boolean;
  readonly meta: MetaStore;
  readonly licenses: LicenseStore;
  readonly nodes: NodeStore;
  readonly mesh: MeshStore;
  readonly tombstones: TombstoneStore;
  readonly clusters: ClusterStore;
  readonly documents: DocumentStore;
  readonly events: EventStore;
  readonly alerts: AlertStore;
  readonly audits: AuditStore;
  readonly awaited: AwaitedStore;
  readonly agentTokens: AgentTokenStore;
  readonly triggers: TriggerStore;
  readonly telemetry: TelemetryStore;
  readonly flows: FlowStore;
  readonly gatewayDetails: GatewayDetailsStore;
  readonly containerOutput: ContainerOutputStore;
  readonly images: ImageStore;
  readonly access: AccessStore;
  /** Drops records beyond their retention period. */
  prune(nowSeconds: number): void;
  close(): void;
}

/**
 * @param isExpected whether this controller has run before, so that an empty file counts as damaged
 * @throws {HostError} `state-locked` if another controller uses the file, `state-damaged` if it is damaged
 */
export function openStores(path: string, isExpected = false): Stores {
  // A damaged file is not replaced: an empty database would reject all nodes. Whether to restore a backup is the operator's decision.
  const { sql, isPersistent } = openDatabase(path, { migrations, exclusive: true, onDamage: "refuse", isExpected });
  return storesOver(sql, isPersistent);
}

/** Returns the stores over an open database with all migrations. */
export function storesOver(sql: DatabaseSync, isPersistent: boolean): Stores {
  const nodes = nodeStore(sql);
  const uidOf = (name: string): string | undefined => nodes.uidOf(name);
  const parts = {
    meta: metaStore(sql),
    licenses: licenseStore(sql),
    nodes,
    mesh: meshStore(sql),
    tombstones: tombstoneStore(sql),
    clusters: clusterStore(sql),
    documents: documentStore(sql),
    events: eventStore(sql),
    alerts: alertStore(sql),
    audits: auditStore(sql),
    awaited: awaitedStore(sql),
    agentTokens: agentTokenStore(sql),
    triggers: triggerStore(sql),
    telemetry: telemetryStore(sql),
    flows: flowStore(sql, uidOf),
    gatewayDetails: gatewayDetailsStore(sql, uidOf),
    containerOutput: containerOutputStore(sql),
    images: imageStore(sql),
    access: new AccessStore(sql),
  };
  let failures = 0;
  const run = <T>(work: () => T): T => {
    try {
      return atomic(sql, work);
    } catch (error) {
      failures += 1;
      throw error;
    }
  };
  return {
    sql,
    isPersistent,
    ...parts,
    atomic: run,
    failures: () => failures,
    prune: (nowSeconds) =>
      run(() => {
        const { licenses, events, alerts, audits, triggers, telemetry, flows, gatewayDetails, containerOutput } = parts;
        const kept = [licenses, events, alerts, audits, triggers, telemetry, flows, gatewayDetails, containerOutput];
        for (const part of [...kept, parts.agentTokens]) part.prune(nowSeconds);
      }),
    close: () => sql.close(),
  };
}
