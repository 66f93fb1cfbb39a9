import type { MachineReadings, NodeReadings } from "../../../src/agent/shadow/facts.ts";
import type { Link } from "../../../src/host/network/ip/links.ts";

/** A plain physical link that is up. */
export function link(name: string, fields: Partial<Link> = {}): Link {
  return {
    name,
    index: 2,
    mac: "02:00:00:00:00:0a",
    mtu: 1500,
    speedMbps: 1000,
    duplex: "full",
    operState: "up",
    hasCarrier: true,
    isEnabled: true,
    isLoopback: false,
    isPhysical: true,
    kind: undefined,
    ...fields,
  };
}

/** A machine without readings, except `fields`. */
export function machine(fields: Partial<MachineReadings> = {}): MachineReadings {
  return {
    memoryTotalBytes: undefined,
    cores: undefined,
    disk: undefined,
    os: { id: undefined, version: undefined },
    architecture: "amd64",
    hostname: undefined,
    bootedAt: undefined,
    hasTpm: false,
    nameServers: [],
    links: [],
    addresses: [],
    routes: [],
    linkConfigurations: new Map(),
    ...fields,
  };
}

/** A node without readings, except `fields`. */
export function node(fields: Partial<NodeReadings> = {}): NodeReadings {
  return {
    packageVersion: undefined,
    builtAt: undefined,
    build: "source",
    version: undefined,
    domainUpdatedAt: undefined,
    config: {},
    publishTime: undefined,
    startupError: undefined,
    isDnsHealthy: undefined,
    isRepositoryReachable: undefined,
    isSshLocal: undefined,
    ...fields,
  };
}
