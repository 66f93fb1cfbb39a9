import type { Config } from "../../protocol/documents/documents.ts";
import { sectionNames, sectionSuits } from "../../protocol/sections/sections.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import type { Desired } from "../shadow/desired.ts";
import type { Effective } from "../shadow/findings.ts";
import { effective } from "../shadow/merge.ts";

/** Adds a network to the configuration of an appliance if its documents have none. Pure. */
export function withLocalNetwork(merged: Effective, desired: Desired, network: JsonObject | undefined): Effective {
  const { type = "Node" } = desired.node?.body ?? {};
  if (network === undefined || merged.config.network !== undefined || !sectionSuits("network", type)) return merged;
  return { ...merged, config: { ...merged.config, network } };
}

/** Returns the effective configuration of documents; `config` replaces the node's own. Pure. */
export function effectiveOf(desired: Desired, config: Config = desired.node?.body.config ?? {}): Effective {
  const type = desired.node?.body.type ?? "Node";
  // The document of a cluster that the node left is kept until that of the next cluster arrives.
  const cluster = desired.cluster?.sub === desired.node?.body.cluster ? desired.cluster : undefined;
  const merged = effective(config, cluster?.body.config);
  const suited = Object.fromEntries(
    sectionNames.flatMap((name) =>
      sectionSuits(name, type) && merged.config[name] !== undefined ? [[name, merged.config[name]]] : [],
    ),
  );
  return { ...merged, config: suited };
}
