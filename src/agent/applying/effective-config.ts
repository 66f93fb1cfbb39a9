import type { Config } from "../../protocol/documents/documents.ts";
import { sectionNames, sectionSuits } from "../../protocol/sections/sections.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import type { Desired } from "../shadow/desired.ts";
import type { Effective } from "../shadow/findings.ts";
import { effective } from "../shadow/merge.ts";

/** A configuration with this network where documents give none to an appliance. Pure. */
export function withLocalNetwork(merged: Effective, desired: Desired, network: JsonObject | undefined): Effective {
  const { type = "Node" } = desired.node?.body ?? {};
  if (network === undefined || merged.config.network !== undefined || !sectionSuits("network", type)) return merged;
  return { ...merged, config: { ...merged.config, network } };
}

/** The configuration that documents come to on this node; `config` stands in for the node's own. Pure. */
export function effectiveOf(desired: Desired, config: Config = desired.node?.body.config ?? {}): Effective {
  const type = desired.node?.body.type ?? "Node";
  // The document of a cluster that was left stays until its successor comes.
  const cluster = desired.cluster?.sub === desired.node?.body.cluster ? desired.cluster : undefined;
  const merged = effective(config, cluster?.body.config);
  const suited = Object.fromEntries(
    sectionNames.flatMap((name) =>
      sectionSuits(name, type) && merged.config[name] !== undefined ? [[name, merged.config[name]]] : [],
    ),
  );
  return { ...merged, config: suited };
}
