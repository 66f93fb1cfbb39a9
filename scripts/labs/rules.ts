// The packet filters of the lab: what its routers translate, drop and refuse.
import { addressOf, GATEWAY_PORT, siteOf, type PublicHost, type Site } from "./layout.ts";
import type { LabState } from "./state.ts";

/** Returns the port at which a site's delay proxy accepts connections to this gateway. */
export function delayPortOf(state: LabState, gateway: PublicHost): number {
  return 7000 + state.layout.hosts.indexOf(gateway);
}

/** The gateways of a lab. */
export function gatewaysOf({ layout }: LabState): readonly PublicHost[] {
  return layout.hosts.filter(({ role }) => role === "gateway");
}

/** Returns the internet's rules: they drop everything from and to hosts and sites whose link is cut. */
export function internetRules(state: LabState): string {
  const links = state.cut.flatMap((name) => linkOf(state, name) ?? []);
  const drops = links.flatMap((link) => [`iifname "${link}" drop`, `oifname "${link}" drop`]);
  return table([chain("forwarded", "filter hook forward priority filter", drops)]);
}

/** The internet's link to a public host or to the site of an edge; machines inside a site have none. */
export function linkOf({ layout }: LabState, name: string): string | undefined {
  if (layout.hosts.some((host) => host.name === name)) return name;
  const site = siteOf(layout, name);
  return site?.edge === name || site?.name === name ? site.name : undefined;
}

/** A site's router: NAT, nothing inward that was not asked for, and the faults of its uplink. */
export function siteRules(state: LabState, site: Site): string {
  const { lagMs = 0, drop, isUdpBlocked } = state.faults[site.edge] ?? {};
  const gateways = lagMs === 0 ? [] : gatewaysOf(state);
  const to = (gateway: PublicHost): string =>
    `ip daddr ${addressOf(gateway, state.moves[gateway.name])} tcp dport ${GATEWAY_PORT}`;
  const lossy = (direction: "in" | "out", side: string): string[] =>
    drop !== undefined && (drop.direction === direction || drop.direction === "both")
      ? [`${side}${drop.percent === 100 ? "" : ` numgen random mod 1000 < ${Math.ceil(drop.percent * 10)}`} drop`]
      : [];
  const noUdp = (side: string): string[] => (isUdpBlocked === true ? [`${side} meta l4proto udp drop`] : []);
  const inward = ['iifname "wan" ct state established,related accept', 'iifname "wan" drop'];
  return table([
    chain(
      "redirected",
      "nat hook prerouting priority dstnat",
      gateways.map((gateway) => `iifname "lan" ${to(gateway)} redirect to :${delayPortOf(state, gateway)}`),
    ),
    chain("translated", "nat hook postrouting priority srcnat", ['oifname "wan" masquerade']),
    chain("arriving", "filter hook prerouting priority raw", [
      ...lossy("in", 'iifname "wan"'),
      ...noUdp('iifname "wan"'),
    ]),
    chain("leaving", "filter hook postrouting priority 300", [
      ...lossy("out", 'oifname "wan"'),
      ...noUdp('oifname "wan"'),
    ]),
    chain("forwarded", "filter hook forward priority filter", [
      // A connection from before the redirection would go on without any lag.
      ...gateways.map((gateway) => `iifname "lan" ${to(gateway)} reject with tcp reset`),
      ...inward,
    ]),
    chain("received", "filter hook input priority filter", inward),
  ]);
}

/** The whole table in one transaction, in place of the one before. */
function table(chains: readonly string[]): string {
  return ["add table inet lab", "delete table inet lab", "table inet lab {", ...chains, "}", ""].join("\n");
}

function chain(name: string, type: string, rules: readonly string[]): string {
  return [`chain ${name} {`, `type ${type};`, ...rules, "}"].join("\n");
}
