import { describe, expect, test } from "vitest";
import { compileContainer, type Compiled, type Placement } from "../../../../../src/agent/sections/exec/compile.ts";
import type { ContainerSpec } from "../../../../../src/protocol/sections/exec/config.ts";
import { containerSpec, placement } from "../../../../support/containers/container-spec.ts";

function compiled(spec: Partial<ContainerSpec> = {}, where: Partial<Placement> = {}): Compiled {
  const result = compileContainer(containerSpec(spec), placement(where));
  if ("refused" in result) throw new Error(result.refused);
  return result;
}

describe("a definition", () => {
  test("without fields gets the defaults", () => {
    const { body, image, hash, warnings } = compiled();
    expect(image).toEqual({
      reference: "registry.platform.example:5000/acme.example/team/edge-api:1.4.2",
      isFromRegistry: true,
      isPinned: false,
    });
    expect(warnings).toEqual([]);
    expect(body).toEqual({
      Image: image.reference,
      Hostname: "edge-api",
      Env: [],
      StopTimeout: 30,
      Labels: {
        "io.holdfast.owner": "0f0e0d0c-0000-4000-8000-000000000001",
        "io.holdfast.container": "3f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c11",
        "io.holdfast.hash": hash,
        "io.holdfast.nonce": "nonce-1",
        "io.holdfast.type": "service",
      },
      HostConfig: {
        NanoCpus: 2e9,
        Memory: 4 * 1024 ** 3,
        MemorySwap: 4 * 1024 ** 3,
        Init: false,
        Privileged: false,
        CapAdd: [],
        CapDrop: [],
        Mounts: [],
        NetworkMode: "holdfast-0f0e0d0c",
        LogConfig: { Type: "local", Config: { "max-size": "10m", "max-file": "3" } },
        RestartPolicy: { Name: "unless-stopped" },
        PidsLimit: 4096,
        OomScoreAdj: 500,
      },
      NetworkingConfig: { EndpointsConfig: { "holdfast-0f0e0d0c": { Aliases: ["edge-api"] } } },
    });
  });

  test("with all fields has each in its place", () => {
    const { body, memoryHighBytes, update } = compiled(
      {
        command: ["serve", "--port", "8080"],
        hostname: "api",
        user: "1000:1000",
        useInit: true,
        stopTimeSeconds: 20,
        saveOutput: true,
        dns: "9.9.9.9",
        ip: "172.18.0.9",
        capabilities: { add: ["SYS_NICE", "NET_ADMIN"], drop: ["NET_RAW"] },
        healthCheck: {
          test: ["CMD", "true"],
          intervalSeconds: 0,
          timeoutSeconds: 2.5,
          startPeriodSeconds: 0,
          retries: 0,
        },
        limits: { cpuMax: 25, memMaxBytes: 64 * 1024 ** 2, memHighBytes: 32 * 1024 ** 2, ioRbps: 1e6 },
        ulimits: [{ type: "nofile", soft: 10, hard: 20 }],
        logging: { maxFileSizeMb: 5, numFiles: 1 },
        mounts: [
          { kind: "volume", source: "data", dest: "/data" },
          { kind: "bind", source: "/srv/x", dest: "/conf" },
        ],
        variables: [
          { name: "A", value: "" },
          { name: "B", value: "x=y z" },
        ],
      },
      { address: "172.18.0.200", cgroupParent: "/holdfast-containers", network: { name: "n", resolver: "172.18.1.2" } },
    );
    expect(body).toMatchObject({
      Cmd: ["serve", "--port", "8080"],
      Hostname: "api",
      User: "1000:1000",
      Env: ["A=", "B=x=y z"],
      StopTimeout: 20,
      Healthcheck: { Test: ["CMD", "true"], Interval: 1e9, Timeout: 2.5e9, StartPeriod: 0, Retries: 1 },
      HostConfig: {
        NanoCpus: 1e9,
        Memory: 64 * 1024 ** 2,
        MemorySwap: 64 * 1024 ** 2,
        BlkioDeviceReadBps: [{ Path: "/dev/vda", Rate: 1e6 }],
        Ulimits: [{ Name: "nofile", Soft: 10, Hard: 20 }],
        CgroupParent: "/holdfast-containers",
        Dns: ["9.9.9.9"],
        Init: true,
        CapAdd: ["NET_ADMIN", "SYS_NICE"],
        CapDrop: ["NET_RAW"],
        LogConfig: { Type: "json-file", Config: { "max-size": "5m", "max-file": "1" } },
        Mounts: [
          { Type: "bind", Source: "/srv/x", Target: "/conf", BindOptions: { Propagation: "rprivate" } },
          {
            Type: "volume",
            Source: "holdfast-0f0e0d0c-data",
            Target: "/data",
            VolumeOptions: {
              Labels: { "io.holdfast.owner": "0f0e0d0c-0000-4000-8000-000000000001" },
              DriverConfig: { Name: "local", Options: { type: "none", o: "bind", device: "/store/volumes/data" } },
            },
          },
        ],
      },
      NetworkingConfig: {
        EndpointsConfig: { n: { Aliases: ["edge-api"], IPAMConfig: { IPv4Address: "172.18.0.9" } } },
      },
    });
    expect(memoryHighBytes).toBe(32 * 1024 ** 2);
    expect(update).toEqual({ NanoCpus: 1e9, Memory: 64 * 1024 ** 2, MemorySwap: 64 * 1024 ** 2 });
  });

  test("is restarted by the engine only as a service whose volumes are open", () => {
    const policyOf = (spec: Partial<ContainerSpec>, isEncrypted = false): unknown =>
      compiled(
        { mounts: [{ kind: "volume", source: "data", dest: "/d" }], ...spec },
        { volumes: () => ({ engineName: "v", isEncrypted }) },
      ).body["HostConfig"];
    expect(policyOf({})).toMatchObject({ RestartPolicy: { Name: "unless-stopped" } });
    expect(policyOf({}, true)).toMatchObject({ RestartPolicy: { Name: "no" } });
    expect(policyOf({ execType: "recurring" })).toMatchObject({ RestartPolicy: { Name: "no" } });
    expect(policyOf({ execType: "onDemand" })).toMatchObject({ RestartPolicy: { Name: "no" } });
  });

  test("publishes ports through the engine only on request", () => {
    const portMappings = [
      { protocol: "tcp", iface: "eth0", hostPort: 80, containerPort: 8080 },
      { protocol: "tcp", iface: "eth1", hostPort: 81, containerPort: 8080 },
      { protocol: "udp", iface: "gone", hostPort: 82, containerPort: 53 },
    ] as const;
    expect(JSON.stringify(compiled({ portMappings }).body)).not.toMatch(/Port/);
    const addresses: Readonly<Record<string, string>> = { eth0: "10.0.0.1", eth1: "10.1.0.1" };
    const { body, warnings } = compiled({ portMappings }, { publishes: (iface) => addresses[iface] });
    expect(body).toMatchObject({
      ExposedPorts: { "8080/tcp": {} },
      HostConfig: {
        PortBindings: {
          "8080/tcp": [
            { HostIp: "10.0.0.1", HostPort: "80" },
            { HostIp: "10.1.0.1", HostPort: "81" },
          ],
        },
      },
    });
    expect(warnings).toEqual(["portMappings: port 82 is not published, since gone has no address"]);
  });

  test("does not compress old output if there is none, and uses only what Podman supports", () => {
    const one = { logging: { maxFileSizeMb: 1, numFiles: 1 } };
    expect(compiled(one).body["HostConfig"]).toMatchObject({
      LogConfig: { Type: "local", Config: { "max-file": "1", compress: "false" } },
    });
    expect(compiled(one, { product: "podman" }).body["HostConfig"]).toMatchObject({
      LogConfig: { Type: "k8s-file", Config: { "max-size": "1m" } },
    });
  });

  test("without a host name uses its own name, without another alias for its siblings", () => {
    expect(compiled({ name: "edge_api.1" }).body).toMatchObject({
      Hostname: "edge_api.1",
      NetworkingConfig: { EndpointsConfig: { "holdfast-0f0e0d0c": { Aliases: ["edge_api.1"] } } },
    });
  });
});

test("refuses what cannot run with the reason, and whether that may pass", () => {
  const refusal = (spec: Partial<ContainerSpec>) => compileContainer(containerSpec(spec), placement());
  expect(refusal({ privileged: true })).toEqual({
    refused: expect.stringMatching(/^privileged: /) as unknown,
    isPassing: false,
  });
  expect(refusal({ image: { repository: "a b", tag: "1" } })).toMatchObject({ isPassing: false });
  expect(refusal({ mounts: [{ kind: "volume", source: "nope", dest: "/d" }] })).toEqual({
    refused: "volume nope: is not defined",
    isPassing: true,
  });
});

describe("the hash", () => {
  const full: Partial<ContainerSpec> = {
    command: ["a", "b"],
    variables: [
      { name: "A", value: "1" },
      { name: "B", value: "2" },
    ],
    mounts: [
      { kind: "bind", source: "/a", dest: "/1" },
      { kind: "bind", source: "/b", dest: "/2" },
    ],
    capabilities: { add: ["NET_ADMIN", "SYS_NICE"], drop: ["KILL", "NET_RAW"] },
    ulimits: [
      { type: "core", soft: 0, hard: 0 },
      { type: "nofile", soft: 1, hard: 2 },
    ],
  };
  const { hash } = compiled(full);

  test("stays the same over releases: another one replaces every container of every node", () => {
    expect(hash).toBe("8c054dda99c24d6845fb32b31f1dbe1ef74e02e94809330667d1943ff2baa31e");
  });

  test("does not depend on the order of sets", () => {
    const turned = Object.fromEntries(
      Object.entries(full).map(([key, value]) => [
        key,
        key !== "command" && Array.isArray(value) ? value.toReversed() : value,
      ]),
    );
    const capabilities = { add: ["SYS_NICE", "NET_ADMIN"], drop: ["NET_RAW", "KILL"] };
    expect(compiled({ ...turned, capabilities }).hash).toBe(hash);
  });

  test.each<[string, Partial<ContainerSpec>, Partial<Placement>?]>([
    ["processor and memory", { limits: { cpuMax: 1, memMaxBytes: 1e9, memHighBytes: 1e8 } }],
    [
      "ports, routes and links",
      { vrf: "red", portMappings: [{ protocol: "tcp", iface: "e", hostPort: 1, containerPort: 1 }] },
    ],
    ["virtual networks", { virtualNetworks: [{ network: "n", ip: "1.2.3.4", allowOutbound: true }] }],
    ["the place in the document", { path: "x", isExtended: false, enabled: false }],
    ["the schedule", { schedule: { kind: "cron", text: "* * * * *" } }],
    ["connectivity", { requireConnectivity: true }],
    ["the registry's host", {}, { registry: { host: "new.example", namespace: "acme.example" } }],
    ["the nonce", {}, { nonce: "other" }],
    ["the size of the machine", {}, { host: { cpus: 64, memoryBytes: 1e12 } }],
  ])("ignores %s", (_what, spec, where = {}) => {
    expect(compiled({ ...full, ...spec }, where).hash).toBe(hash);
  });

  test.each<[string, Partial<ContainerSpec>, Partial<Placement>?]>([
    ["image", { image: { repository: "acme.example/team/edge-api", tag: "1.4.3" } }],
    ["command order", { command: ["b", "a"] }],
    ["no command", { command: undefined }],
    ["variable", { variables: [{ name: "A", value: "2" }] }],
    ["variable's borders", { variables: [{ name: "A", value: '1"],["B","2' }] }],
    ["mount", { mounts: [] }],
    ["capability", { capabilities: { add: [], drop: [] } }],
    ["address", { ip: "172.18.0.7" }],
    ["kept address", {}, { address: "172.18.0.7" }],
    ["name", { name: "other" }],
    ["type", { execType: "onDemand" }],
    ["I/O rate", { limits: { ioRbps: 1e6 } }],
    ["kind of log", { saveOutput: true }],
    ["key", {}, { hashKey: Buffer.alloc(32, 8) }],
  ])("changes with the %s", (_what, spec, where = {}) => {
    expect(compiled({ ...full, ...spec }, where).hash).not.toBe(hash);
  });

  test("of the limits changes only with them and with the machine", () => {
    const limits = compiled(full).limitsHash;
    expect(compiled({ ...full, name: "other" }).limitsHash).toBe(limits);
    expect(compiled({ ...full, limits: { cpuMax: 10 } }).limitsHash).not.toBe(limits);
    expect(compiled({ ...full, limits: { memHighBytes: 1e8 } }).limitsHash).not.toBe(limits);
    expect(compiled(full, { host: { cpus: 64, memoryBytes: 1e12 } }).limitsHash).not.toBe(limits);
  });
});

test("no label has the value of a variable", () => {
  const { body } = compiled({ variables: [{ name: "TOKEN", value: "s3cr3t-value" }] });
  expect(JSON.stringify(body["Labels"])).not.toMatch(/s3cr3t/);
  expect(body["Env"]).toEqual(["TOKEN=s3cr3t-value"]);
});
