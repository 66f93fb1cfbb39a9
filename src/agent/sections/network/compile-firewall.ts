import { firewallDigest } from "../../../host/network/firewall/firewall.ts";
import type { NetworkTarget } from "../../../host/network/state/state.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import { networkIssue, type NetworkActual, type NetworkDesired } from "./actual.ts";
import type { MarkedTable } from "./compile-rules.ts";
import { FLOW_SYSCTLS } from "./flow-times.ts";
import { IP_FORWARD, isForwardingAnyway } from "./forwarding.ts";
import { clampChain, forwardChains, heldChains, localChains } from "./firewall-filter.ts";
import { compileNats } from "./firewall-nats.ts";
import { compilePolicy } from "./firewall-rules.ts";
import { tableText } from "./firewall-text.ts";
import type { Context } from "./contexts.ts";

/** The nftables part of the section, and the sysctls that it needs. */
export interface CompiledFirewall {
  readonly text?: string;
  readonly digest: string;
  readonly routes: NetworkTarget["routes"];
  readonly marked: readonly MarkedTable[];
  readonly sysctls: readonly (readonly [name: string, value: string])[];
  readonly waits: readonly Issue[];
}

/**
 * Writes the table `inet holdfast`: forwarding between interfaces, policy routing, translations, and input to this machine. If any of these
 * is configured, the machine forwards packets and the table filters them. If none is and another program enabled forwarding, the table
 * drops packets to and from the section's interfaces.
 */
export function compileFirewall(
  desired: NetworkDesired,
  actual: NetworkActual,
  contexts: readonly Context[],
): CompiledFirewall {
  const { config } = desired;
  const nothing = { digest: "", routes: [], marked: [], sysctls: [], waits: [] };
  const isRouting = contexts.some(
    ({ vrf, forwarding, routing: { nats, rules, acls } }) =>
      forwarding || vrf !== undefined || nats.length > 0 || rules.length > 0 || (acls ?? []).length > 0,
  );
  const isHeld = !isRouting && isForwardingAnyway(actual);
  if (!config.isPresent || (!isRouting && !isHeld && !config.darkMode)) return nothing;
  const policy = compilePolicy(desired, actual, contexts);
  const nats = compileNats(contexts, desired.memo);
  const text = tableText(nats.sets, [
    ...localChains(contexts, actual, config.darkMode),
    ...(isRouting ? [clampChain, ...forwardChains(contexts, actual)] : []),
    ...(isHeld ? heldChains(contexts, config.left ?? [], actual) : []),
    ...policy.chains,
    ...nats.chains,
  ]);
  if (text === undefined) return { ...nothing, waits: policy.waits };
  if (!actual.features.nft) {
    const reason = actual.features.reasons.get("nft") ?? "this machine has no nftables";
    // Without a filter nothing is forwarded.
    return { ...nothing, waits: [networkIssue("network", "unsupported", `no firewall: ${reason}`)] };
  }
  const passes = contexts.some(
    ({ forwarding, routing: { nats, rules } }) => forwarding || nats.length > 0 || rules.length > 0,
  );
  const forwarding = passes ? [[IP_FORWARD, "1"] as const] : [];
  return {
    text,
    digest: firewallDigest(text),
    routes: policy.routes,
    marked: policy.marked,
    sysctls: isRouting ? [...forwarding, ...FLOW_SYSCTLS] : [],
    waits: policy.waits,
  };
}
