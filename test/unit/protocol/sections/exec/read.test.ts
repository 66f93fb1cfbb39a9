import { describe, expect, it } from "vitest";
import type { ContainerSpec } from "../../../../../src/protocol/sections/exec/config.ts";
import { ExecSection } from "../../../../../src/protocol/sections/exec/exec.ts";
import { readExec } from "../../../../../src/protocol/sections/exec/read.ts";
import { triggerEvents } from "../../../../../src/protocol/values/trigger-events.ts";

const NONE = { interfaces: [] };
const A = "3f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c11";
const B = "4f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c11";
const IMAGE = { repository: "acme.example/team/edge-api", tag: "1.4.2" };
const BARE = { id: A, name: "edge-api", execType: "service", image: IMAGE };
/** The example of the description of the sections. */
const FULL = {
  ...BARE,
  enabled: true,
  command: "serve --port 8080",
  user: "1000:1000",
  useInit: true,
  stopTime: 20,
  requireConnectivity: true,
  variables: [{ name: "LOG_LEVEL", value: "info" }],
  mounts: [{ uid: "m1", mountType: "volume", source: "api-data", dest: "/data" }],
  portMappings: [{ uid: "p1", protocol: "tcp", iface: "ens192", hostPort: 8080, containerPort: 8080 }],
  virtualNetworks: [{ uid: "v1", network: "core", ip: "172.21.0.10", allowOutbound: false }],
  limits: { cpuMax: 40, memMax: 512, memHigh: 448, limits: [{ type: "nofile", soft: 4096, hard: 8192 }] },
  healthCheck: { command: "wget -qO- localhost:8080/health", interval: 15, timeout: 5, startPeriod: 20, retries: 3 },
  logging: { maxFileSize: 10, numFiles: 5 },
  capabilities: { addCaps: [], dropCaps: ["NET_RAW"] },
  vrf: { name: "default" },
};
const DEFAULTS: ContainerSpec = {
  id: A,
  path: "exec.commands.0",
  name: "edge-api",
  enabled: true,
  execType: "service",
  image: IMAGE,
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
  isExtended: false,
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
};

const read = (...commands: readonly unknown[]) => readExec({ commands });
const one = (rest: object) => read({ ...BARE, ...rest });
const texts = (issues: readonly { readonly message: string }[]) => issues.map(({ message }) => message);
/** Returns the API's issues in a section with these containers. */
const refused = (...commands: readonly unknown[]): string[] =>
  (ExecSection.safeParse({ commands }).error?.issues ?? []).map(
    ({ path, message }) => `${path.slice(1).join(".")}: ${message}`,
  );

describe("the section exec", () => {
  it.each([
    undefined,
    null,
    {},
    { commands: [], volumes: null, limits: {} },
    { commands: {}, volumes: {}, limits: [] },
  ])("of %j is empty", (raw) => {
    expect(readExec(raw)).toEqual({
      config: { containers: [], volumes: [], limits: {} },
      rejected: [],
      notices: [],
    });
  });

  it.each([
    ["exec: must be an object", []],
    ["exec: must be an object", "x"],
    ["exec.commands: must be an array", { commands: "x" }],
    ["exec.commands: must be an array", { commands: { one: {} } }],
    ["exec.volumes: must be an array", { commands: [BARE], volumes: 7 }],
  ])("that is %s is invalid as a whole", (text, raw) => {
    const { config, rejected, isUnusable } = readExec(raw);
    expect([config.containers, texts(rejected), isUnusable]).toEqual([[], [text], true]);
  });

  it("has defaults for all missing fields", () => {
    expect(read(BARE)).toEqual({
      config: { containers: [DEFAULTS], volumes: [], limits: {} },
      rejected: [],
      notices: [],
    });
  });

  it("is parsed with every part, beside the record or below config", () => {
    const expected: ContainerSpec = {
      ...DEFAULTS,
      command: ["serve", "--port", "8080"],
      user: "1000:1000",
      useInit: true,
      stopTimeSeconds: 20,
      requireConnectivity: true,
      isExtended: true,
      capabilities: { add: [], drop: ["NET_RAW"] },
      healthCheck: {
        test: ["CMD", "wget", "-qO-", "localhost:8080/health"],
        intervalSeconds: 15,
        timeoutSeconds: 5,
        startPeriodSeconds: 20,
        retries: 3,
      },
      limits: { cpuMax: 40, memMaxBytes: 512 * 2 ** 20, memHighBytes: 448 * 2 ** 20 },
      ulimits: [{ type: "nofile", soft: 4096, hard: 8192 }],
      logging: { maxFileSizeMb: 10, numFiles: 5 },
      mounts: [{ kind: "volume", source: "api-data", dest: "/data" }],
      portMappings: [{ protocol: "tcp", iface: "ens192", hostPort: 8080, containerPort: 8080 }],
      variables: [{ name: "LOG_LEVEL", value: "info" }],
      virtualNetworks: [{ network: "core", ip: "172.21.0.10", allowOutbound: false }],
    };
    const full = read(FULL);
    expect(full).toMatchObject({ rejected: [], notices: [] });
    expect(full.config.containers).toEqual([expected]);
    const { variables, mounts, portMappings, virtualNetworks, limits, healthCheck, logging, capabilities, ...record } =
      FULL;
    const config = { variables, mounts, portMappings, virtualNetworks, limits, healthCheck, logging, capabilities };
    expect(read({ ...record, config }).config.containers).toEqual([expected]);
    expect(refused(FULL)).toEqual([]);
  });

  it("accepts a part in any capitals, and of two the correctly spelt one", () => {
    const { healthCheck } = FULL;
    const other = { ...healthCheck, retries: 9 };
    expect(one({ healthcheck: healthCheck, VRF: { name: "red" } }).config.containers).toMatchObject([
      { healthCheck: { retries: 3 }, vrf: "red" },
    ]);
    for (const both of [
      { healthcheck: other, healthCheck },
      { healthCheck, healthcheck: other, config: { healthCheck: other } },
    ]) {
      expect(one(both).config.containers[0]?.healthCheck?.retries).toBe(3);
    }
  });

  it("records that a part was present, even an empty one", () => {
    for (const part of [{ variables: [] }, { VRF: {} }, { config: { mounts: null } }]) {
      expect(one(part).config.containers).toEqual([{ ...DEFAULTS, isExtended: true }]);
    }
    expect(one({ config: {} }).config.containers).toEqual([DEFAULTS]);
  });

  it.each([null, {}, [], ""])("ignores a part that is %j", (unset) => {
    const parts = Object.keys(FULL).filter((name) => !(name in BARE) && typeof Reflect.get(FULL, name) === "object");
    expect(parts.length).toBe(9);
    const { config, rejected, notices } = one(Object.fromEntries(parts.map((name) => [name, unset])));
    expect([config.containers, rejected, notices]).toEqual([[{ ...DEFAULTS, isExtended: true }], [], []]);
  });

  it("reads empty texts and null in the record as absent", () => {
    const blank = { command: "", hostname: "", user: null, dns: "", ip: "", schedule: "", stopTime: null };
    expect(one(blank).config.containers).toEqual([DEFAULTS]);
  });
});

describe("a container with a tolerable mistake", () => {
  const mapping = { protocol: "tcp", iface: "eth0", hostPort: 80, containerPort: 80 };
  it.each<[string, object, Partial<ContainerSpec>, readonly string[]]>([
    ["a number as text", { stopTime: "0" }, { stopTimeSeconds: 0 }, []],
    ["a type in other capitals", { execType: "ONDEMAND" }, { execType: "onDemand" }, []],
    [
      "ports as text and a protocol in capitals",
      { portMappings: [{ ...mapping, protocol: "UDP", hostPort: "53", containerPort: "5353" }] },
      { portMappings: [{ protocol: "udp", iface: "eth0", hostPort: 53, containerPort: 5353 }] },
      [],
    ],
    [
      "mappings without a protocol",
      { portMappings: [{ ...mapping, protocol: "" }, { ...mapping, protocol: "icmp" }, mapping] },
      { portMappings: [{ protocol: "tcp", iface: "eth0", hostPort: 80, containerPort: 80 }] },
      [
        "exec.commands.0.portMappings.0.protocol: is neither tcp nor udp; the mapping is ignored",
        "exec.commands.0.portMappings.1.protocol: is neither tcp nor udp; the mapping is ignored",
      ],
    ],
    [
      "mounts in capitals and with odd slashes",
      { mounts: [{ mountType: "BIND", source: "/srv//x/./", dest: "/data/" }] },
      { mounts: [{ kind: "bind", source: "/srv/x", dest: "/data" }] },
      [],
    ],
    [
      "the other name of a size",
      { logging: { maxLogFileSize: "7" } },
      { logging: { maxFileSizeMb: 7, numFiles: 3 } },
      [],
    ],
    [
      "limits by their old names",
      { limits: { legacyMemMax: 100, legacyMemHigh: 90, memHigh: 50 } },
      { limits: { memMaxBytes: 100 * 2 ** 20, memHighBytes: 50 * 2 ** 20 } },
      [],
    ],
    [
      "limits that contradict one another",
      { limits: { memMax: 100, memHigh: 200, limits: [{ type: "NOFILE", soft: "9", hard: 8 }] } },
      {
        limits: { memMaxBytes: 100 * 2 ** 20, memHighBytes: 100 * 2 ** 20 },
        ulimits: [{ type: "nofile", soft: 8, hard: 8 }],
      },
      [
        "exec.commands.0.limits.memHigh: must not be above memMax; taken as memMax",
        "exec.commands.0.limits.limits.0.soft: must not be above hard; taken as 8",
      ],
    ],
    [
      "limits without limit",
      {
        limits: {
          limits: [
            { type: "core", soft: "-1", hard: -1 },
            { type: "stack", soft: -1, hard: 5 },
          ],
        },
      },
      {
        ulimits: [
          { type: "core", soft: -1, hard: -1 },
          { type: "stack", soft: 5, hard: 5 },
        ],
      },
      ["exec.commands.0.limits.limits.1.soft: must not be above hard; taken as 5"],
    ],
    [
      "absurd limits",
      { limits: { cpuMax: 200, memMax: 1, memHigh: 0, ioRbps: 15, ioWiops: "3", ioWbps: -1 } },
      { limits: { cpuMax: 100, memMaxBytes: 6 * 2 ** 20, ioRbps: 15, ioWiops: 3 } },
      [
        "exec.commands.0.limits.ioWbps: -1 is no limit; the default holds",
        "exec.commands.0.limits.cpuMax: 200 is more than the whole machine; taken as 100",
        "exec.commands.0.limits.memMax: 1 megabytes are too few to run in; taken as 6",
        "exec.commands.0.limits.ioRbps: 15 bytes a second hardly let a program start",
        "exec.commands.0.limits.ioWiops: 3 operations a second hardly let a program start",
      ],
    ],
    [
      "limits of an unknown type",
      { limits: { limits: [{ type: "files", soft: 1, hard: 1 }] } },
      { ulimits: [] },
      ["exec.commands.0.limits.limits.0.type: there is no limit files; ignored"],
    ],
    [
      "capabilities in any spelling",
      { capabilities: { addCaps: ["cap_net_admin", "SYS_TIME", "NET_ADMIN", "FLY"], dropCaps: ["ALL"] } },
      { capabilities: { add: ["NET_ADMIN", "SYS_TIME"], drop: ["ALL"] } },
      ["exec.commands.0.capabilities.addCaps.3: there is no capability FLY; ignored"],
    ],
    [
      "a health check for a shell, with times that mean something else to the engine",
      { healthCheck: { command: "a | b", interval: 0, timeout: "0", retries: 0 } },
      {
        healthCheck: {
          test: ["CMD-SHELL", "a | b"],
          intervalSeconds: 1,
          timeoutSeconds: 1,
          startPeriodSeconds: 0,
          retries: 1,
        },
      },
      [
        "exec.commands.0.healthCheck.interval: 0 is too little; taken as 1",
        "exec.commands.0.healthCheck.timeout: 0 is too little; taken as 1",
        "exec.commands.0.healthCheck.retries: 0 is too little; taken as 1",
      ],
    ],
    [
      "variables twice, empty and as numbers",
      {
        variables: [{ name: "B", value: 5 }, { name: "A" }, { name: "B", value: "secret" }, { name: "C", value: true }],
      },
      {
        variables: [
          { name: "A", value: "" },
          { name: "B", value: "secret" },
          { name: "C", value: "true" },
        ],
      },
      ["exec.commands.0.variables.2.name: B is there already; the last one counts"],
    ],
    [
      "interfaces by name, address and network",
      {
        interfaces: [
          { name: "tun0", dest: "eth1" },
          { name: "tun1", dest: "10.0.0.2" },
          { name: "tun2", dest: "10.0.0.3/24" },
        ],
      },
      {
        interfaces: [
          { name: "tun0", dest: { link: "eth1" } },
          { name: "tun1", dest: { address: "10.0.0.2" } },
          { name: "tun2", dest: { address: "10.0.0.3" } },
        ],
      },
      [],
    ],
    [
      "an address with its length",
      { virtualNetworks: [{ network: "core", ip: "10.0.0.1/32" }] },
      { virtualNetworks: [{ network: "core", ip: "10.0.0.1", allowOutbound: false }] },
      ["exec.commands.0.virtualNetworks.0.ip: is an address without a prefix length; the length is ignored"],
    ],
    ["no VRF", { vrf: { name: "" } }, { vrf: undefined }, []],
    ["a schedule it has no use for", { schedule: "whenever" }, { schedule: undefined }, []],
  ])("is corrected: %s", (_, rest, spec, output) => {
    const { config, rejected, notices } = one(rest);
    expect([texts(rejected), texts(notices)]).toEqual([[], output]);
    expect(config.containers).toMatchObject([spec]);
  });

  it.each<[string, object, Partial<ContainerSpec>]>([
    ["hostname: must be one label of a DNS name", { hostname: "a.b" }, { hostname: undefined }],
    ["privileged: must be true or false", { privileged: "true" }, { privileged: false }],
    ["enabled: must be true or false; taken as false", { enabled: "false" }, { enabled: false }],
    ["stopTime: must be a whole number, 0..86400", { stopTime: -5 }, { stopTimeSeconds: 30 }],
    ["healthCheck: must be an object", { healthCheck: "curl" }, { healthCheck: undefined }],
    ["healthCheck.command: is required", { healthCheck: { retries: 1 } }, { healthCheck: undefined }],
    ["healthCheck.command: has a quote", { healthCheck: { command: "a 'b" } }, { healthCheck: undefined }],
    ["limits.cpuMax: is text, and must be a number", { limits: { cpuMax: "much" } }, { limits: {} }],
    ["logging.numFiles: must be", { logging: { numFiles: 0 } }, { logging: { maxFileSizeMb: 10, numFiles: 3 } }],
    ["portMappings.0.hostPort: must be", { portMappings: [{ ...mapping, hostPort: 0 }] }, { portMappings: [] }],
    ["portMappings.0.containerPort: must be", { portMappings: [{ ...mapping, containerPort: "65536" }] }, {}],
    ["portMappings: must be an array", { portMappings: "80" }, { portMappings: [] }],
    ["portMappings.0: must be an object", { portMappings: [80] }, { portMappings: [] }],
    ["virtualNetworks.0.ip: must be", { virtualNetworks: [{ network: "core", ip: "0.0.0.1" }] }, {}],
    ["interfaces.0.dest: must be", { interfaces: [{ name: "tun0", dest: "300.1.1.1" }] }, { interfaces: [] }],
    ["interfaces.0.name: must be neither the loopback nor", { interfaces: [{ name: "lo", dest: "eth1" }] }, NONE],
    [
      "interfaces.0.name: must be neither the loopback nor",
      { interfaces: [{ name: "holdfast0", dest: "eth1" }] },
      NONE,
    ],
    ["interfaces.0.name: must be neither the loopback nor", { interfaces: [{ name: "hfc0123", dest: "eth1" }] }, NONE],
    ["interfaces.0.name: must be", { interfaces: [{ name: "a b", dest: "eth1" }] }, { interfaces: [] }],
  ])("continues without %s", (text, rest, spec) => {
    const { config, rejected } = one(rest);
    expect(texts(rejected)).toEqual([expect.stringContaining(`exec.commands.0.${text}`)]);
    expect(config.containers).toMatchObject([spec]);
    expect(config).not.toHaveProperty("left");
  });
});

describe("a container that must not run as it is", () => {
  it.each<[string, object]>([
    ["name: is required", { name: undefined }],
    ["name: must be 1..63", { name: "../etc" }],
    ["name: must be 1..63", { name: "a".repeat(64) }],
    ["execType: must be one of", { execType: "on-demand" }],
    ["image: is required", { image: undefined }],
    ["image.tag: must be", { image: { ...IMAGE, tag: "a/b" } }],
    ["image.repository: must be", { image: { ...IMAGE, repository: "a b" } }],
    ["image.repository: must be", { image: { ...IMAGE, repository: "--all" } }],
    ["command: has a quote", { command: "sh -c 'x" }],
    ["user: must be user or user:group", { user: "a b" }],
    ["ip: must be", { ip: "172.18.0.300" }],
    ["schedule: is required", { execType: "recurring" }],
    ["schedule: must be rate", { execType: "recurring", schedule: "0-4294967295 * * * *" }],
    ["capabilities.addCaps.1: ALL is never given", { capabilities: { addCaps: ["NET_ADMIN", "all"] } }],
    ["capabilities.dropCaps: must be a list", { capabilities: { dropCaps: "NET_RAW" } }],
    ["capabilities: must be an object", { capabilities: ["NET_RAW"] }],
    ["mounts.0.dest: must be an absolute path", { mounts: [{ mountType: "volume", source: "a", dest: "data" }] }],
    ["mounts.0.dest: must not be the root", { mounts: [{ mountType: "volume", source: "a", dest: "/" }] }],
    ["mounts.0.source: must be 1..63", { mounts: [{ mountType: "volume", source: "/a", dest: "/data" }] }],
    ["mounts.0.source: must be an absolute path", { mounts: [{ mountType: "bind", source: "/a/../b", dest: "/d" }] }],
    ["mounts.0.mountType: must be one of", { mounts: [{ mountType: "tmpfs", source: "a", dest: "/d" }] }],
    ["mounts.0: must be an object", { mounts: [null] }],
    ["variables: must be an array", { variables: "A=hush" }],
    ["variables.0.name: must be", { variables: [{ name: "A=B", value: "hush" }] }],
    ["variables.0.value: must be text", { variables: [{ name: "A", value: { hush: 1 } }] }],
    ["variables.0.value: must not hold", { variables: [{ name: "A", value: "hush\0" }] }],
    ["vrf.name: must be", { vrf: { name: "a b" } }],
  ])("is left unchanged: %s", (text, rest) => {
    const good = { ...BARE, id: B, name: "good" };
    const { config, rejected } = read({ ...BARE, ...rest }, good);
    expect(texts(rejected)).toEqual([expect.stringContaining(`exec.commands.0.${text}`)]);
    expect(rejected[0]?.id).toBe(A);
    expect(config.containers.map(({ name }) => name)).toEqual(["good"]);
    expect([config.left, config.isPartial]).toEqual([[A], undefined]);
    expect(JSON.stringify(rejected)).not.toContain("hush");
    expect(read({ ...BARE, ...rest, enabled: false }).config).not.toHaveProperty("left");
    expect(refused({ ...BARE, ...rest }, good)).not.toEqual([]);
  });

  it("needs a feature that this build lacks, which the API accepts for a newer one", () => {
    const { config, rejected } = one({ requires: ["teleport"] });
    expect(texts(rejected)).toEqual(["exec.commands.0.requires: not supported: teleport"]);
    expect([config.left, refused({ ...BARE, requires: ["teleport"] })]).toEqual([[A], []]);
  });

  it("cannot be left alone when it cannot be identified", () => {
    for (const nameless of [null, 7, {}, { ...BARE, id: 5 }, { ...BARE, id: "../x" }]) {
      const { config, rejected } = read(nameless, { ...BARE, id: B });
      expect([config.containers.length, config.isPartial, rejected.length]).toEqual([1, true, 1]);
    }
    const many = Array.from({ length: 1001 }, (_, index) => ({ ...BARE, id: `c${index}`, name: `c${index}` }));
    expect(read(...many).config).toMatchObject({ isPartial: true });
    expect(read(...many).config.containers).toHaveLength(1000);
  });

  it("has the name of a trigger event", () => {
    for (const name of [...triggerEvents, "TG-PING"]) {
      expect(texts(one({ name }).rejected)).toEqual([
        `exec.commands.0.name: ${name} is a trigger event of the node already`,
      ]);
      expect(refused({ ...BARE, name })).toEqual([`0.name: ${name} is a trigger event of the node already`]);
    }
  });
});

describe("two containers", () => {
  const other = { ...BARE, id: B, name: "other" };
  const port = { protocol: "tcp", iface: "eth0", hostPort: 80, containerPort: 80 };
  const both = <T>(first: T, second: T): readonly (readonly [T, T])[] => [
    [first, second],
    [second, first],
  ];

  it.each(both(0, 1))("with one name keep the first by id, wherever it is", (a, b) => {
    const pair = [BARE, { ...other, name: "EDGE-api" }];
    const { config, rejected } = read(pair[a], pair[b]);
    expect(config.containers.map(({ id }) => id)).toEqual([A]);
    expect(rejected).toMatchObject([{ code: "E_NAME_DUPLICATE", id: B, other: A, path: `exec.commands.${b}.name` }]);
    expect(config.left).toEqual([B]);
  });

  it.each(both(0, 1))("of which one has the other's name as its host name lose only that", (a, b) => {
    const pair = [BARE, { ...other, name: "db", hostname: "EDGE-api" }];
    const { config, rejected, notices } = read(pair[a], pair[b]);
    expect(rejected).toEqual([]);
    expect(config.containers.map(({ name, hostname }) => [name, hostname])).toEqual([
      ["edge-api", undefined],
      ["db", undefined],
    ]);
    expect(notices).toMatchObject([
      { code: "E_NAME_DUPLICATE", id: B, other: A, path: `exec.commands.${b}.hostname`, message: /edge-api/i },
    ]);
    expect(read({ ...BARE, hostname: "edge-api" }).config.containers[0]?.hostname).toBe("edge-api");
  });

  it.each(both(0, 1))("with one id keep the same of them, wherever it is", (a, b) => {
    const pair = [BARE, { ...other, id: A.toUpperCase() }];
    const { config, rejected } = read(pair[a], pair[b]);
    expect(config.containers).toHaveLength(1);
    expect(config.containers[0]?.name).toBe("other");
    expect(rejected).toMatchObject([{ code: "E_NAME_DUPLICATE", path: `exec.commands.${a}.id` }]);
    expect(config).not.toHaveProperty("left");
  });

  it.each(both(0, 1))("with one port: the second by id runs without", (a, b) => {
    const pair = [
      { ...BARE, portMappings: [port] },
      {
        ...other,
        portMappings: [
          { ...port, containerPort: 81 },
          { ...port, protocol: "udp" },
          { ...port, iface: "eth1" },
        ],
      },
    ];
    const { config, rejected, notices } = read(pair[a], pair[b]);
    expect(config.containers.map(({ portMappings }) => portMappings.length)).toEqual([1, 2]);
    expect(rejected).toEqual([]);
    expect(notices).toMatchObject([
      {
        code: "E_PORT_IN_USE",
        id: B,
        other: A,
        message: expect.stringContaining("tcp 80 on eth0 is taken by the container edge-api; ignored") as string,
      },
    ]);
    expect(refused(pair[a], pair[b])).toEqual([expect.stringContaining("tcp 80 on eth0 is taken")]);
  });

  it("of which the first is disabled do not conflict", () => {
    const ports = { portMappings: [port], ip: "172.18.0.9", interfaces: [{ name: "tun0", dest: "eth1" }] };
    const { config, notices, rejected } = read({ ...BARE, ...ports, enabled: false }, { ...other, ...ports });
    expect([rejected, notices]).toEqual([[], []]);
    expect(config.containers.map(({ portMappings }) => portMappings.length)).toEqual([1, 1]);
  });

  it("with one address, interface or address of a network", () => {
    const taken = { interfaces: [{ name: "tun0", dest: "eth1" }], virtualNetworks: [{ network: "n", ip: "10.0.0.1" }] };
    const { config, notices } = read({ ...BARE, ...taken }, { ...other, ...taken });
    expect(config.containers[1]).toMatchObject({ interfaces: [], virtualNetworks: [] });
    expect(notices.map(({ other: first }) => first)).toEqual([A, A]);
    const pinned = read({ ...BARE, ip: "172.18.0.9" }, { ...other, ip: "172.18.0.9" });
    expect(pinned.config).toMatchObject({ containers: [{ id: A }], left: [B] });
  });

  it("of which one repeats itself", () => {
    expect(one({ portMappings: [port, port] }).config.containers[0]?.portMappings).toHaveLength(1);
    const mount = { mountType: "volume", source: "a", dest: "/data" };
    const { rejected, config } = one({ mounts: [mount, { ...mount, source: "b", dest: "/data/" }] });
    expect(texts(rejected)).toEqual(["exec.commands.0.mounts.1.dest: /data is in exec.commands.0.mounts.0 already"]);
    expect(config.containers).toEqual([]);
  });
});

describe("volumes", () => {
  const volumes = (...list: readonly unknown[]) => readExec({ volumes: list });

  it("have their defaults", () => {
    const { config, rejected } = volumes({ name: "data" }, { name: "secret", encrypted: true, location: "a//b/" });
    expect(rejected).toEqual([]);
    expect(config.volumes).toEqual([
      { path: "exec.volumes.0", name: "data", encrypted: false, location: undefined },
      { path: "exec.volumes.1", name: "secret", encrypted: true, location: "a/b" },
    ]);
  });

  it("are left unchanged when they cannot be parsed", () => {
    for (const rest of [
      { encrypted: "yes" },
      { location: "../etc" },
      { location: "a/../../b" },
      { location: "a\nb" },
    ]) {
      const { config, rejected } = volumes({ name: "data", ...rest }, { name: "good" });
      expect([rejected.length, config.leftVolumes, config.isPartial]).toEqual([1, ["data"], undefined]);
      expect(config.volumes.map(({ name }) => name)).toEqual(["good"]);
    }
    for (const nameless of [null, {}, { name: 7 }, { name: "../x" }]) {
      expect(volumes(nameless).config).toMatchObject({ volumes: [], isPartial: true });
    }
  });

  it("share neither name nor path", () => {
    const { config, rejected } = volumes({ name: "b", location: "volumes/a" }, { name: "a" }, { name: "a" });
    expect(config.volumes.map(({ name }) => name)).toEqual(["a"]);
    expect(config.leftVolumes).toEqual(["b"]);
    expect(rejected.map(({ path }) => path)).toEqual(["exec.volumes.2.name", "exec.volumes.0.location"]);
  });

  it("have a leading slash removed", () => {
    const { config, notices } = volumes({ name: "a", location: "/x/y" });
    expect([config.volumes[0]?.location, notices.length]).toEqual(["x/y", 1]);
  });
});

describe("the limits for all containers", () => {
  it.each<[object, object, number]>([
    [{ memMax: 512, memHigh: 1_048_576 }, { memMaxBytes: 512 * 2 ** 20, memHighBytes: 1_048_576 }, 0],
    [{ memMax: 2_147_483_648, cpuMax: "250" }, { memMaxBytes: 2 ** 31, cpuMax: 250 }, 0],
    [{ memMax: 100, memHigh: 104_857_601 }, { memMaxBytes: 100 * 2 ** 20, memHighBytes: 100 * 2 ** 20 }, 1],
    [{ memMax: 0, cpuMax: -1 }, {}, 1],
  ])("%j become %j", (limits, expected, output) => {
    const { config, notices, rejected } = readExec({ limits });
    expect([config.limits, notices.length, rejected]).toEqual([expected, output, []]);
  });

  it("that are invalid are ignored", () => {
    expect(readExec({ limits: "much" })).toMatchObject({ config: { limits: {} }, rejected: [{ path: "exec.limits" }] });
    expect(readExec({ limits: { cpuMax: [], memMax: 64 } })).toMatchObject({
      config: { limits: { memMaxBytes: 64 * 2 ** 20 } },
      rejected: [{ path: "exec.limits.cpuMax" }],
    });
  });
});
