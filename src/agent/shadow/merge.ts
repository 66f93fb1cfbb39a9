import type { Config } from "../../protocol/documents/documents.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import type { Issue } from "../../protocol/documents/reconcile.ts";
import { asObject, listOf, scalarOf, textOf } from "../../lib/formats/json-shape.ts";
import type { Effective, Findings } from "./findings.ts";
import { mergeNetwork } from "./merge-network.ts";

/** Merges the configuration of a node with that of its cluster, which overrides the node's items for the same thing. Pure. */
export function effective(node: Config, cluster: Config | undefined): Effective {
  if (cluster === undefined) return { config: node, shadowed: [], errors: [] };
  const findings: Findings = { shadowed: [], errors: [] };
  const config: Config = { ...node };
  for (const [name, theirs] of Object.entries(cluster)) {
    const section = name as keyof Config;
    if (theirs === undefined) continue;
    const ours = node[section];
    switch (section) {
      case "connectors":
      case "services":
        config[section] = mergeItems(section, ours, theirs, findings);
        break;
      case "network":
        config.network = mergeNetwork(ours ?? {}, theirs, findings);
        break;
      case "vpn":
        config.vpn = mergeVpn(ours, theirs, findings);
        break;
      case "core":
        config.core = { ...ours, ...theirs };
        break;
      case "exec":
      case "apigw":
        if (ours !== undefined) findings.shadowed.push({ path: section, by: section });
        config[section] = theirs;
        break;
      case "gateway":
      case "_bgp":
      case "cluster":
      case "alert":
      case "snmp":
      case "dns":
      case "jvm":
        findings.errors.push({ path: section, code: "node-only", message: `${section}: not a section of a cluster` });
    }
  }
  // A member cannot set the fields of a cluster itself.
  if (cluster.network === undefined && node.network !== undefined) {
    config.network = mergeNetwork(node.network, {}, findings);
  }
  return { config, shadowed: findings.shadowed, errors: findings.errors };
}

type ItemSection = "connectors" | "services";

/** One connector or service, in the form of version 2. */
interface Item {
  readonly id: string;
  readonly value: unknown;
}

/** Merges items by id; for the same thing the cluster's item applies. Returns the form of version 2. */
function mergeItems(
  name: ItemSection,
  ours: JsonObject | undefined,
  theirs: JsonObject,
  findings: Findings,
): JsonObject {
  if (ours === undefined) return theirs;
  const inherited = itemsOf(name, theirs);
  const ids = new Map(inherited.map(({ id }) => [id, id]));
  const meanings = new Map(
    inherited.flatMap(({ id, value }) => meaningsOf(name, value).map((key) => [key, id] as const)),
  );
  const kept = itemsOf(name, ours).filter(({ id, value }) => {
    const winner = ids.get(id) ?? collision(name, value, meanings);
    if (winner !== undefined) findings.shadowed.push({ path: `${name}.items.${id}`, by: `${name}.items.${winner}` });
    return winner === undefined;
  });
  // Each item states whether its own document enables the section.
  return {
    enabled: true,
    version: 2,
    items: Object.fromEntries([...inherited, ...kept].map(({ id, value }) => [id, value])),
  };
}

function itemsOf(name: ItemSection, section: JsonObject): Item[] {
  const isV2 = section["version"] === 2 || section["items"] !== undefined;
  const items = isV2
    ? Object.entries(asObject(section["items"]) ?? {}).map(([id, value]) => ({ id, value }))
    : listOf(section[name]).map((value, index) => ({
        id: textOf(asObject(value)?.["id"]) ?? `${name}-${index}`,
        value,
      }));
  if (section["enabled"] !== false) return items;
  return items.map(({ id, value }) => {
    const item = asObject(value);
    return { id, value: item === undefined ? value : { ...item, enabled: false } };
  });
}

/** Returns the keys by which an item collides with another; none for an empty item. */
function meaningsOf(name: ItemSection, value: unknown): string[] {
  const item = asObject(value);
  if (item === undefined) return [];
  if (name === "services") {
    const service = textOf(item["name"]);
    return service === undefined ? [] : [service];
  }
  const port = scalarOf(item["port"]);
  if (item["enabled"] === false || port === undefined) return [];
  const family = item["protocol"] === "udp" || item["protocol"] === "tftp" ? "udp" : "tcp";
  const nic = textOf(item["nic"]);
  const where = textOf(item["localIp"]) ?? (nic === undefined || nic === "any" ? ANYWHERE : nic);
  return [`${family} ${port} ${where}`];
}

const ANYWHERE = "*";

/** Returns the id of the cluster's item with the same name, or with an overlapping listener. */
function collision(name: ItemSection, value: unknown, meanings: ReadonlyMap<string, string>): string | undefined {
  for (const key of meaningsOf(name, value)) {
    const same = meanings.get(key);
    if (same !== undefined || name === "services") return same;
    const port = key.slice(0, key.lastIndexOf(" ") + 1);
    const everywhere = meanings.get(port + ANYWHERE);
    if (everywhere !== undefined) return everywhere;
    if (!key.endsWith(` ${ANYWHERE}`)) continue;
    for (const [theirs, id] of meanings) if (theirs.startsWith(port)) return id;
  }
  return undefined;
}

/** Merges attachments by name: the cluster's fields apply, except the virtual management address. */
function mergeVpn(ours: JsonObject | undefined, theirs: JsonObject, { shadowed, errors }: Findings): JsonObject {
  const mine = new Map(listOf(ours?.["networks"]).map((network, index) => [nameOf(network, index), network]));
  const networks: unknown[] = [];
  for (const [index, inherited] of listOf(theirs["networks"]).entries()) {
    const name = nameOf(inherited, index);
    const own = asObject(mine.get(name));
    mine.delete(name);
    const network = asObject(inherited);
    const path = `vpn.networks.${name}`;
    networks.push(network === undefined ? inherited : mergeAttachment(path, own ?? {}, network, { shadowed, errors }));
  }
  return { ...ours, ...theirs, networks: [...networks, ...mine.values()] };
}

function mergeAttachment(path: string, own: JsonObject, inherited: JsonObject, findings: Findings): JsonObject {
  const { ip: _perMember, ...shared } = inherited;
  const { routes } = shared;
  const here = Object.keys(own).filter((field) => field in shared && field !== "name");
  findings.shadowed.push(...here.map((field) => ({ path: `${path}.${field}`, by: `${path}.${field}` })));
  if (!Array.isArray(routes)) return { ...own, ...shared };
  return { ...own, ...shared, routes: routes.map((route: unknown) => withoutPath(route, path, findings.errors)) };
}

/** Removes the path id of a cluster's route, since path ids belong to one node. */
function withoutPath(route: unknown, network: string, errors: Issue[]): unknown {
  const value = asObject(route);
  if (value?.["path"] === undefined) return route;
  const { path: _path, ...rest } = value;
  errors.push({ path: `${network}.routes`, code: "node-only", message: `${network}.routes: path is not for clusters` });
  return rest;
}

function nameOf(value: unknown, index: number): string {
  return textOf(asObject(value)?.["name"]) ?? `#${index}`;
}
