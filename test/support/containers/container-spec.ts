import type { Placement } from "../../../src/agent/sections/exec/compile.ts";
import type { ContainerSpec } from "../../../src/protocol/sections/exec/config.ts";

/** A plain service; `change` replaces parts. */
export function containerSpec(change: Partial<ContainerSpec> = {}): ContainerSpec {
  return {
    id: "3f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c11",
    path: "exec.commands[0]",
    name: "edge-api",
    enabled: true,
    execType: "service",
    image: { repository: "acme.example/team/edge-api", tag: "1.4.2" },
    command: undefined,
    hostname: undefined,
    user: undefined,
    privileged: false,
    useInit: false,
    stopTimeSeconds: 30,
    requireConnectivity: false,
    saveOutput: false,
    schedule: undefined,
    dns: undefined,
    ip: undefined,
    isExtended: true,
    capabilities: { add: [], drop: [] },
    healthCheck: undefined,
    interfaces: [],
    limits: {},
    ulimits: [],
    logging: { maxFileSizeMb: 10, numFiles: 3 },
    mounts: [],
    portMappings: [],
    variables: [],
    virtualNetworks: [],
    vrf: undefined,
    ...change,
  };
}

/** A machine of four cores and 8 GiB, with the volume `data`. */
export function placement(change: Partial<Placement> = {}): Placement {
  return {
    owner: "0f0e0d0c-0000-4000-8000-000000000001",
    host: { cpus: 4, memoryBytes: 8 * 1024 ** 3, diskDevice: "/dev/vda" },
    network: { name: "holdfast-0f0e0d0c" },
    registry: { host: "registry.platform.example:5000", namespace: "acme.example" },
    volumes: (name) =>
      name === "data"
        ? { engineName: "holdfast-0f0e0d0c-data", isEncrypted: false, directory: "/store/volumes/data" }
        : { missing: "is not defined" },
    policy: { allowPrivileged: false, allowBinds: [], allowCapabilities: [] },
    hashKey: Buffer.alloc(32, 7),
    nonce: "nonce-1",
    ...change,
  };
}
