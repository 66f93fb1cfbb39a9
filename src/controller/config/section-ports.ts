import { HEARTBEAT_PORT } from "../../protocol/sections/cluster/cluster.ts";
import { toNumber } from "../../protocol/sections/common/forms.ts";
import { normaliseConnectors } from "../../protocol/sections/connectors/connectors.ts";
import { normaliseGateway } from "../../protocol/sections/gateway/gateway.ts";
import type { SectionName } from "../../protocol/sections/sections.ts";
import { SNMP_PORT } from "../../protocol/sections/snmp/snmp.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import { Violations } from "../http/problem.ts";
import type { StoredNode } from "../nodes/store.ts";

/** A port of a node, and the section that listens on it. */
interface Listener {
  readonly port: number;
  readonly transport: "tcp" | "udp";
  readonly owner: string;
}

/** Rejects endpoints for remote access, which listen on every address, on a port that another section listens on. @throws {Violations} */
export function checkPorts(section: SectionName, body: JsonObject, node: Pick<StoredNode, "config" | "type">): void {
  if (section !== "apigw") return;
  const taken = listeners(node);
  const endpoints = [
    { flag: "enabled", field: "port", transport: "tcp" },
    { flag: "wireguardEnabled", field: "wireguardPort", transport: "udp" },
  ] as const;
  const lines = endpoints.flatMap(({ flag, field, transport }) => {
    const { [flag]: isOn, [field]: port } = body;
    const other = isOn === true ? taken.find((one) => one.transport === transport && one.port === port) : undefined;
    return other === undefined
      ? []
      : [`apigw.${field}: ${transport} ${other.port} is a port of ${other.owner} already`];
  });
  if (lines.length > 0) throw new Violations(lines);
}

function listeners({ config, type }: Pick<StoredNode, "config" | "type">): readonly Listener[] {
  const { cluster, snmp } = config;
  const { server } = normaliseGateway(config.gateway, { nodeType: type }).gateway;
  const connectors = normaliseConnectors(config.connectors, { nodeType: type }).items.filter(({ enabled }) => enabled);
  return [
    ...(server === undefined ? [] : [{ port: server.port, transport: "tcp" as const, owner: "gateway" }]),
    ...(server?.udpEnabled === true ? [{ port: server.udpPort, transport: "udp" as const, owner: "gateway" }] : []),
    ...(cluster?.["enabled"] === true
      ? [{ port: portOf(cluster, HEARTBEAT_PORT), transport: "tcp" as const, owner: "cluster" }]
      : []),
    ...(snmp?.["enabled"] === true
      ? [{ port: portOf(snmp, SNMP_PORT), transport: "udp" as const, owner: "snmp" }]
      : []),
    ...connectors.map(({ port, transport, path }) => ({ port, transport, owner: path })),
  ];
}

/** Returns the port of a section, or its default; 0 is not set. */
function portOf(section: JsonObject, byDefault: number): number {
  const port = toNumber(section["port"]);
  return port === undefined || port === 0 ? byDefault : port;
}
