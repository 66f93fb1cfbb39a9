import { normaliseConnectors } from "../../../protocol/sections/connectors/connectors.ts";
import { normaliseGateway, type GatewayServer } from "../../../protocol/sections/gateway/gateway.ts";
import type { NodeState, NodeType } from "../../../protocol/values/values.ts";

/** Fields of a stored node that decide which nodes share data; `gateway` and `connectors` are sections as stored. */
export interface MeshRecord {
  readonly uid: string;
  readonly name: string;
  readonly fqdn: string;
  readonly domain: string;
  readonly type: NodeType;
  readonly state: NodeState;
  readonly cluster: string | undefined;
  /** RFC 7638 thumbprint of the overlay key. */
  readonly key: string;
  readonly gateway: unknown;
  readonly connectors: unknown;
}

/** Target of a connector: a service name, or `IPv4:port`. */
export interface Want {
  readonly service: string;
  readonly protocol: "tcp" | "udp";
}

/** A node from the view of its peers: its names, its gateway address, the gateways it dials and the services it wants. */
export interface MeshNode {
  readonly uid: string;
  readonly name: string;
  readonly fqdn: string;
  readonly domain: string;
  readonly type: NodeType;
  readonly key: string;
  readonly isActive: boolean;
  /** Names by which sections refer to it. */
  readonly names: readonly string[];
  /** Names of its cluster; empty without one. */
  readonly clusterNames: readonly string[];
  /** Names of the node and of its cluster. */
  readonly namesWithCluster: readonly string[];
  readonly server?: GatewayServer & { readonly requestsHops: boolean; readonly clients: ReadonlySet<string> };
  readonly connectToPublic: boolean;
  /** Wanted services by the name of the other node in lower case. */
  readonly wants: ReadonlyMap<string, readonly Want[]>;
  /** Nodes that the routes and ACLs of its gateway refer to. */
  readonly mentions: ReadonlySet<string>;
}

/** Extracts from a stored node what its peers need; invalid settings are ignored. Pure. */
export function meshNode(record: MeshRecord): MeshNode {
  const { uid, name, fqdn, domain, type, key, cluster } = record;
  const { gateway } = normaliseGateway(record.gateway, { nodeType: type });
  const { server, clients, hops, routes, acls = [] } = gateway;
  const names = [uid, name, fqdn];
  const clusterNames = cluster === undefined ? [] : [cluster, cluster.replace(`.${domain}`, "")];
  const enabled = clients.filter((client) => client.enabled).map((client) => client.name);
  const mentioned = [...routes.map(({ to }) => to), ...acls.flatMap(({ source, dest }) => [source, dest])];
  return {
    uid,
    name,
    fqdn,
    domain,
    type,
    key,
    isActive: record.state === "ACTIVE",
    names,
    clusterNames,
    namesWithCluster: [...names, ...clusterNames],
    ...(server === undefined
      ? {}
      : { server: { ...server, requestsHops: hops.requestsHops, clients: new Set(enabled) } }),
    connectToPublic: gateway.connectToPublic,
    wants: wantsOf(record.connectors, type),
    mentions: new Set(server === undefined ? [] : mentioned),
  };
}

function wantsOf(connectors: unknown, nodeType: NodeType): MeshNode["wants"] {
  const wants = new Map<string, Map<string, Want>>();
  for (const { enabled, node: other, target, transport } of normaliseConnectors(connectors, { nodeType }).items) {
    if (!enabled || other === "local") continue;
    const service = "service" in target ? target.service : `${target.host}:${target.port}`;
    const ofOther = wants.get(other) ?? new Map<string, Want>();
    ofOther.set(`${service} ${transport}`, { service, protocol: transport });
    wants.set(other, ofOther);
  }
  return new Map([...wants].map(([other, found]) => [other, [...found.values()]]));
}
