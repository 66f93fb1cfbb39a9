import { parseCidr } from "../../lib/net/cidr.ts";
import { asObject, listOf, scalarOf, textOf } from "../../lib/formats/json-shape.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import type { Findings } from "./findings.ts";

type Value = Readonly<Record<string, unknown>>;

/** Fields of an interface that only a cluster has. */
const CLUSTER_ONLY = ["clusterIP", "cloudRoutes", "clusterRoutes", "clusterRouteTables"] as const;
/** Fields that a cluster's interface may carry. */
const INHERITED: ReadonlySet<string> = new Set(["nic", "routes", "subInterfaces", ...CLUSTER_ONLY]);
/** Lists and values that the cluster replaces as a whole. */
const REPLACED: ReadonlySet<string> = new Set(["routes", "nats", "acls", "rules", "darkMode", "forwarding"]);

/** Lists that are matched entry by entry. */
const MATCHED: ReadonlySet<string> = new Set(["interfaces", "tunnels", "vrfs"]);

/**
 * Merges the cluster's network into a member's: interfaces field by field, tunnels and VRFs by name, lists as a whole. The addresses of
 * a cluster's VLAN come as its `clusterIPs`, for the active member alone. A member without interfaces of its own has none after. Pure.
 */
export function mergeNetwork(ours: JsonObject, theirs: JsonObject, findings: Findings): JsonObject {
  const merged: JsonObject = { ...ours };
  for (const [field, value] of Object.entries(theirs)) {
    if (MATCHED.has(field)) {
      if (!Array.isArray(value)) {
        findings.errors.push({
          path: `network.${field}`,
          code: "wrong-form",
          message: `network.${field}: must be a list`,
        });
      } else if (field !== "interfaces" && (ours[field] === undefined || Array.isArray(ours[field]))) {
        merged[field] = replaceByKey(`network.${field}`, listOf(ours[field]), value, nameOf, findings);
      }
    } else if (REPLACED.has(field)) {
      if (ours[field] !== undefined) findings.shadowed.push({ path: `network.${field}`, by: `network.${field}` });
      merged[field] = value;
    } else {
      const path = `network.${field}`;
      findings.errors.push({ path, code: "node-only", message: `${path}: not a field of a cluster` });
    }
  }
  // A value that is no list stays unchanged: an empty list would remove every address.
  const own = ours["interfaces"];
  const interfaces = mergeInterfaces(listOf(own), listOf(theirs["interfaces"]), findings);
  if (Array.isArray(own)) merged["interfaces"] = interfaces;
  return merged;
}

function mergeInterfaces(ours: readonly unknown[], theirs: readonly unknown[], findings: Findings): unknown[] {
  // The first of two entries for one interface applies.
  const inherited = new Map(theirs.flatMap((value) => entry(asObject(value), nicOf)).toReversed());
  const merged = ours.map((value) => {
    const own = asObject(value);
    const nic = own === undefined ? undefined : nicOf(own);
    if (own === undefined || nic === undefined) return value;
    const cluster = inherited.get(nic);
    inherited.delete(nic);
    return mergeInterface(nic, own, cluster ?? {}, findings);
  });
  for (const nic of inherited.keys()) {
    const path = `network.interfaces.${nic}`;
    findings.errors.push({ path, code: "unknown-interface", message: `${path}: this member has no such interface` });
  }
  return merged;
}

function mergeInterface(nic: string, own: Value, cluster: Value, findings: Findings): Value {
  const path = `network.interfaces.${nic}`;
  for (const field of Object.keys(cluster)) {
    if (INHERITED.has(field)) continue;
    const message = `${path}.${field}: always the member's own, not for clusters`;
    findings.errors.push({ path: `${path}.${field}`, code: "node-only", message });
  }
  const merged: Record<string, unknown> = { ...own };
  for (const field of CLUSTER_ONLY) {
    if (isSaid(own[field])) {
      const message = `${path}.${field}: only for the configuration of a cluster`;
      findings.errors.push({ path: `${path}.${field}`, code: "cluster-only", message });
    }
    delete merged[field];
    if (cluster[field] !== undefined) merged[field] = cluster[field];
  }
  if (cluster["routes"] !== undefined) {
    merged["routes"] = replaceByKey(
      `${path}.routes`,
      listOf(own["routes"]),
      listOf(cluster["routes"]),
      routeOf,
      findings,
    );
  }
  const [mine, inherited] = [own["subInterfaces"], cluster["subInterfaces"]];
  if (mine !== undefined || inherited !== undefined) {
    merged["subInterfaces"] =
      mine === undefined || Array.isArray(mine)
        ? mergeVlans(`${path}.subInterfaces`, listOf(mine), listOf(inherited), findings)
        : mine;
  }
  return merged;
}

/** Merges VLANs by number; of a VLAN that both have, the addresses stay the member's own. */
function mergeVlans(path: string, ours: readonly unknown[], theirs: readonly unknown[], findings: Findings): unknown[] {
  const own = new Map<string, Value>();
  const alone: unknown[] = [];
  const inherited = new Set(theirs.flatMap((value) => entry(asObject(value), vlanOf).map(([id]) => id)));
  for (const value of ours) {
    const [[id, vlan] = []] = entry(asObject(value), vlanOf);
    if (id === undefined || vlan === undefined) alone.push(value);
    else if (!inherited.has(id) || own.has(id)) alone.push(withoutClusterIps(vlan));
    else own.set(id, withoutClusterIps(vlan));
  }
  const merged = theirs.map((value) => {
    const [[id, vlan] = []] = entry(asObject(value), vlanOf);
    return id === undefined || vlan === undefined ? value : mergeVlan(`${path}.${id}`, own.get(id), vlan, findings);
  });
  return [...merged, ...alone];
}

function mergeVlan(path: string, own: Value | undefined, cluster: Value, findings: Findings): Value {
  const { ip, addIps, ...shared } = cluster;
  const clusterIPs = [ip, ...listOf(addIps)].filter(isSaid);
  if (own === undefined) return { ...shared, clusterIPs };
  for (const field of Object.keys(shared)) {
    if (field === "vlanID" || field === "routes" || !isSaid(own[field])) continue;
    findings.shadowed.push({ path: `${path}.${field}`, by: `${path}.${field}` });
  }
  const [mine, theirs] = [listOf(own["routes"]), listOf(shared["routes"])];
  const routes = replaceByKey(`${path}.routes`, mine, theirs, routeOf, findings);
  return { ...own, ...shared, routes, clusterIPs };
}

const withoutClusterIps = ({ clusterIPs: _notOurs, ...own }: Value): Value => own;

/** Reports whether a field has a value. */
function isSaid(value: unknown): boolean {
  return value !== undefined && value !== null && value !== "" && !(Array.isArray(value) && value.length === 0);
}

/** Merges two lists by key; of two entries with the same key the cluster's replaces the member's. */
function replaceByKey(
  path: string,
  ours: readonly unknown[],
  theirs: readonly unknown[],
  keyOf: (value: Value) => string | undefined,
  { shadowed }: Findings,
): unknown[] {
  const taken = new Set(theirs.flatMap((value) => entry(asObject(value), keyOf).map(([key]) => key)));
  const kept = ours.filter((value) => {
    const own = asObject(value);
    const key = own === undefined ? undefined : keyOf(own);
    if (key === undefined || !taken.has(key)) return true;
    shadowed.push({ path: `${path}.${key}`, by: `${path}.${key}` });
    return false;
  });
  return [...theirs, ...kept];
}

function entry(value: Value | undefined, keyOf: (value: Value) => string | undefined): [string, Value][] {
  const key = value === undefined ? undefined : keyOf(value);
  return value === undefined || key === undefined ? [] : [[key, value]];
}

const nameOf = (value: Value): string | undefined => textOf(value["name"]);
const nicOf = (value: Value): string | undefined => textOf(value["nic"]);
/** Returns the canonical network of a route, so that two spellings are one route. */
function routeOf(value: Value): string | undefined {
  const route = textOf(value["route"]);
  return route === undefined ? undefined : (parseCidr(route)?.text ?? route);
}
const vlanOf = (value: Value): string | undefined => scalarOf(value["vlanID"]);
