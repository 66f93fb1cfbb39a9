import { OUR_PROTOCOL, type NetworkState, type NetworkTarget } from "../../../host/network/state/state.ts";
import { waitingForLease } from "../../../host/network/diff-routes.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { Carrier } from "./actual.ts";
import { isWithin, MAIN_TABLE } from "./contexts.ts";

/** State that decides which route a packet of this machine takes. */
interface RoutingState {
  readonly up: ReadonlySet<string>;
  readonly addresses: NetworkTarget["addresses"];
  readonly routes: NetworkTarget["routes"];
}

/**
 * Reports whether the target would remove the machine's only route to the peer of its control session. A route counts if it is in the table
 * main and its interface is up and has an address; whether anything answers there is not tested.
 */
export function cutsOff(state: NetworkState, target: NetworkTarget, carrier: Carrier | undefined): boolean {
  if (carrier === undefined || parseCidr(`${carrier.remote}/32`) === undefined) return false;
  const now: RoutingState = { ...state, up: new Set(state.links.filter(({ isUp }) => isUp).map(({ name }) => name)) };
  const isLocal = state.addresses.some(({ address }) => address.split("/", 1)[0] === carrier.remote);
  if (isLocal || isWithin("127.0.0.0/8", carrier.remote)) return false;
  return hasRoute(now, carrier.remote) && !hasRoute(routingAfter(state, target), carrier.remote);
}

function hasRoute({ up, addresses, routes }: RoutingState, remote: string): boolean {
  const inhabited = new Set(addresses.map(({ link }) => link));
  const isOpen = (link: string | undefined): boolean => link !== undefined && up.has(link) && inhabited.has(link);
  const isConnected = addresses.some(
    ({ link, address, hasNoRoute }) => hasNoRoute !== true && isOpen(link) && isWithin(address, remote),
  );
  if (isConnected) return true;
  const matching = routes.filter(
    ({ table, destination, kind, link }) =>
      table === MAIN_TABLE && isWithin(destination, remote) && (kind !== "unicast" || isOpen(link)),
  );
  const [best] = matching.toSorted((a, b) => lengthOf(b.destination) - lengthOf(a.destination) || a.metric - b.metric);
  return best?.kind === "unicast";
}

const lengthOf = (destination: string): number => Number(destination.split("/")[1] ?? 32);

/** Returns the routes after the plan: other programs' ones, the target's, and those that wait for a lease. */
function routingAfter(state: NetworkState, target: NetworkTarget): RoutingState {
  const wanted = new Map(target.links.map((link) => [link.name, link]));
  const there = state.links.filter(({ name, isOurs }) => !isOurs || wanted.has(name));
  const waiting = waitingForLease(state, target);
  return {
    up: new Set([
      ...there.filter(({ name, isUp }) => wanted.get(name)?.isUp ?? isUp).map(({ name }) => name),
      ...target.links.filter(({ kind, isUp }) => kind !== undefined && isUp).map(({ name }) => name),
    ]),
    addresses: [...target.addresses, ...state.addresses.filter(({ isOurs, link }) => !isOurs || waiting.has(link))],
    routes: [
      ...target.routes,
      ...state.routes.filter(({ protocol, link }) => protocol !== OUR_PROTOCOL || waiting.has(link ?? "")),
    ],
  };
}
