import { defaultRoute, netmaskOf } from "../../host/network/ip/links.ts";
import type { Link, LinkAddress, Route } from "../../host/network/ip/links.ts";
import type { LinkConfiguration } from "../../host/network/networkd.ts";
import type { OsRelease } from "../../host/machine/os-release.ts";
import type { DiskSpace } from "../../host/files/files.ts";
import type { ShadowMap, ShadowValue } from "../../protocol/values/shadow.ts";

/** Readings of the machine; what is undefined is unknown and not reported. */
export interface MachineReadings {
  readonly memoryTotalBytes: number | undefined;
  readonly cores: number | undefined;
  readonly disk: DiskSpace | undefined;
  readonly os: OsRelease;
  /** The architecture by dpkg's name. */
  readonly architecture: string;
  readonly hostname: string | undefined;
  /** Unix seconds. */
  readonly bootedAt: number | undefined;
  readonly hasTpm: boolean;
  readonly nameServers: readonly string[];
  readonly links: readonly Link[];
  /** The names of the links that the section `network` configures. */
  readonly managed?: ReadonlySet<string>;
  readonly addresses: readonly LinkAddress[];
  readonly routes: readonly Route[];
  readonly linkConfigurations: ReadonlyMap<string, LinkConfiguration>;
}

/** The node's facts about itself. */
export interface NodeReadings {
  readonly packageVersion: string | undefined;
  /** Unix seconds at which the running package was built. */
  readonly builtAt: number | undefined;
  readonly build: string;
  /** Unix seconds of the applied node and domain documents. */
  readonly version: number | undefined;
  readonly domainUpdatedAt: number | undefined;
  /** Unix milliseconds. */
  readonly publishTime: number | undefined;
  /** The facts about the configuration. */
  readonly config: ShadowMap;
  readonly startupError: boolean | undefined;
  readonly isDnsHealthy: boolean | undefined;
  readonly isRepositoryReachable: boolean | undefined;
  readonly isSshLocal: boolean | undefined;
}

type Known = Readonly<Record<string, ShadowValue | undefined>>;

const MEBIBYTE = 1024 * 1024;
const GIGABYTE = 1e9;
const MANAGED_KINDS: ReadonlySet<string> = new Set(["vlan", "bond", "wlan", "wwan"]);

/** Returns the reported shadow: text by default, booleans as text, quantities and times as numbers; unknown keys are absent. */
export function shadowFacts(machine: MachineReadings, node: NodeReadings): ShadowMap {
  const known: Known = {
    ...machineFacts(machine),
    ...nodeFacts(node),
    ...node.config,
    ...Object.fromEntries(reportedLinks(machine).flatMap((link) => Object.entries(linkFacts(link, machine)))),
  };
  const facts: ShadowMap = {};
  for (const [key, value] of Object.entries(known)) {
    if (value !== undefined) facts[key] = value;
  }
  return facts;
}

/** Returns the links to report: those with a device, VLANs and bonds on them, those of the configuration, and the one of the default route. */
export function reportedLinks({
  links,
  routes,
  managed,
}: Pick<MachineReadings, "links" | "routes" | "managed">): readonly Link[] {
  const outward = new Set(([4, 6] as const).map((family) => defaultRoute(routes, family)?.link));
  return links.filter(
    (link) =>
      !link.isLoopback &&
      (link.isPhysical ||
        (link.kind !== undefined && MANAGED_KINDS.has(link.kind)) ||
        outward.has(link.name) ||
        managed?.has(link.name) === true),
  );
}

function machineFacts(machine: MachineReadings): Known {
  const { memoryTotalBytes, disk } = machine;
  return {
    memory: memoryTotalBytes === undefined ? undefined : Math.round(memoryTotalBytes / MEBIBYTE),
    cores: machine.cores,
    storage: disk === undefined ? undefined : gigabytes(disk.freeBytes),
    "storage.total": disk === undefined ? undefined : gigabytes(disk.totalBytes),
    "os.distro.id": machine.os.id,
    "os.distro.version": machine.os.version,
    "os.arch": machine.architecture,
    "os.hostname": machine.hostname,
    "os.boot.tstamp": machine.bootedAt,
    "tpm.enabled": flag(machine.hasTpm),
    ...numbered("os.dns", machine.nameServers),
  };
}

function nodeFacts(node: NodeReadings): Known {
  return {
    "package.version": node.packageVersion,
    "package.built.tstamp": node.builtAt,
    "node-core.version": node.build,
    version: node.version,
    "domain.info.lastUpdate": node.domainUpdatedAt,
    publishTime: node.publishTime,
    "profile.name": "default",
    features: {},
    "updateTime.enabled": "true",
    "startup.error": flag(node.startupError),
    dnsResolution: node.isDnsHealthy === undefined ? undefined : node.isDnsHealthy ? "healthy" : "unhealthy",
    repoConnectivity: flag(node.isRepositoryReachable),
    "ssh.local": flag(node.isSshLocal),
  };
}

function linkFacts(link: Link, machine: MachineReadings): Known {
  const at = `nic.${link.name}`;
  const address = machine.addresses.find(({ link: name, family }) => name === link.name && family === 4);
  const ownRoutes = machine.routes.filter((route) => route.link === link.name);
  const configuration = machine.linkConfigurations.get(link.name);
  return {
    [`${at}.mac`]: link.mac,
    [`${at}.mtu`]: text(link.mtu),
    [`${at}.speed`]: text(link.speedMbps),
    [`${at}.duplex`]: link.duplex,
    [`${at}.dhcp`]: flag(configuration?.usesDhcp ?? false),
    [`${at}.ip`]: address === undefined ? "" : `${address.address}/${address.prefix}`,
    [`${at}.netmask`]: address === undefined ? undefined : netmaskOf(address.prefix),
    [`${at}.gateway`]: defaultRoute(ownRoutes, 4)?.gateway,
    ...numbered(`${at}.dns`, configuration?.nameServers ?? []),
  };
}

function numbered(prefix: string, values: readonly string[]): Known {
  return Object.fromEntries(values.map((value, at) => [`${prefix}${at + 1}`, value]));
}

function flag(value: boolean | undefined): string | undefined {
  return value === undefined ? undefined : String(value);
}

function text(value: number | undefined): string | undefined {
  return value === undefined ? undefined : String(value);
}

/** Rounded to tenths, since a finer value would change all the time. */
function gigabytes(bytes: number): number {
  return Math.round((bytes / GIGABYTE) * 10) / 10;
}
