import { HostError } from "../../errors.ts";
import type { ExecResult } from "../process/exec.ts";
import type { ToolRunner } from "./ip/tool.ts";

const LINK_KINDS = ["vlan", "vrf", "bridge", "bond", "dummy", "gre", "xfrm", "wireguard"] as const;
type LinkKind = (typeof LINK_KINDS)[number];

/** The features of this machine, determined by trying. */
export interface NetworkFeatures extends Readonly<Record<LinkKind, boolean>> {
  /** nftables with address translation by maps. */
  readonly nft: boolean;
  /** A DHCP client is installed. */
  readonly dhcp: boolean;
  /** Whether kernel and ip(8) support address protocols (IFA_PROTO). */
  readonly addressProtocol: boolean;
  /** Reasons of missing features, by name. */
  readonly reasons: ReadonlyMap<string, string>;
}

/** The first line creates the parent of the others. */
const LINES: Readonly<Record<LinkKind, string>> = {
  vlan: "link add link hf-a name hf-vlan type vlan id 5",
  vrf: "link add name hf-vrf type vrf table 1000",
  bridge: "link add name hf-bridge type bridge",
  bond: "link add name hf-bond type bond",
  dummy: "link add name hf-dummy type dummy",
  gre: "link add name hf-gre type gre remote 192.0.2.1 local 192.0.2.2",
  xfrm: "link add name hf-xfrm type xfrm dev hf-a if_id 5",
  wireguard: "link add name hf-wg type wireguard",
};
/** Asking for help ends a batch, so it comes last. */
const BATCH = [
  "link add name hf-a type veth peer name hf-b",
  ...LINK_KINDS.map((kind) => LINES[kind]),
  "address help",
  "",
].join("\n");
const TABLE = `table inet holdfast {
comment "holdfast"
map m { type ipv4_addr : interval ipv4_addr; flags interval; counter; elements = { 10.0.0.0/24 : 10.1.0.0/24 } }
chain c { type nat hook prerouting priority dstnat
dnat ip prefix to ip daddr map @m
}
}
`;

/** Tries every feature in a network namespace of its own, which ends with the tool. `dhcp` is available if `hasDhcp`. */
export async function tryFeatures(tools: ToolRunner, hasDhcp: boolean, signal: AbortSignal): Promise<NetworkFeatures> {
  const reasons = new Map<string, string>();
  const links = await inScratch(tools, ["ip", "-force", "-batch", "-"], BATCH, signal);
  const refused = typeof links === "string" ? undefined : refusedLines(links.stderr);
  LINK_KINDS.forEach((kind, at) => {
    // Lines count from 1, and the first one does not try a kind.
    const reason = typeof links === "string" ? links : refused?.get(at + 2);
    if (reason !== undefined) reasons.set(kind, reason);
  });
  if (typeof links === "string") reasons.set("addressProtocol", links);
  else if (!/\bproto\b/.test(links.stderr)) reasons.set("addressProtocol", "ip does not support address protocols");
  const table = await inScratch(tools, ["nft", "-f", "-"], TABLE, signal);
  if (typeof table === "string") reasons.set("nft", table);
  else if (table.exitCode !== 0) reasons.set("nft", firstLine(table));
  if (!hasDhcp) reasons.set("dhcp", "no DHCP client is installed");
  const has = (name: string): boolean => !reasons.has(name);
  return {
    vlan: has("vlan"),
    vrf: has("vrf"),
    bridge: has("bridge"),
    bond: has("bond"),
    dummy: has("dummy"),
    gre: has("gre"),
    xfrm: has("xfrm"),
    wireguard: has("wireguard"),
    nft: has("nft"),
    dhcp: has("dhcp"),
    addressProtocol: has("addressProtocol"),
    reasons,
  };
}

/** Returns the error of each failed line of `ip -force -batch`, by line number. */
export function refusedLines(stderr: string): ReadonlyMap<number, string> {
  const refused = new Map<number, string>();
  let said: string[] = [];
  for (const line of stderr.split("\n")) {
    const number = /^Command failed [^:]*:(\d+)$/.exec(line)?.[1];
    if (number === undefined) said.push(line.trim());
    else {
      const text = said.filter((part) => part !== "").join(" ");
      refused.set(Number(number), text.replace(/^(?:Error|RTNETLINK answers): /, ""));
      said = [];
    }
  }
  return refused;
}

/**
 * Runs a command in a network namespace of its own; returns the reason if that fails. Tries a user namespace if root may not
 * create one.
 */
async function inScratch(
  tools: ToolRunner,
  command: readonly string[],
  input: string,
  signal: AbortSignal,
): Promise<ExecResult | string> {
  let reason = "";
  for (const flags of ["-n", "-rn"]) {
    try {
      const result = await tools.run("unshare", [flags, "--", ...command], signal, input);
      // unshare(1) exits with 127 if it cannot find the command.
      if (result.exitCode === 127) return `${command[0]} is not installed`;
      if (!result.stderr.startsWith("unshare: ")) return result;
      reason = firstLine(result);
    } catch (error) {
      if (!(error instanceof HostError)) throw error;
      reason = error.message;
    }
  }
  return `cannot try it in a network namespace: ${reason}`;
}

function firstLine({ stderr, exitCode }: ExecResult): string {
  return stderr.trim().split("\n")[0] || `exit status ${exitCode}`;
}
