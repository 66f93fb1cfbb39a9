import { normaliseConnectors } from "../../protocol/sections/connectors/connectors.ts";
import { normaliseGateway, type GatewayServer } from "../../protocol/sections/gateway/gateway.ts";
import type { NodeState, NodeType } from "../../protocol/values/values.ts";

/** What of a stored node decides who must know whom; `gateway` and `connectors` are its sections as they are stored. */
export interface MeshRecord {
  readonly uid: string;
  readonly name: string;
  readonly fqdn: string;
  readonly domain: string;
  readonly type: NodeType;
  readonly state: NodeState;
  readonly cluster: string | undefined;
  /** RFC 7638 thumbprint of its overlay key. */
  readonly key: string;
  readonly gateway: unknown;
  readonly connectors: unknown;
}

/** What a connector leads to: a service by its name, or `IPv4:port`. */
export interface Want {
  readonly service: string;
  readonly protocol: "tcp" | "udp";
}

/** A node as the others see it: what it is called, where it is dialled, whom it dials and what it wants of them. */
export interface MeshNode {
  readonly uid: string;
  readonly name: string;
  readonly fqdn: string;
  readonly domain: string;
  readonly type: NodeType;
  readonly key: string;
  readonly isActive: boolean;
  /** What a section may call it. */
  readonly names: readonly string[];
  /** Names of its cluster; empty without one. */
  readonly clusterNames: readonly string[];
  /** The names of the node and of its cluster, where every member is meant. */
  readonly namesWithCluster: readonly string[];
  readonly server?: GatewayServer & { readonly requestsHops: boolean; readonly clients: ReadonlySet<string> };
  readonly connectToPublic: boolean;
  /** By what its connectors call the other node, in lower case. */
  readonly wants: ReadonlyMap<string, readonly Want[]>;
  /** Whom its gateway must be able to tell to relay as its routes and pairs say. */
  readonly mentions: ReadonlySet<string>;
}

/** Brings what is stored of a node to what matters to others; whatever cannot be used of it is left out. Pure. */
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
