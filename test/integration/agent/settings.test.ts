import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { keepSettings, optionNames, readSettings } from "../../../src/agent/settings.ts";
import { agentVerb } from "../../../src/cli/verbs/programs/agent.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { identityFiles } from "../../../src/agent/identity/identity.ts";
import { ISS, keysClaims, nodeIdentity, signingKey } from "../../support/control-plane/signing.ts";
import { tempDir } from "../../support/temp-dir.ts";

const VARIABLES = [
  "HOLDFAST_STATE",
  "HOLDFAST_RUN",
  "HOLDFAST_LOG_LEVEL",
  "HTTPS_PROXY",
  "https_proxy",
  "NO_PROXY",
  "no_proxy",
  "NODE_EXTRA_CA_CERTS",
  "HOLDFAST_UNIT",
  "NOTIFY_SOCKET",
  "WATCHDOG_USEC",
  "WATCHDOG_PID",
];

afterEach(() => {
  vi.unstubAllEnvs();
});

function read(argv: readonly string[], file?: string, env: Record<string, string> = {}) {
  for (const name of VARIABLES) vi.stubEnv(name, env[name]);
  const root = tempDir();
  if (file !== undefined) {
    const path = join(root, "etc/holdfast/agent.json");
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, file);
  }
  return readSettings(argv, hostFiles(root));
}

describe("settings", () => {
  test("have defaults for everything", async () => {
    expect(await read([])).toMatchObject({
      stateDir: "/var/lib/holdfast",
      runDir: "/run/holdfast",
      logLevel: "info",
      proxies: { noProxy: [] },
      unit: undefined,
      engineSocket: undefined,
      containers: { allowPrivileged: false, allowBinds: [], allowCapabilities: [] },
    });
  });

  test("take the name of the unit from systemd, unless the file has another", async () => {
    const env = { HOLDFAST_UNIT: "holdfast-agent.service", NOTIFY_SOCKET: "/run/notify", WATCHDOG_USEC: "60000000" };
    expect(await read([], undefined, env)).toMatchObject({
      unit: "holdfast-agent.service",
      overlay: { stateDir: "/var/lib/holdfast-overlay", runDir: "/run/holdfast-overlay" },
      supervision: { notifySocket: "/run/notify", watchdogMs: 60_000 },
    });
    expect(await read([], '{"unit":"own.service"}', env)).toMatchObject({ unit: "own.service" });
    expect(await read([], undefined, { HOLDFAST_UNIT: "" })).toMatchObject({ unit: undefined });
    await expect(read([], undefined, { HOLDFAST_UNIT: "a b" })).rejects.toThrow(/HOLDFAST_UNIT: .*service unit/);
  });

  test("make an appliance of the machine by default", async () => {
    expect(await read([])).toMatchObject({ profile: "appliance" });
    expect(await read([], '{"profile":"agent"}')).toMatchObject({ profile: "agent" });
    await expect(read([], '{"profile":"router"}')).rejects.toMatchObject({ code: "bad-settings" });
  });

  test("set what containers may have", async () => {
    const containers = { allowPrivileged: true, allowBinds: ["/srv"], allowCapabilities: ["SYS_TIME", "CAP_BPF"] };
    const file = JSON.stringify({ engineSocket: "/run/podman/podman.sock", containers });
    expect(await read([], file)).toMatchObject({ engineSocket: "/run/podman/podman.sock", containers });
    expect(await read([], '{"containers":{"allowBinds":["/srv"]}}')).toMatchObject({
      containers: { allowPrivileged: false, allowBinds: ["/srv"], allowCapabilities: [] },
    });
  });

  test("set the literal addresses that connectors of other nodes may reach", async () => {
    expect(await read([])).not.toHaveProperty("literals");
    expect(await read([], '{"services":{"allowOwnAddresses":true}}')).not.toHaveProperty("literals");
    const allow = ["10.0.8.0/24", "2001:db8::7"];
    expect(await read([], JSON.stringify({ services: { allowAddresses: allow } }))).toMatchObject({
      literals: { allow },
    });
    const both = JSON.stringify({ services: { allowAddresses: allow, allowOwnAddresses: true } });
    expect(await read([], both)).toMatchObject({ literals: { allow, own: true } });
    await expect(read([], '{"services":{"allowAddresses":["10.0.0.0/33"]}}')).rejects.toThrow(/allowAddresses\.0/);
  });

  test("prefer the command line to the environment, and the file to both", async () => {
    const env = {
      HOLDFAST_STATE: "/env/state",
      HOLDFAST_RUN: "/env/run",
      HOLDFAST_LOG_LEVEL: "warn",
      HTTPS_PROXY: "http://env.example:1",
      NO_PROXY: "a.example, b.example",
    };
    expect(await read(["--state", "/x"], undefined, env)).toMatchObject({
      stateDir: "/x",
      runDir: "/env/run",
      logLevel: "warn",
      proxies: { https: new URL("http://env.example:1"), noProxy: ["a.example", "b.example"] },
    });
    const file = JSON.stringify({
      logLevel: "debug",
      proxy: "http://file.example:2",
      noProxy: ["c.example"],
      unit: "h.service",
      hosts: { "CP.example": ["192.0.2.7", "2001:db8::7"] },
    });
    expect(await read([], file, env)).toMatchObject({
      hosts: { "cp.example": ["192.0.2.7", "2001:db8::7"] },
      logLevel: "debug",
      proxies: { https: new URL("http://file.example:2"), noProxy: ["c.example"] },
      unit: "h.service",
    });
  });

  test.each([
    ["--stat", ["--stat", "/x"]],
    ["a positional", ["x"]],
    ["an option without its value", ["--state"]],
  ])("refuse %s as usage", async (_what, argv) => {
    await expect(read(argv)).rejects.toMatchObject({ name: "InputError", code: "usage" });
  });

  test.each([
    ["no JSON", "{", /agent\.json: not JSON/],
    ["a list", "[]", /agent\.json: /],
    ["an unknown level", '{"logLevel":"loud"}', /logLevel: /],
    ["an https proxy", '{"proxy":"https://p.example"}', /proxy: must be an http/],
    ["a unit that is none", '{"unit":"../x.service"}', /unit: /],
    ["a speed test by file", '{"speedTestUrl":"file:///etc/passwd"}', /speedTestUrl: /],
    ["a host that is an address", '{"hosts":{"192.0.2.1":["192.0.2.2"]}}', /hosts/],
    ["a host at a name", '{"hosts":{"cp.example":["other.example"]}}', /hosts\.cp\.example\.0: must be an IPv4/],
    ["a host at nothing", '{"hosts":{"cp.example":[]}}', /hosts\.cp\.example: /],
    ["no transfer at a time", '{"dataStore":{"maxTransfers":0}}', /dataStore\.maxTransfers: /],
    ["a unit of nothing", '{"dataStore":{"maxBandwidth":{"value":1,"unit":"bps"}}}', /dataStore\.maxBandwidth\.unit: /],
    [
      "a block that is none",
      '{"dataStore":{"allowAddresses":["10.0.0.0/33"]}}',
      /dataStore\.allowAddresses\.0: must be/,
    ],
    ["a bucket without a name", '{"dataStore":{"s3":[{"region":"x"}]}}', /dataStore\.s3\.0\.bucket: /],
    [
      "credentials that are no path",
      '{"dataStore":{"s3":[{"bucket":"*","credentials":"key:secret"}]}}',
      /dataStore\.s3\.0\.credentials: must be an absolute path/,
    ],
    ["a relative socket", '{"engineSocket":"run/docker.sock"}', /engineSocket: must be an absolute path/],
    [
      "a bind that goes up",
      '{"containers":{"allowBinds":["/srv/../etc"]}}',
      /containers\.allowBinds.*: must be an absolute/,
    ],
    ["a capability that is none", '{"containers":{"allowCapabilities":["all;"]}}', /containers\.allowCapabilities/],
    ["a forbidden key", '{"__proto__":{}}', /__proto__/],
  ])("refuse a file with %s and name it", async (_what, text, why) => {
    const refused = read([], text);
    await expect(refused).rejects.toMatchObject({ name: "InputError", code: "bad-settings" });
    await expect(refused).rejects.toThrow(why);
  });

  test("ignore and name what this version does not support, and use the rest", async () => {
    const text = JSON.stringify({
      logLevel: "debug",
      logLevle: "info",
      containers: { allowAll: true, allowPrivileged: true },
      dataStore: { s3: [{ bucket: "*", moon: 1 }] },
    });
    const settings = await read([], text);
    expect(settings).toMatchObject({
      logLevel: "debug",
      containers: { allowPrivileged: true },
      dataStore: { buckets: [{ bucket: "*" }] },
      problems: [{ code: "unknown-setting" }],
      fileText: text,
    });
    for (const name of ["logLevle", "containers.allowAll", "dataStore.s3.0.moon"])
      expect(settings.problems?.[0]?.message).toContain(name);
  });

  test.each([
    ["an empty file", ""],
    ["half a file", '{"logLevel":"wa'],
    ["a wrong value", '{"logLevel":"loud"}'],
  ])("are those of the last good start in place of %s", async (_what, text) => {
    const root = tempDir();
    const files = hostFiles(root);
    for (const path of ["etc/holdfast", "state/reported"]) mkdirSync(join(root, path), { recursive: true });
    const write = (content: string): void => writeFileSync(join(root, "etc/holdfast/agent.json"), content);
    const argv = ["--state", "/state"];
    write(text);
    await expect(readSettings(argv, files)).rejects.toMatchObject({ code: "bad-settings" });
    write('{"logLevel":"warn","profile":"agent"}');
    const good = await readSettings(argv, files);
    await keepSettings(files, "/state", good.fileText ?? "");
    write(text);
    const { logLevel, profile, problems, fileText } = await readSettings(argv, files);
    expect({ logLevel, profile, fileText }).toEqual({ logLevel: "warn", profile: "agent", fileText: undefined });
    expect(problems).toMatchObject([
      { code: "bad-settings", message: expect.stringContaining("agent.json") as string },
    ]);
  });

  describe("with an invalid file", () => {
    async function machine(place: (path: string) => void) {
      for (const name of VARIABLES) vi.stubEnv(name, undefined);
      const root = tempDir();
      for (const path of ["etc/holdfast", "state/reported", "state/identity"])
        mkdirSync(join(root, path), { recursive: true });
      place(join(root, "etc/holdfast/agent.json"));
      const files = hostFiles(root);
      return { files, read: () => readSettings(["--state", "/state"], files) };
    }
    const pipe = (path: string): void => void execFileSync("mkfifo", [path]);

    test.each([
      ["a pipe", pipe],
      ["a device", (path: string): void => symlinkSync("/dev/zero", path)],
      ["a directory", (path: string): void => mkdirSync(path)],
    ])("are those of the last good start in place of %s", async (_what, place) => {
      const { files, read } = await machine(place);
      await expect(read()).rejects.toMatchObject({ code: "bad-settings" });
      await keepSettings(files, "/state", '{"logLevel":"warn"}');
      const { logLevel, problems } = await read();
      expect(logLevel).toBe("warn");
      expect(problems).toMatchObject([
        { code: "bad-settings", message: expect.stringContaining("agent.json") as string },
      ]);
    });

    test.each([
      ["Agent", "agent"],
      ["Node", "appliance"],
    ] as const)("are the defaults on a registered %s without a good copy", async (type, profile) => {
      const { files, read } = await machine(pipe);
      const key = await signingKey();
      const registration = {
        node: { ...nodeIdentity, type },
        controlPlane: { iss: ISS, keys: keysClaims(key, [key]) },
      };
      await identityFiles(files, "/state").registration.save(registration);
      const settings = await read();
      expect(settings).toMatchObject({
        profile,
        containers: { allowPrivileged: false, allowBinds: [], allowCapabilities: [] },
        problems: [{ code: "bad-settings", message: expect.stringContaining("the defaults") as string }],
        fileText: undefined,
      });
      expect(settings.literals).toBeUndefined();
    });
  });

  test("set what the data store may use, with defaults", async () => {
    expect((await read([])).dataStore).toEqual({
      maxBytes: undefined,
      reserveRatio: 0.1,
      maxTransfers: 2,
      maxBytesPerSecond: undefined,
      maxRequests: 10,
      allowAddresses: [],
      proxyNames: [],
      buckets: [],
      caFile: undefined,
    });
    const file = {
      maxBytes: 5,
      reservePercent: 20,
      maxBandwidth: { value: 100, unit: "Mbps" },
      allowAddresses: ["10.0.0.0/8"],
      proxyNames: ["files.example"],
      s3: [{ bucket: "*", endpoint: "http://s3.example:9000", pathStyle: true, credentials: "/etc/holdfast/s3.json" }],
    };
    expect((await read([], JSON.stringify({ dataStore: file }))).dataStore).toMatchObject({
      maxBytes: 5,
      reserveRatio: 0.2,
      maxBytesPerSecond: 12_500_000,
      allowAddresses: ["10.0.0.0/8"],
      proxyNames: ["files.example"],
      buckets: file.s3,
    });
  });

  test("refuse a missing named file, and an invalid proxy variable, without printing it", async () => {
    await expect(read(["--config", "/no.json"])).rejects.toThrow("/no.json does not exist");
    const refused = read([], undefined, { HTTPS_PROXY: "socks5://user:secret@p" });
    await expect(refused).rejects.toThrow(/^HTTPS_PROXY: /);
    await expect(refused).rejects.not.toThrow(/secret/);
  });
});

test("refuses an unknown level in the environment by name", async () => {
  await expect(read([], undefined, { HOLDFAST_LOG_LEVEL: "loud" })).rejects.toThrow(/^HOLDFAST_LOG_LEVEL: /);
});

test("resolves relative directories from the working directory of the start", async () => {
  expect(await read(["--state", "s", "--run", "./r"])).toMatchObject({
    stateDir: join(process.cwd(), "s"),
    runDir: join(process.cwd(), "r"),
  });
});

test("the help lists every option", () => {
  const shown = Object.keys(agentVerb.options);
  expect(shown.filter((name) => name !== "help").sort()).toEqual([...optionNames].sort());
});

describe("metrics", () => {
  test.each([
    [`{"listen":"127.0.0.1:9464"}`, { host: "127.0.0.1", port: 9464 }],
    [`{"listen":"[::1]:9464"}`, { host: "::1", port: 9464 }],
    [`{"listen":"192.0.2.1:9464","allowRemote":true}`, { host: "192.0.2.1", port: 9464 }],
  ])("are served at %s", async (metrics, expected) => {
    expect((await read([], `{"metrics":${metrics}}`)).metrics).toEqual(expected);
  });

  test("are off by default", async () => {
    expect((await read([], "{}")).metrics).toBeUndefined();
  });

  test.each([
    [`{"listen":"0.0.0.0:9464"}`, "allowRemote"],
    [`{"listen":"[::]:9464","allowRemote":false}`, "allowRemote"],
    [`{"listen":"192.0.2.1:9464"}`, "allowRemote"],
    [`{"listen":"localhost:9464"}`, "must be an IP address"],
    [`{"listen":"127.0.0.1:0"}`, "must be an IP address"],
    [`{"listen":"9464"}`, "must be an IP address"],
    [`{"allowRemote":true}`, "listen"],
  ])("refuse %s", async (metrics, message) => {
    await expect(read([], `{"metrics":${metrics}}`)).rejects.toThrow(message);
  });
});
