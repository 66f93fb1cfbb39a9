import { firewallDigest } from "../../../host/network/firewall.ts";
import type { NetworkTarget } from "../../../host/network/state.ts";
import type { Issue } from "../../../protocol/reconcile.ts";
import type { NetworkActual, NetworkDesired } from "./actual.ts";
import type { MarkedTable } from "./compile-rules.ts";
import type { Context } from "./contexts.ts";

/** What of the section nftables carries out, and what that needs besides. */
export interface CompiledFirewall {
  readonly text?: string;
  readonly digest: string;
  readonly routes: NetworkTarget["routes"];
  readonly marked: readonly MarkedTable[];
  readonly sysctls: readonly (readonly [name: string, value: string])[];
  readonly waits: readonly Issue[];
}

/** Writes the table `inet holdfast`. */
export function compileFirewall(
  _desired: NetworkDesired,
  _actual: NetworkActual,
  _contexts: readonly Context[],
): CompiledFirewall {
  return { digest: firewallDigest(""), routes: [], marked: [], sysctls: [], waits: [] };
}
