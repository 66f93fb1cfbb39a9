import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { identityFiles } from "../../../../src/agent/identity/identity.ts";
import * as state from "../../../../src/agent/offline/offline-state.ts";
import { Stored } from "../../../../src/agent/shadow/held-document.ts";
import { bundleVerb } from "../../../../src/cli/verbs/bundle.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { stateFile } from "../../../../src/host/files/state-file.ts";
import { BundleReport } from "../../../../src/protocol/documents/bundle.ts";
import type { JsonObject } from "../../../../src/protocol/values/values.ts";
import { someCall } from "../../../support/fake-call.ts";
import { identity, someStatus } from "../../../support/fake-local-provider.ts";
import { startLocalAgent, type Directories } from "../../../support/local-agent.ts";

const planted: string[] = [];
/** A unique secret, which must not be in any bundle. */
function canary(where: string, length = 43): string {
  const text = `Canary${where.replaceAll(/\W/g, "")}${"xQ7zW9vK3pL5mN8bR2tY6uH4".repeat(3)}`.slice(0, length);
  planted.push(text);
  return text;
}

function signed(name: "node" | "cluster", version: number, body: JsonObject): string {
  const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const claims = {
    iss: "http://127.0.0.1:8480",
    aud: identity.uid,
    name,
    sub: "edge-1.example.net",
    version,
    iat: 1_800_000_000,
    body,
  };
  const header = { alg: "Ed25519", kid: "k", typ: "holdfast-document+jwt" };
  return `${encode(header)}.${encode(claims)}.${canary(`signature ${name}${version}`, 86)}`;
}

const config = (of: string): JsonObject => ({
  network: {
    tunnels: [{ name: "a", type: "ipsec", psk: canary(`${of} psk`), presharedKey: canary(`${of} preshared`) }],
  },
  exec: {
    commands: [
      {
        id: "1",
        name: "web",
        command: `serve --password ${canary(`${of} command`)}`,
        variables: [{ name: "A", value: canary(`${of} variable`) }],
        config: { variables: [{ name: "B", value: canary(`${of} part variable`) }] },
        healthCheck: { command: `curl -u me:${canary(`${of} health`)} localhost` },
        newSecret: canary(`${of} unknown field`),
      },
    ],
    volumes: [{ name: "v", encrypted: true, key: canary(`${of} volume key`) }],
  },
  _bgp: { groups: [{ name: "g", peers: [{ name: "p", secret: canary(`${of} bgp`) }] }] },
  snmp: { authPassphrase: canary(`${of} snmp auth`), privacyPassphrase: canary(`${of} snmp privacy`) },
  vpn: { networks: [{ name: "n", wireguard: { clients: [{ name: "c", presharedKey: canary(`${of} vpn`) }] } }] },
  apigw: { key: canary(`${of} apigw`) },
  cluster: { shared: canary(`${of} cluster`) },
  alert: { thresholds: [{ name: "disk", command: `notify --token ${canary(`${of} alert`)}` }] },
});

async function plantState({ stateDir, root }: Directories): Promise<string> {
  const files = hostFiles();
  for (const part of ["identity", "desired"]) await files.makeDirectory(`${stateDir}/${part}`, 0o700);
  const ids = identityFiles(files, stateDir);
  const point = "A".repeat(43);
  for (const round of ["before", "now"]) {
    await ids.keys.save({
      auth: { kty: "OKP", crv: "Ed25519", x: point, d: canary(`${round} auth key`) },
      overlay: { kty: "EC", crv: "P-256", x: point, y: point, d: canary(`${round} overlay key`) },
      wireguard: { kty: "OKP", crv: "X25519", x: point, d: canary(`${round} wireguard key`) },
    });
  }
  for (const name of ["node", "cluster"] as const) {
    const path = `${stateDir}/desired/${name}`;
    const file = stateFile(files, { path: `${path}.json`, schema: Stored, keepsPrevious: true });
    for (const version of [6, 7])
      await file.save({
        jws: signed(name, version, { name: "edge-1", config: config(`${name}${version}`) }),
        receivedAt: 1,
      });
    const refused = stateFile(files, { path: `${path}.refused.json`, schema: Stored, keepsPrevious: false });
    await refused.save({ jws: signed(name, 8, { config: config(`${name}8`) }), receivedAt: 1 });
  }
  const credentials = join(root, "s3.json");
  const s3 = { accessKeyId: canary("s3 id"), secretAccessKey: canary("s3 key"), sessionToken: canary("s3 token") };
  writeFileSync(credentials, JSON.stringify(s3), { mode: 0o600 });
  const settings = join(root, "agent.json");
  writeFileSync(
    settings,
    JSON.stringify({
      proxy: `http://proxyuser:${canary("proxy password")}@proxy.example:3128`,
      upgrade: {
        manifest: `https://fetcher:${canary("manifest password")}@releases.example/manifest.jws?token=${canary("manifest token")}`,
      },
      repositoryUrl: `https://repo:${canary("repository password")}@repo.example/?key=${canary("repository query")}`,
      dataStore: { s3: [{ bucket: "*", credentials }] },
    }),
  );
  return settings;
}

/** Complete encodings of a secret with text around it. */
function encoded(secret: string): readonly string[] {
  const texts = [secret, `[${secret}]`, `x=${secret};`, JSON.stringify({ secret })].map((text) => Buffer.from(text));
  return texts.flatMap((bytes) => (["base64", "base64url", "hex"] as const).map((form) => bytes.toString(form)));
}

/** All forms in which a search would find a secret. */
function formsOf(secret: string): readonly string[] {
  const bytes = Buffer.from(secret);
  const inside = [0, 1, 2].flatMap((shift) => {
    const text = Buffer.concat([Buffer.alloc(shift), bytes]).toString("base64");
    const piece = text.slice(shift === 0 ? 0 : shift + 1, -4);
    return [piece, piece.replaceAll("+", "-").replaceAll("/", "_")];
  });
  return [secret, encodeURIComponent(secret), bytes.toString("hex"), bytes.toString("hex").toUpperCase(), ...inside];
}

function unpacked(path: string, to: string): ReadonlyMap<string, string> {
  mkdirSync(to, { recursive: true });
  // The system's own tar must accept it.
  execFileSync("tar", ["-xzf", path, "-C", to]);
  const files = readdirSync(to, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return new Map(files.map((entry) => [entry.name, readFileSync(join(entry.parentPath, entry.name), "utf8")]));
}

test("no secret of a node is in its bundle, in any form", async () => {
  await using agent = await startLocalAgent();
  const settings = await plantState(agent);
  // Known secrets occur in logs and answers in every form; so do texts that look like one.
  const known = planted.filter((secret) => !secret.startsWith("Canarysignature"));
  const lines = [
    ...known,
    ...known.map((secret) => JSON.stringify({ secret })),
    ...known.map((secret) => encodeURIComponent(secret)),
    ...known.flatMap(encoded),
  ];
  const shapes = [
    `license eyJhbGciOiJFZERTQSJ9.${canary("license")}.sig`,
    `Authorization: Bearer ${canary("bearer")}`,
    `got password=${canary("registry password")} for registry`,
    `{"token":"${canary("registry token")}"}`,
    `PUT https://user:${canary("upload password")}@s3.example/x`,
  ];
  agent.provider.lines = [...lines, ...shapes].map((message) => ({
    time: 1,
    level: "info" as const,
    message,
    fields: { value: message, ticket: canary("ticket") },
  }));
  agent.provider.currentStatus = someStatus({
    faults: [{ code: "x", message: lines.join(" ").slice(0, 4096), since: 1 }],
  });
  writeFileSync(join(agent.stateDir, "agent.log"), [...lines, ...shapes].join("\n"));
  const to = join(agent.root, "b.tar.gz");
  const offline = { inspectState: async () => state.inspectState, forBundle: async () => state };
  const { call, shown } = someCall(agent, { values: { to, config: settings }, offline });
  expect(await bundleVerb.run({ ...call, settings: { ...call.settings, timeoutMs: 60_000 } })).toBe("ok");

  expect(statSync(to).mode & 0o777).toBe(0o600);
  // As the agent makes it for a remote caller.
  const remote = someCall(agent, { values: { to: "-", config: settings }, offline });
  const { call: remoteCall } = remote;
  const inJson = { ...remoteCall, settings: { ...remoteCall.settings, isJson: true, timeoutMs: 60_000 } };
  expect(await bundleVerb.run(inJson)).toBe("ok");
  const { archive = "", ...reported } = BundleReport.parse(JSON.parse(remote.shown.join("")));
  const pushed = join(agent.root, "pushed.tar.gz");
  writeFileSync(pushed, Buffer.from(archive, "base64"));
  const there = unpacked(pushed, join(agent.root, "pushed"));
  expect([...there.keys()]).toEqual(expect.arrayContaining(["README", "log.jsonl", "doctor.json"]));

  const files = unpacked(to, join(agent.root, "out"));
  const all = [...files.values(), ...there.values(), JSON.stringify(reported), shown.join("")].join("\n");
  const found = planted.flatMap((secret) =>
    formsOf(secret)
      .filter((form) => all.includes(form))
      .map((form) => `${secret}: ${form}`),
  );
  expect(found).toEqual([]);
  expect(planted.length).toBeGreaterThan(70);
  // Other contents are included.
  expect(files.get("README")).toContain("What is left out on purpose");
  expect(JSON.parse(files.get("node.json") ?? "")).toMatchObject({
    version: 7,
    config: {
      network: { tunnels: [{ name: "a", psk: "[left out]" }] },
      exec: { commands: [{ variables: [{ name: "A" }] }] },
    },
  });
  expect(JSON.parse(files.get("settings.json") ?? "")).toMatchObject({ proxy: "http://proxy.example:3128/" });
  expect(JSON.parse(files.get("status.json") ?? "")).toMatchObject({ version: "0.1.0" });
  expect(JSON.parse(files.get("doctor.json") ?? "")).toMatchObject({ schema: 1 });
  expect(files.get("log.jsonl")?.split("\n").length, files.get("README")).toBeGreaterThan(lines.length);
});

test("works without an agent, and reports what is missing", async () => {
  const agent = await startLocalAgent();
  await agent.close();
  try {
    const to = join(agent.root, "b.tar.gz");
    const offline = { inspectState: async () => state.inspectState, forBundle: async () => state };
    const run = () => bundleVerb.run(someCall(agent, { values: { to }, offline }).call);
    expect(await run()).toBe("ok");
    const files = unpacked(to, join(agent.root, "out"));
    expect(files.get("README")).toMatch(/agent\/status\.json\n(?:\S+\n)* +no agent answers/);
    await expect(run()).rejects.toMatchObject({ code: "exists" });
    expect(readdirSync(agent.root).filter((name) => name.endsWith(".part"))).toEqual([]);
  } finally {
    await agent[Symbol.asyncDispose]();
  }
});

test("makes one at a time", async () => {
  await using agent = await startLocalAgent();
  const offline = { inspectState: async () => state.inspectState, forBundle: async () => state };
  const run = (name: string) =>
    bundleVerb.run(someCall(agent, { values: { to: join(agent.root, name) }, offline }).call);
  const outcomes = await Promise.allSettled([run("a.tar.gz"), run("b.tar.gz")]);
  expect(outcomes.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
  expect(outcomes.find(({ status }) => status === "rejected")).toMatchObject({ reason: { code: "busy" } });
});

test.each(["0", "10", "x", "63K", "-5M"])("refuses a size of %s", async (max) => {
  await using agent = await startLocalAgent();
  await expect(bundleVerb.run(someCall(agent, { values: { max } }).call)).rejects.toMatchObject({ code: "usage" });
});
