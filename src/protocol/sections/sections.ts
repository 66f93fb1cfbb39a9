import { z } from "zod";
import { AlertSection } from "./alert/alert.ts";
import { ApigwSection } from "./apigw/apigw.ts";
import { ClusterSection } from "./cluster/cluster.ts";
import { ConnectorsSection } from "./connectors/connectors.ts";
import { ExecSection } from "./exec/exec.ts";
import { GatewaySection } from "./gateway/gateway.ts";
import { ClusterNetworkSection, NetworkSection } from "./network/network.ts";
import { ServicesSection } from "./services/services.ts";
import { SnmpSection } from "./snmp/snmp.ts";
import type { JsonObject, NodeType } from "../values/values.ts";

/** The sections of desired configuration, by the name they have below `config`. */
export const sectionNames = [
  "connectors",
  "services",
  "gateway",
  "network",
  "_bgp",
  "cluster",
  "alert",
  "snmp",
  "apigw",
  "vpn",
  "exec",
  "dns",
  "core",
  "jvm",
] as const;
export const SectionName = z.enum(sectionNames);
export type SectionName = z.infer<typeof SectionName>;

/** Whether agents, and whether clusters, support each section; appliances support all. */
export const sectionOwners: Readonly<Record<SectionName, { readonly agents: boolean; readonly clusters: boolean }>> = {
  connectors: { agents: true, clusters: true },
  services: { agents: true, clusters: true },
  gateway: { agents: true, clusters: false },
  network: { agents: false, clusters: true },
  _bgp: { agents: false, clusters: false },
  cluster: { agents: false, clusters: false },
  alert: { agents: false, clusters: false },
  snmp: { agents: true, clusters: false },
  apigw: { agents: false, clusters: true },
  vpn: { agents: true, clusters: true },
  exec: { agents: false, clusters: true },
  dns: { agents: false, clusters: false },
  core: { agents: true, clusters: true },
  jvm: { agents: true, clusters: false },
};

/** Reports whether a node of this type supports the section. */
export function sectionSuits(section: SectionName, type: NodeType): boolean {
  return type === "Node" || sectionOwners[section].agents;
}

/** The sections that nodes of this version apply; any other is stored and delivered only. */
export const appliedSections: ReadonlySet<SectionName> = new Set([
  "connectors",
  "services",
  "gateway",
  "network",
  "exec",
]);

/** Bounds on the stored body of a section. */
export const SECTION_MAX_BYTES = 4 * 1024 * 1024;
export const SECTION_MAX_DEPTH = 24;

/** The schema of each section that has one; the body of any other is a JSON object within the bounds. */
export const sectionSchemas: Readonly<Partial<Record<SectionName, z.ZodType<JsonObject>>>> = {
  connectors: ConnectorsSection,
  services: ServicesSection,
  gateway: GatewaySection,
  network: NetworkSection,
  cluster: ClusterSection,
  alert: AlertSection,
  snmp: SnmpSection,
  apigw: ApigwSection,
  exec: ExecSection,
};

/** The schema of each section of a cluster that is not the node's. */
export const clusterSectionSchemas: Readonly<Partial<Record<SectionName, z.ZodType<JsonObject>>>> = {
  network: ClusterNetworkSection,
};
