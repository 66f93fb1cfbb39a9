import { HostError } from "../../../src/errors.ts";
import type { NetworkFeatures } from "../../../src/agent/sections/network/actual.ts";
import type { Change } from "../../../src/host/network/change.ts";
import { firewallDigest } from "../../../src/host/network/firewall/firewall.ts";
import {
  OUR_PROTOCOL,
  type AddressState,
  type LinkState,
  type NetworkState,
  type RouteState,
  type RuleState,
} from "../../../src/host/network/state/state.ts";
import { parseCidr } from "../../../src/lib/net/cidr.ts";

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Initial settings of a link. */
const DEFAULTS: readonly (readonly [string, string])[] = [
  ["rp_filter", "1"],
  ["arp_ignore", "0"],
  ["promote_secondaries", "0"],
];

/** A link for a model: a device that is up by default. */
export function aLink(name: string, more: Partial<LinkState> = {}): LinkState {
  return {
    name,
    index: 2,
    mtu: 1500,
    isUp: true,
    hasCarrier: true,
    operState: "up",
    isOurs: false,
    altnames: [],
    ...more,
  };
}

/** A model of the kernel for the section: accepts lines of ip(8) with their side effects, and refuses what the kernel refuses. */
export class ModelNetwork {
  links: Mutable<LinkState>[];
  addresses: AddressState[];
  routes: RouteState[];
  rules: RuleState[];
  firewall: NetworkState["firewall"];
  sysctls: Map<string, string>;
  dhcp: Set<string>;
  dhcpWithoutGateway: readonly string[];
  leases: NetworkState["leases"];
  nameServers: readonly string[] | undefined;
  /** Applied changes, in order. */
  readonly applied: Change[] = [];
  /** Called before each line of ip(8). */
  onLine: (line: string) => void = () => undefined;
  observations = 0;
  isUsed = false;
  can: NetworkFeatures = { vlan: true, vrf: false, nft: true, dhcp: true, reasons: new Map() };

  constructor(state: Partial<NetworkState> = {}) {
    this.links = structuredClone([...(state.links ?? [])]);
    this.addresses = [...(state.addresses ?? [])];
    this.routes = [...(state.routes ?? [])];
    this.rules = [...(state.rules ?? [])];
    this.firewall = state.firewall;
    this.sysctls = new Map(state.sysctls);
    this.dhcp = new Set(state.dhcp);
    this.dhcpWithoutGateway = state.dhcpWithoutGateway ?? [];
    this.leases = state.leases;
    this.nameServers = state.nameServers;
  }

  state(): NetworkState {
    return structuredClone({
      links: this.links,
      addresses: this.addresses,
      routes: this.routes,
      rules: this.rules,
      ...(this.firewall === undefined ? {} : { firewall: this.firewall }),
      sysctls: this.sysctls,
      dhcp: this.dhcp,
      ...(this.dhcpWithoutGateway.length === 0 ? {} : { dhcpWithoutGateway: this.dhcpWithoutGateway }),
      ...(this.leases === undefined ? {} : { leases: this.leases }),
      ...(this.nameServers === undefined ? {} : { nameServers: this.nameServers }),
    });
  }

  observe(): Promise<NetworkState> {
    this.observations += 1;
    return Promise.resolve(this.state());
  }

  apply(change: Change): Promise<void> {
    try {
      this.#apply(change);
      return Promise.resolve();
    } catch (error) {
      return Promise.reject(error instanceof Error ? error : new Error(String(error)));
    }
  }

  features(): Promise<NetworkFeatures> {
    return Promise.resolve(this.can);
  }

  mayOwn(): Promise<boolean> {
    return Promise.resolve(this.isUsed);
  }

  disown(): Promise<void> {
    this.isUsed = false;
    return Promise.resolve();
  }

  #apply(change: Change): void {
    this.applied.push(change);
    this.isUsed = true;
    switch (change.kind) {
      case "ip":
        for (const line of change.lines) this.line(line);
        break;
      case "nft":
        this.firewall =
          change.text === undefined ? undefined : { digest: firewallDigest(change.text), text: change.text };
        break;
      case "sysctl":
        for (const [name, value] of change.values) this.sysctls.set(name, value);
        break;
      case "ethtool": {
        const link = this.#link(change.link);
        if (change.fixed === undefined) delete link.fixed;
        else link.fixed = change.fixed;
        break;
      }
      case "dhcp":
        this.dhcpWithoutGateway = this.dhcpWithoutGateway.filter((link) => link !== change.link);
        if (change.withoutGateway === true) this.dhcpWithoutGateway = [...this.dhcpWithoutGateway, change.link];
        if (change.run) this.dhcp.add(this.#link(change.link).name);
        else if (this.dhcp.delete(change.link)) this.#release(change.link);
        break;
      case "resolver":
        this.nameServers = change.servers;
    }
  }

  /** One line of `ip -batch`. */
  line(line: string): void {
    this.onLine(line);
    const words = line.split(" ");
    const value = (name: string): string | undefined => {
      const at = words.indexOf(name, 2);
      return at < 0 ? undefined : words[at + 1];
    };
    const refuse = (why: string): never => {
      throw new HostError("ip-failed", `${why}: ${line}`);
    };
    switch (`${words[0]} ${words[1]}`) {
      case "link add":
        return this.#addLink(words, value, refuse);
      case "link property":
        this.#link(value("dev") ?? "");
        return;
      case "link set":
        return this.#setLink(words, value);
      case "link delete":
        return this.#deleteLink(value("dev") ?? "");
      case "address replace": {
        const [link, address] = [this.#link(value("dev") ?? "").name, words[2] ?? ""];
        const found = this.addresses.findIndex((one) => one.link === link && one.address === address);
        const hasNoRoute = words.includes("noprefixroute");
        const isOurs = value("label") !== undefined;
        const made = { link, address, isOurs, isDynamic: false, ...(hasNoRoute ? { hasNoRoute } : {}) };
        if (found < 0) this.addresses.push(made);
        // An address without a mark is in the ledger.
        else this.addresses[found] = { ...(this.addresses[found] ?? made), isDynamic: false, isOurs };
        return;
      }
      case "address delete":
        return this.#deleteAddress(words[2] ?? "", value("dev") ?? "", refuse);
      case "route prepend": {
        const route = this.#route(words, value);
        if (route.link !== undefined && !this.#link(route.link).isUp) return refuse("Network is down");
        if (this.routes.some((other) => sameRoute(other, route))) return refuse("File exists");
        const at = this.routes.findIndex((other) => slot(other) === slot(route));
        this.routes.splice(at < 0 ? this.routes.length : at, 0, route);
        return;
      }
      case "route append": {
        // Entries that the kernel adds with an address are not modelled.
        if (value("proto") === "kernel") return;
        const route = this.#route(words, value);
        const last = this.routes.findLastIndex((other) => slot(other) === slot(route));
        this.routes.splice(last < 0 ? this.routes.length : last + 1, 0, route);
        return;
      }
      case "route delete": {
        const route = this.#route(words, value);
        // The first match is removed, of any source if none is named.
        const at = this.routes.findIndex(({ source, ...other }) =>
          sameRoute(
            {
              ...other,
              isOnLink: route.isOnLink,
              ...(source === undefined || route.source === undefined ? {} : { source }),
            },
            route,
          ),
        );
        if (at < 0) return refuse("No such process");
        this.routes.splice(at, 1);
        return;
      }
      case "rule add": {
        const rule = ruleOf(value);
        if (this.rules.some((other) => sameRule(other, rule))) return refuse("File exists");
        this.rules.push(rule);
        return;
      }
      case "rule delete": {
        const at = this.rules.findIndex((other) => sameRule(other, ruleOf(value)));
        if (at < 0) return refuse("No such file or directory");
        this.rules.splice(at, 1);
        return;
      }
      default:
        return refuse("not a line of ip");
    }
  }

  #link(name: string): Mutable<LinkState> {
    const link = this.links.find((one) => one.name === name);
    if (link === undefined) throw new HostError("ip-failed", `Cannot find device "${name}"`);
    return link;
  }

  #addLink(words: readonly string[], value: Value, refuse: (why: string) => never): void {
    const name = value("name") ?? "";
    if (this.links.some((link) => link.name === name)) refuse("File exists");
    const kind = value("type") ?? "";
    const isVlan = kind === "vlan";
    for (const [sysctl, value] of DEFAULTS) {
      this.sysctls.set(`net.ipv4.conf.${name.replaceAll(".", "/")}.${sysctl}`, value);
    }
    this.links.push(
      aLink(name, {
        kind,
        isOurs: value("group") === String(OUR_PROTOCOL),
        isUp: false,
        mtu: Number(value("mtu") ?? 1500),
        ...(isVlan ? { parent: this.#link(words[words.indexOf("link", 2) + 1] ?? "").name } : {}),
        ...(isVlan ? { vlanId: Number(value("id")) } : {}),
        ...(kind === "vrf" ? { table: Number(value("table")) } : {}),
      }),
    );
  }

  #setLink(words: readonly string[], value: Value): void {
    const link = this.#link(value("dev") ?? "");
    const master = value("master");
    if (words.includes("mtu")) link.mtu = Number(value("mtu"));
    if (words.includes("nomaster")) delete link.master;
    if (master !== undefined) link.master = this.#link(master).name;
    if (words.includes("nomaster") || master !== undefined) this.#flush(link.name);
    if (words.includes("up")) link.isUp = true;
    if (!words.includes("down")) return;
    link.isUp = false;
    this.#flush(link.name);
  }

  #deleteLink(name: string): void {
    this.#link(name);
    for (const child of this.links.filter(({ parent }) => parent === name)) this.#deleteLink(child.name);
    for (const member of this.links.filter(({ master }) => master === name)) {
      delete member.master;
      this.#flush(member.name);
    }
    this.links = this.links.filter((link) => link.name !== name);
    this.addresses = this.addresses.filter(({ link }) => link !== name);
    this.#flush(name);
    for (const sysctl of this.sysctls.keys()) {
      if (sysctl.startsWith(`net.ipv4.conf.${name.replaceAll(".", "/")}.`)) this.sysctls.delete(sysctl);
    }
  }

  #deleteAddress(address: string, link: string, refuse: (why: string) => never): void {
    const own = this.addresses.filter((one) => one.link === link);
    const found = own.find((one) => one.address === address);
    if (found === undefined) return refuse("Cannot assign requested address");
    const subnet = parseCidr(address)?.text;
    const inSubnet = own.filter((one) => parseCidr(one.address)?.text === subnet);
    const isPromoting = this.sysctls.get(`net.ipv4.conf.${link.replaceAll(".", "/")}.promote_secondaries`) === "1";
    const going = new Set(inSubnet[0] === found && !isPromoting ? inSubnet : [found]);
    this.addresses = this.addresses.filter((one) => !going.has(one));
    if (!this.addresses.some((one) => one.link === link)) this.#flush(link);
  }

  /** A client that exits removes its lease's entries. */
  #release(link: string): void {
    const isLeased = (one: AddressState): boolean => one.link === link && one.isDynamic && !one.isOurs;
    for (const { address } of this.addresses.filter(isLeased)) {
      if (this.addresses.some((one) => isLeased(one) && one.address === address)) {
        this.#deleteAddress(address, link, () => {
          throw new HostError("ip-failed", "never");
        });
      }
    }
  }

  /** The kernel drops the routes of a link that is down or without an address. */
  #flush(link: string): void {
    this.routes = this.routes.filter((route) => route.link !== link);
  }

  #route(words: readonly string[], value: Value): RouteState {
    const [via, link, source, scope] = [value("via"), value("dev"), value("src"), value("scope")];
    const kind = words[2];
    if (kind !== "unicast" && kind !== "unreachable" && kind !== "blackhole" && kind !== "prohibit") {
      throw new HostError("ip-failed", `no such route: ${words.join(" ")}`);
    }
    return {
      kind,
      destination: words[3] ?? "",
      table: Number(value("table")),
      metric: Number(value("metric") ?? 0),
      protocol: Number(value("proto")),
      scope: scope === "site" || scope === "link" || scope === "host" ? scope : "global",
      isOnLink: words.includes("onlink"),
      ...(via === undefined ? {} : { via }),
      ...(link === undefined ? {} : { link }),
      ...(source === undefined ? {} : { source }),
    };
  }
}

type Value = (name: string) => string | undefined;

function ruleOf(value: Value): RuleState {
  const [from, to, inLink, outLink, mark] = [value("from"), value("to"), value("iif"), value("oif"), value("fwmark")];
  const suppressed = value("suppress_prefixlength");
  const [bits, mask] = (mark ?? "").split("/").map(Number);
  return {
    priority: Number(value("priority")),
    protocol: Number(value("protocol")),
    table: Number(value("table")),
    ...(suppressed === undefined ? {} : { suppressLength: Number(suppressed) }),
    ...(from === undefined || from === "all" ? {} : { from }),
    ...(to === undefined ? {} : { to }),
    ...(inLink === undefined ? {} : { inLink }),
    ...(outLink === undefined ? {} : { outLink }),
    ...(mark === undefined || bits === undefined ? {} : { mark: bits }),
    ...(mark === undefined || mask === undefined ? {} : { mask }),
  };
}

const slot = ({ table, destination, metric }: RouteState): string => `${table} ${destination} ${metric}`;

const sameRoute = (one: RouteState, other: RouteState): boolean => text(one) === text(other);
const sameRule = (one: RuleState, other: RuleState): boolean => text(one) === text(other);

function text(value: object): string {
  return JSON.stringify(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
