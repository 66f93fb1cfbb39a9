import { tryFeatures, type NetworkFeatures } from "../../host/network/features.ts";
import { kernelTables, type TableContent } from "../../host/network/firewall/table-dump.ts";
import { networkRecordFile } from "../../host/network/state/record.ts";
import { toolRunner } from "../../host/network/ip/tool.ts";
import { hostFiles } from "../../host/files/files.ts";
import { valueOf } from "../../host/files/state-file.ts";
import type { NetworkReport } from "../../protocol/local/network.ts";
import { fail, pass, skip, warn, type Check } from "./result.ts";
import type { CheckFamily } from "./tools.ts";

const MAX_OUTPUT_BYTES = 256 * 1024;
const MAX_NAMED = 50;

export const kernelChecks: CheckFamily = {
  name: "kernel",
  async run({ exec, signal, isRoot, agent }) {
    if (!isRoot) return [skip("features", "access-denied", "only root can try them: run the command with sudo")];
    const { status } = await agent();
    const isUsed = status?.sections["network"] !== undefined;
    return featureChecks(await tryFeatures(toolRunner(exec, MAX_OUTPUT_BYTES), true, signal), isUsed);
  },
};

/** Consequence of each missing kernel feature. */
const COSTS: Readonly<Record<Exclude<keyof NetworkFeatures, "reasons" | "dhcp">, string>> = {
  vlan: "no VLAN interfaces",
  vrf: "no VRFs",
  bridge: "no network for containers",
  bond: "no bonds",
  dummy: "no addresses without a link of their own",
  gre: "no GRE tunnels",
  xfrm: "no IPsec tunnels",
  wireguard: "WireGuard runs outside the kernel, and slower",
  nft: "no NAT, no packet filter, no published ports",
  addressProtocol: "our addresses are recognized by their label only",
};

/**
 * Reports the missing features and what does not work without them. Only nftables is a warning, if the network section is used, which depends
 * on it as a whole; an item that needs another feature has an issue of its own. Pure.
 */
export function featureChecks(features: NetworkFeatures, isUsed: boolean): readonly Check[] {
  const missing = Object.entries(COSTS).filter(([name]) => features.reasons.has(name));
  if (missing.length === 0) return [pass("features", "everything that the network section can use is there")];
  return missing.map(([name, cost]) => {
    const message = `${cost}: ${features.reasons.get(name) ?? ""}`.slice(0, 4096);
    if (name !== "nft" || !isUsed) return skip(`feature.${name}`, "feature-missing", message);
    return warn(`feature.${name}`, "feature-missing", message, "install nftables, or load the kernel's modules for it");
  });
}

export const firewallChecks: CheckFamily = {
  name: "firewall",
  async run({ stateDir, isRoot, agent }) {
    const { observed, why } = await agent();
    const marks =
      observed === undefined ? skip("marks", "no-agent", "no agent tells which are its own") : markChecks(observed);
    if (!isRoot)
      return [skip("table", "access-denied", "only root can see it: run the command with sudo"), ...[marks].flat()];
    const record = valueOf(await networkRecordFile(hostFiles(), stateDir).inspect());
    const known = (record?.firewalls ?? []).map(({ digest }) => digest);
    const hasDrifted = (why?.reasons ?? []).some(
      ({ section, message }) => section === "network" && /firewall|table/.test(message),
    );
    return [tableCheck(kernelTables.read("holdfast"), known, hasDrifted), ...[marks].flat()];
  },
};

/** Reports whether the nftables table `holdfast` is ours: it carries the digest of a text that we loaded. Pure. */
export function tableCheck(dump: TableContent | undefined, known: readonly string[], hasDrifted: boolean): Check {
  const fix =
    "'nft list table inet holdfast' shows it; what is ours is put back by the agent, what is not must be renamed";
  if (dump === undefined) return skip("table", "unknown", "the kernel's tables cannot be read here");
  if (!dump.isThere) {
    if (known.length === 0) return pass("table", "there is none, and none was loaded");
    return warn(
      "table",
      "table-gone",
      "the table that was loaded is not there",
      "a running agent puts it back within a minute; start it",
    );
  }
  const digest = /holdfast:([0-9a-f]{64})/.exec(dump.comment)?.[1];
  if (digest === undefined) return fail("table", "foreign-table", "the table 'inet holdfast' is not ours", fix);
  if (hasDrifted) return warn("table", "table-changed", "somebody has changed it", fix);
  if (!known.includes(digest))
    return warn("table", "table-unknown", "it is one of ours, but not of this state directory", fix);
  return pass("table", "it is ours, and the agent finds nothing changed in it");
}

/** Finds foreign links, routes and rules with our marks. Pure. */
export function markChecks({
  links,
  routes,
  rules,
}: Pick<NetworkReport, "links" | "routes" | "rules">): readonly Check[] {
  const foreign = [
    ...links.filter(({ name, isOurs }) => !isOurs && name.startsWith("hf-")).map(({ name }) => `link ${name}`),
    ...routes
      .filter(({ protocol, isOurs }) => !isOurs && protocol === OUR_PROTOCOL)
      .map(({ destination }) => `route ${destination}`),
  ];
  const owned = links.filter(({ isOurs }) => isOurs).length + rules.filter(({ isOurs }) => isOurs).length;
  if (foreign.length === 0)
    return [pass("marks", `nothing of others carries our marks; ${owned} links and rules are ours`)];
  return foreign
    .slice(0, MAX_NAMED)
    .map((what) =>
      warn(
        "marks",
        "foreign-mark",
        `${what} has our mark and is not ours: it is left alone`,
        "rename or remove it, if nobody needs it",
      ),
    );
}

/** rtm_protocol of routes of ours. */
const OUR_PROTOCOL = 218;
