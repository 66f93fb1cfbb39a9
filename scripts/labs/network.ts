// The network namespaces of a lab, their links, addresses, routes and filters.
import { existsSync, readdirSync, readlinkSync, statSync } from "node:fs";
import { join } from "node:path";
import {
  addressOf,
  INTERNET,
  namesOf,
  prefixOf,
  PRIVATE_NET,
  privateAddressOf,
  providerOf,
  type Layout,
  type PublicHost,
  type Site,
} from "./layout.ts";
import { toError } from "../../src/errors.ts";
import { internetRules, linkOf, siteRules } from "./rules.ts";
import { LabError, run } from "./shell.ts";
import type { LabState } from "./state.ts";

const NAMESPACES = "/run/netns";

/** The network of the lab in one directory. */
export class Network {
  readonly #prefix: string;

  constructor(dir: string) {
    this.#prefix = prefixOf(dir);
  }

  /** Put before a command line, to run it on a host. */
  on(host: string): readonly string[] {
    return ["ip", "netns", "exec", `${this.#prefix}${host}`];
  }

  /** The hosts that have a namespace. */
  hosts(): readonly string[] {
    if (!existsSync(NAMESPACES)) return [];
    const names = readdirSync(NAMESPACES).filter((name) => name.startsWith(this.#prefix));
    return names.map((name) => name.slice(this.#prefix.length));
  }

  /** Makes everything that a layout names. */
  build(state: LabState): void {
    const { layout } = state;
    try {
      this.#batch(namesOf(layout).map((name) => `netns add ${this.#prefix}${name}`));
    } catch (error) {
      const hint = "a container needs --privileged for it";
      throw new LabError(`cannot make network namespaces; ${hint}: ${toError(error).message}`, { cause: error });
    }
    const pairs = linksOf(layout).map(
      ([from, name, to, peer]) =>
        `link add name ${name} netns ${this.#prefix}${from} type veth peer name ${peer} netns ${this.#prefix}${to}`,
    );
    this.#batch(pairs);
    for (const [host, lines] of Object.entries(settingsOf(layout))) this.#batch(lines, host);
    const routers = new Set([INTERNET, ...layout.sites.map(({ name }) => name)]);
    // A new namespace has what the machine's own has.
    for (const host of namesOf(layout)) {
      run([...this.on(host), "sh", "-c", `echo ${routers.has(host) ? 1 : 0} > /proc/sys/net/ipv4/ip_forward`]);
    }
    this.enforce(state);
  }

  /** Puts NAT and the faults that packet filters make into force, everywhere. */
  enforce(state: LabState): void {
    const load = (host: string, rules: string): string => run([...this.on(host), "nft", "-f", "-"], rules);
    load(INTERNET, internetRules(state));
    for (const site of state.layout.sites) {
      load(site.name, siteRules(state, site));
      for (const { name } of site.others) {
        const isCut = state.cut.includes(name);
        this.#batch([`link set dev ${name} ${isCut ? "down" : "up"}`], site.name);
      }
    }
  }

  /** Gives a public host, or a site, another public address in place of the one it has. */
  move(at: PublicHost | Site, from: number, to: number): void {
    const link = "role" in at ? "eth0" : "wan";
    this.#batch(
      [
        `address del ${addressOf(at, from)}/29 dev ${link}`,
        `address add ${addressOf(at, to)}/29 dev ${link}`,
        `route replace default via ${providerOf(at)}`,
      ],
      at.name,
    );
  }

  /**
   * Makes sure that a host is there.
   * @throws {LabError} naming those that are.
   */
  requireHost(state: LabState, name: string): void {
    if (!namesOf(state.layout).includes(name) || name === INTERNET) {
      const known = namesOf(state.layout).filter((known) => linkOf(state, known) !== undefined);
      throw new LabError(`no host is called ${name}; there are ${known.join(", ")}`);
    }
  }

  /** The processes of a host. */
  pids(host: string): readonly number[] {
    return this.#pidsOf([host]);
  }

  #pidsOf(hosts: readonly string[]): readonly number[] {
    const spaces = new Set(hosts.map((host) => `net:[${statSync(join(NAMESPACES, `${this.#prefix}${host}`)).ino}]`));
    const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
    return pids.filter((pid) => spaces.has(spaceOf(pid))).map(Number);
  }

  /** Ends every process of every host, by SIGKILL alone if asked, and takes away all there is. */
  async remove({ isAbrupt = false }: { readonly isAbrupt?: boolean } = {}): Promise<void> {
    const hosts = this.hosts();
    const signals = isAbrupt ? (["SIGKILL"] as const) : (["SIGCONT", "SIGTERM", "SIGKILL"] as const);
    for (const signal of signals) {
      const left = (): readonly number[] => this.#pidsOf(hosts);
      for (const pid of left()) end(pid, signal);
      if (signal === "SIGCONT") continue;
      // Agents end quickly, and overlays wait for their flows.
      const deadline = performance.now() + (signal === "SIGTERM" ? 1500 : 5000);
      for (let pids = left(); pids.length > 0 && performance.now() < deadline; pids = left()) {
        // One that was killed may have started another just before.
        if (signal === "SIGKILL") for (const pid of pids) end(pid, signal);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
    this.#batch(hosts.map((host) => `netns del ${this.#prefix}${host}`));
  }

  #batch(lines: readonly string[], host?: string): void {
    if (lines.length === 0) return;
    const where = host === undefined ? [] : ["-n", `${this.#prefix}${host}`];
    run(["ip", ...where, "-batch", "-"], `${lines.join("\n")}\n`);
  }
}

/** Returns the network namespace of a process; empty if it has ended. */
function spaceOf(pid: string): string {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`);
  } catch {
    return "";
  }
}

/** Each cable: host, what it calls its end, the other host, and what that one calls it. */
function linksOf({ hosts, sites }: Layout): readonly (readonly [string, string, string, string])[] {
  return [
    ...hosts.map(({ name }) => [INTERNET, name, name, "eth0"] as const),
    ...sites.flatMap(({ name: site, edge, others }) => [
      [INTERNET, site, site, "wan"] as const,
      ...[edge, ...others.map(({ name }) => name)].map((name) => [site, name, name, "eth0"] as const),
    ]),
  ];
}

/** Returns the `ip` commands of each host. */
function settingsOf(layout: Layout): Readonly<Record<string, readonly string[]>> {
  const settings: Record<string, string[]> = Object.fromEntries(
    namesOf(layout).map((name) => [name, ["link set lo up"]]),
  );
  const set = (host: string, link: string, address: string, gateway?: string): void => {
    settings[host]?.push(
      `address add ${address} dev ${link}`,
      `link set dev ${link} up`,
      ...(gateway === undefined ? [] : [`route add default via ${gateway}`]),
    );
  };
  for (const host of layout.hosts) {
    set(INTERNET, host.name, `${providerOf(host)}/29`);
    set(host.name, "eth0", `${addressOf(host)}/29`, providerOf(host));
  }
  for (const site of layout.sites) {
    set(INTERNET, site.name, `${providerOf(site)}/29`);
    set(site.name, "wan", `${addressOf(site)}/29`, providerOf(site));
    settings[site.name]?.push("link add lan type bridge");
    set(site.name, "lan", `${PRIVATE_NET}.1/24`);
    for (const name of [site.edge, ...site.others.map(({ name }) => name)]) {
      settings[site.name]?.push(`link set dev ${name} master lan up`);
      set(name, "eth0", `${privateAddressOf(site, name)}/24`, `${PRIVATE_NET}.1`);
    }
  }
  return settings;
}

function end(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended by itself.
  }
}
