// Who is where in the lab: sites behind routers of their own, and public hosts on routed links of one internet.
import { createHash } from "node:crypto";
import { resolve } from "node:path";

/** A host on its own link to the internet, with a public address. */
export interface PublicHost {
  readonly name: string;
  readonly role: "controller" | "gateway";
  /** The first three numbers of its /29 and the last number of its first address; its neighbour below is the internet. */
  readonly net: string;
  readonly first: number;
}

/** A private network behind NAT, with one node and maybe other machines. */
export interface Site {
  readonly name: string;
  /** The node of the site. */
  readonly edge: string;
  /** Other machines of its network, by name, with their last number. */
  readonly others: readonly { readonly name: string; readonly last: number }[];
  /** The addresses that its provider may give it. */
  readonly net: string;
  readonly first: number;
}

/** Everything that a lab is made of. */
export interface Layout {
  readonly hosts: readonly PublicHost[];
  readonly sites: readonly Site[];
}

export const CONTROLLER = "controller";
export const INTERNET = "internet";
export const CONTROLLER_PORT = 8480;
export const GATEWAY_PORT = 8443;
/** Ports of the web server behind the service and of the connector that leads to it. */
export const WEB_PORT = 8000;
export const CONNECTOR_PORT = 8080;
/** The same at every site: flows do not care that the private networks overlap. */
export const PRIVATE_NET = "192.168.1";
/** Number of provider addresses that a host can move through. */
export const UPLINKS = 5;

const PUBLIC_NET = "203.0.113";
const ACCESS_NET = "198.51.100";

/** The whole lab: two gateways, and four sites of which A has a client and B a web server. */
export const FULL: Layout = layoutOf(["gw1", "gw2"], {
  a: [{ name: "client", last: 3 }],
  b: [{ name: "web", last: 3 }],
  c: [],
  d: [],
});

/** A controller, the gateways, and a site for each edge with its other machines. */
export function layoutOf(gateways: readonly string[], sites: Readonly<Record<string, Site["others"]>>): Layout {
  const names = [CONTROLLER, ...gateways];
  return {
    hosts: names.map((name, at) => ({
      name,
      role: name === CONTROLLER ? "controller" : "gateway",
      net: PUBLIC_NET,
      first: 8 * (at + 1) + 2,
    })),
    sites: Object.entries(sites).map(([edge, others], at) => ({
      name: `site-${edge}`,
      edge,
      others,
      net: ACCESS_NET,
      first: 8 * (at + 1) + 2,
    })),
  };
}

/** The names of those that run an agent, gateways first. */
export function nodesOf({ hosts, sites }: Layout): readonly string[] {
  const gateways = hosts.filter(({ role }) => role === "gateway").map(({ name }) => name);
  return [...gateways, ...sites.map(({ edge }) => edge)];
}

/** Every host that has a network of its own, routers among them. */
export function namesOf(layout: Layout): readonly string[] {
  const sites = layout.sites.flatMap(({ name, edge, others }) => [name, edge, ...others.map(({ name }) => name)]);
  return [INTERNET, ...layout.hosts.map(({ name }) => name), ...sites];
}

/** The site whose edge, or whose router, or one of whose machines has this name. */
export function siteOf({ sites }: Layout, host: string): Site | undefined {
  return sites.find(
    ({ name, edge, others }) => name === host || edge === host || others.some(({ name }) => name === host),
  );
}

/** The address of a public host, or of a site's uplink, after it has moved `moves` times. */
export function addressOf({ net, first }: PublicHost | Site, moves = 0): string {
  return `${net}.${first + (moves % UPLINKS)}`;
}

/** The internet's end of the same link. */
export function providerOf({ net, first }: PublicHost | Site): string {
  return `${net}.${first - 1}`;
}

/** Returns the address of a site's machine in its private network. */
export function privateAddressOf({ edge, others }: Site, host: string): string {
  const last = host === edge ? 2 : (others.find(({ name }) => name === host)?.last ?? 1);
  return `${PRIVATE_NET}.${last}`;
}

/** Begins the names of the network namespaces of a lab; labs in different directories do not meet. */
export function prefixOf(dir: string): string {
  return `lab${createHash("sha256").update(resolve(dir)).digest("hex").slice(0, 5)}-`;
}
