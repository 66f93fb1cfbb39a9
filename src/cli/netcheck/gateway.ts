import { gatewayKey, openTcp } from "../../host/net/net-probe.ts";
import type { NetworkTargets } from "../../protocol/overlay/network-targets.ts";
import { checkMtu } from "./mtu.ts";
import { failed, passed, skipped, type Finding } from "./result.ts";
import { checkName, checkTcp, tried, wordsOf, type CheckTools } from "./tools.ts";

export type PathTarget = NetworkTargets["paths"][number];

/** Checks one path to a gateway from outside the tunnel. */
export async function checkPath(path: PathTarget, tools: CheckTools): Promise<readonly Finding[]> {
  const { host, port, local } = path;
  const dns = await checkName(host, tools);
  const udp = skipped("udp", "tunnels use TCP alone in this version");
  if (dns.value.length === 0) {
    return [dns.finding, ...(["tcp", "tls"] as const).map((name) => skipped(name, "needs an address")), udp, noMtu];
  }
  const fix = `let TCP port ${port} to ${host} out through every firewall${local === undefined ? "" : `, also from ${local}`}`;
  const tcp = await checkTcp(
    dns.value.map((address) => ({ address, port, local })),
    fix,
    tools,
  );
  const [address] = tcp.value;
  if (address === undefined) return [dns.finding, tcp.finding, skipped("tls", "needs a connection"), udp, noMtu];
  const [tls, mtu] = await Promise.all([checkKey(path, address, tools), checkMtu(address, local, tools)]);
  return [dns.finding, tcp.finding, tls, udp, mtu];
}

const noMtu = skipped("mtu", "needs an address that answers");

/** Checks whether the gateway proves the expected key. */
async function checkKey({ key, host, port, local }: PathTarget, address: string, tools: CheckTools): Promise<Finding> {
  let shown: string | undefined;
  try {
    shown = await tried(tools, async (signal) => gatewayKey(await openTcp({ address, port, local }, signal), signal));
  } catch (error) {
    const message = `no TLS with ${address}:${port}: ${wordsOf(error, tools)}`;
    return failed(
      "tls",
      message,
      `see whether a gateway listens on ${host}:${port}, and exempt it from TLS inspection`,
    );
  }
  if (key === undefined) return skipped("tls", "it answers; this node does not know the gateway's key");
  if (shown === key) return passed("tls", "it has the gateway's key");
  const message = "it has another key than the gateway's";
  return failed(
    "tls",
    message,
    `exempt ${host}:${port} from TLS inspection, and see that no other machine has that address`,
  );
}
