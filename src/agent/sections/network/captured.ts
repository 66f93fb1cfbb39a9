import { OUR_PROTOCOL, type NetworkTarget } from "../../../host/network/state/state.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import type { NetworkInterface } from "../../../protocol/sections/network/config.ts";
import { networkIssue, type NetworkActual } from "./actual.ts";
import { isWithin, MAIN_TABLE } from "./contexts.ts";
import { defaultRoute, wanLinkOf } from "./wan.ts";

/** An applied route and its path in the document. */
interface Taken {
  readonly route: NetworkTarget["routes"][number];
  readonly path?: string;
}

interface Needed {
  readonly address: string;
  readonly what: string;
}

const MAX_NAMED = 8;
const MAX_GATEWAYS = 16;
const ANYWHERE = "0.0.0.0/0";

/**
 * Lists routes through other interfaces than the WAN that also match the control plane, a name server or a gateway. A session through such
 * an interface proves that the control plane is reachable there. Pure.
 */
export function captureNotices(
  taken: readonly Taken[],
  addresses: readonly string[],
  actual: NetworkActual,
  wan: NetworkInterface | undefined,
): readonly Issue[] {
  const wanLink = wan?.nic ?? wanLinkOf(actual);
  const suspects = taken.filter(
    ({ route, path }) =>
      path !== undefined && route.table === MAIN_TABLE && route.link !== wanLink && route.destination !== ANYWHERE,
  );
  if (wanLink === undefined || suspects.length === 0) return [];
  const captured = new Map<Taken, Needed[]>();
  for (const needed of neededOf(actual, wan)) {
    if (!suspects.some(({ route }) => isWithin(route.destination, needed.address))) continue;
    const by = capturing(needed.address, taken, addresses, actual);
    if (by === undefined || !suspects.includes(by)) continue;
    if (needed.address === actual.carrier?.remote && isCarriedBy(by.route.link, actual)) continue;
    captured.set(by, [...(captured.get(by) ?? []), needed]);
  }
  const next = wan?.gateway ?? defaultRoute(actual.state)?.via;
  return [...captured].map(([{ route, path = "network" }, all]) => {
    const named = all.slice(0, MAX_NAMED).map(({ what, address }) => `${what} ${address}`);
    const more = all.length > MAX_NAMED ? ` and ${all.length - MAX_NAMED} more` : "";
    const lead = `${route.destination} through ${route.link ?? "no interface"} also takes the packets to ${named.join(", ")}${more}`;
    const via = next === undefined ? "" : ` with the next hop ${next}`;
    const help = `if that is not reachable there, add routes to these addresses to ${wanLink}${via}`;
    return networkIssue(path, "captures", `${lead}, which would go through the WAN ${wanLink} without it; ${help}`);
  });
}

function neededOf({ carrier, gateways, state }: NetworkActual, wan: NetworkInterface | undefined): readonly Needed[] {
  const leased = wan === undefined ? undefined : state.leases?.[wan.nic]?.nameServers;
  const servers = wan !== undefined && wan.dns.length > 0 ? wan.dns : (leased ?? state.nameServers ?? []);
  const needed = [
    ...(carrier === undefined ? [] : [{ address: carrier.remote, what: "the control plane" }]),
    ...servers.map((address) => ({ address, what: "the name server" })),
    ...gateways.slice(0, MAX_GATEWAYS).map((address) => ({ address, what: "the gateway" })),
  ];
  const isOwn = (address: string): boolean =>
    isWithin("127.0.0.0/8", address) || state.addresses.some((own) => own.address.split("/", 1)[0] === address);
  return needed.filter(
    ({ address }, at) =>
      parseCidr(`${address}/32`) !== undefined &&
      !isOwn(address) &&
      needed.findIndex((other) => other.address === address) === at,
  );
}

/** Returns the document's route of packets to an address; undefined if they take another route or stay in a connected subnet. */
function capturing(
  address: string,
  taken: readonly Taken[],
  addresses: readonly string[],
  { state }: NetworkActual,
): Taken | undefined {
  const others = state.routes.filter(({ protocol }) => protocol !== OUR_PROTOCOL).map((route) => ({ route }));
  const [best] = [...taken, ...others]
    .filter(({ route }: Taken) => route.table === MAIN_TABLE && isWithin(route.destination, address))
    .toSorted(
      (a, b) => lengthOf(b.route.destination) - lengthOf(a.route.destination) || a.route.metric - b.route.metric,
    );
  if (best === undefined) return undefined;
  const isNearer = (own: string): boolean =>
    isWithin(own, address) && lengthOf(own) >= lengthOf(best.route.destination);
  return addresses.some(isNearer) ? undefined : best;
}

const lengthOf = (block: string): number => Number(block.split("/")[1] ?? 32);

function isCarriedBy(link: string | undefined, { state, carrier }: NetworkActual): boolean {
  return state.addresses.some((own) => own.link === link && own.address.split("/", 1)[0] === carrier?.local);
}
