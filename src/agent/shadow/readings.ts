import type { Clock } from "../../host/clock.ts";
import { hasTpm } from "../../host/machine/dmi.ts";
import { parseRoutes, parseRoutes6, readAddresses, readLinks } from "../../host/network/ip/links.ts";
import type { LinkAddress } from "../../host/network/ip/links.ts";
import { readLinkConfiguration } from "../../host/network/networkd.ts";
import { debianArchitecture, readOsRelease } from "../../host/machine/os-release.ts";
import { parseCpuTimes, parseMemory } from "../../host/proc.ts";
import type { Reader } from "../../host/reader.ts";
import { readNameServers } from "../../host/net/resolver.ts";
import type { MachineReadings } from "./facts.ts";

/** Reads the shadow's facts about the machine. Starts no process. `runDir` is the agent's. */
export function readMachine(
  reader: Reader,
  clock: Pick<Clock, "now">,
  addresses: () => readonly LinkAddress[] = readAddresses,
  runDir = "/run/holdfast",
): MachineReadings {
  const text = (path: string): string => reader.read(path) ?? "";
  const cpu = parseCpuTimes(text("/proc/stat"));
  const hostname = text("/proc/sys/kernel/hostname").trim().slice(0, 253);
  const links = readLinks(reader);
  return {
    memoryTotalBytes: parseMemory(text("/proc/meminfo"))?.totalBytes,
    cores: cpu?.cores,
    disk: reader.space("/"),
    os: readOsRelease(reader),
    architecture: debianArchitecture(process.arch),
    hostname: hostname === "" ? undefined : hostname,
    bootedAt: cpu?.bootedAt,
    hasTpm: hasTpm(reader),
    nameServers: readNameServers(reader),
    links,
    addresses: addresses(),
    routes: [...parseRoutes(text("/proc/net/route")), ...parseRoutes6(text("/proc/net/ipv6_route"))],
    linkConfigurations: new Map(
      links.map((link) => [link.name, readLinkConfiguration(reader, link, clock.now(), runDir)] as const),
    ),
  };
}
