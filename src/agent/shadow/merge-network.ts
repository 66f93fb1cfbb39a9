import { asObject, listOf, scalarOf, textOf } from "../../lib/json-shape.ts";
import type { JsonObject } from "../../protocol/values.ts";
import type { Findings } from "./merge.ts";

type Value = Readonly<Record<string, unknown>>;

/** Fields of an interface that only a cluster has. */
const CLUSTER_ONLY = ["clusterIP", "cloudRoutes", "clusterRoutes", "clusterRouteTables"] as const;
/** Fields that a cluster's interface may carry. */
const INHERITED: ReadonlySet<string> = new Set(["nic", "routes", "subInterfaces", ...CLUSTER_ONLY]);
/** Lists and values of which the cluster's replaces the node's as a whole. */
const REPLACED: ReadonlySet<string> = new Set(["routes", "nats", "acls", "rules", "darkMode", "forwarding"]);

/** Merges the cluster's network into a member's: interfaces field by field, tunnels and VRFs by name, lists as a whole. Pure. */
export function mergeNetwork(ours: JsonObject, theirs: JsonObject, findings: Findings): JsonObject {
  const merged: JsonObject = { ...ours };
  for (const [field, value] of Object.entries(theirs)) {
    if (field === "interfaces") merged["interfaces"] = mergeInterfaces(listOf(ours[field]), listOf(value), findings);
    else if (field === "tunnels" || field === "vrfs") {
      merged[field] = replaceByKey(`network.${field}`, listOf(ours[field]), listOf(value), nameOf, findings);
    } else if (REPLACED.has(field)) {
      if (ours[field] !== undefined) findings.shadowed.push({ path: `network.${field}`, by: `network.${field}` });
      merged[field] = value;
    } else {
      const path = `network.${field}`;
      findings.errors.push({ path, code: "node-only", message: `${path}: not a field of a cluster` });
    }
  }
  if (theirs["interfaces"] === undefined && ours["interfaces"] !== undefined) {
    merged["interfaces"] = mergeInterfaces(listOf(ours["interfaces"]), [], findings);
  }
  return merged;
}

function mergeInterfaces(ours: readonly unknown[], theirs: readonly unknown[], findings: Findings): unknown[] {
  const inherited = new Map(theirs.flatMap((value) => entry(asObject(value), nicOf)));
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
  if (cluster["subInterfaces"] !== undefined) {
    const [mine, inherited] = [listOf(own["subInterfaces"]), listOf(cluster["subInterfaces"])];
    merged["subInterfaces"] = replaceByKey(`${path}.subInterfaces`, mine, inherited, vlanOf, findings);
  }
  return merged;
}

/** The union; of two with the same key the cluster's is in force as a whole. */
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
const routeOf = (value: Value): string | undefined => textOf(value["route"]);
const vlanOf = (value: Value): string | undefined => scalarOf(value["vlanID"]);
