import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { beforeAll, describe, expect, test } from "vitest";
import type { Trust } from "../../../../src/agent/identity/identity.ts";
import { DesiredDocuments } from "../../../../src/agent/shadow/desired.ts";
import { judgeDocuments } from "../../../../src/agent/shadow/applied.ts";
import { HostError } from "../../../../src/errors.ts";
import { hostFiles, type Files } from "../../../../src/host/files/files.ts";
import { stateFile } from "../../../../src/host/files/state-file.ts";
import { keySetOf } from "../../../../src/protocol/channel/keys-chain.ts";
import {
  clusterDocument,
  domainDocument,
  ISS,
  nodeDocument,
  signDocument,
  signingKey,
  UID,
  type SigningKey,
} from "../../../support/control-plane/signing.ts";
import { tempDir } from "../../../support/temp-dir.ts";

let key: SigningKey;
let stranger: SigningKey;
let trust: Trust;

beforeAll(async () => {
  key = await signingKey();
  stranger = await signingKey();
  trust = { iss: ISS, uid: UID, keys: await keySetOf([key.publicKey]) };
});

async function open(root = tempDir()) {
  mkdirSync(join(root, "s/desired"), { recursive: true });
  const load = () => DesiredDocuments.load(hostFiles(root), "/s");
  return { root, load, documents: await load(), at: (name: string) => join(root, "s/desired", name) };
}

const node = (version: number, changes = {}, wrong = {}) =>
  signDocument(key, "node", version, nodeDocument(changes), wrong);

describe("an accepted document", () => {
  test("is applied, also after a restart without any key", async () => {
    const { documents, load } = await open();
    await documents.accept("node", await node(3, { tags: { a: "b" } }), trust, 42);
    await documents.accept("domain", await signDocument(key, "domain", 9, domainDocument()), trust, 43);
    expect(documents.current.node).toMatchObject({ version: 3, sub: UID, receivedAt: 42, body: { tags: { a: "b" } } });
    const again = await load();
    expect(again.current).toEqual(documents.current);
    expect(again.damage).toEqual([]);
    expect([again.version("node"), again.version("cluster"), again.version("domain")]).toEqual([3, 0, 9]);
  });

  test("is replaced by a newer one, and the floor survives a restart", async () => {
    const { documents, load } = await open();
    await documents.accept("node", await node(3), trust, 1);
    await documents.accept("node", await node(5), trust, 2);
    for (const holder of [documents, await load()]) {
      await expect(holder.accept("node", await node(4), trust, 3)).rejects.toMatchObject({ code: "below-floor" });
      expect(holder.version("node")).toBe(5);
    }
  });

  test("of a lower version is accepted after an operator reset the floors", async () => {
    const { documents, load } = await open();
    await documents.accept("node", await node(9), trust, 1);
    await documents.resetFloor("node");
    const later = await load();
    await later.accept("node", await node(2), trust, 2);
    expect((await load()).version("node")).toBe(2);
  });
});

test("a deleted node is inactive, also after a restart and with a newer document, until the control plane knows it again", async () => {
  const { documents, load } = await open();
  await documents.accept("node", await node(3), trust, 1);
  await documents.setDeleted(7);
  const again = await load();
  for (const holder of [documents, again]) {
    expect(holder).toMatchObject({ deletedAt: 7, current: { node: { version: 3, body: { state: "INACTIVE" } } } });
    expect(holder.current).toBe(holder.current);
  }
  await again.accept("node", await node(4), trust, 2);
  expect(again.current.node).toMatchObject({ version: 4, body: { state: "INACTIVE" } });
  expect((await again.rolledBack("node")).desired.node?.body.state).toBe("INACTIVE");
  await again.setDeleted(8);
  expect((await load()).deletedAt).toBe(7);
  await again.setDeleted(undefined);
  for (const holder of [again, await load()]) {
    expect(holder.current.node).toMatchObject({ version: 4, body: { state: "ACTIVE" } });
    expect(holder.deletedAt).toBeUndefined();
  }
});

test("a released node is inactive until it has the whole document of its cluster", async () => {
  const { documents } = await open();
  const cluster = "c1.example.net";
  const restricted = { code: "unauthorized-ip", address: "192.0.2.9" };
  await documents.accept("node", await node(3, { cluster, state: "INACTIVE", restricted }), trust, 1);
  const partial = clusterDocument(cluster, { config: {}, restricted });
  await documents.accept("cluster", await signDocument(key, "cluster", 3, partial), trust, 1);
  await documents.accept("node", await node(4, { cluster }), trust, 2);
  expect(documents.current.node).toMatchObject({ version: 4, body: { state: "INACTIVE", restricted } });
  const whole = clusterDocument(cluster, { config: { exec: {} } });
  await documents.accept("cluster", await signDocument(key, "cluster", 4, whole), trust, 2);
  expect(documents.current.node?.body).toMatchObject({ state: "ACTIVE" });
  expect(documents.current.node?.body.restricted).toBeUndefined();
});

test("skips sections that this version does not know, and applies the rest", async () => {
  const { documents, load } = await open();
  const config = { exec: { a: 1 }, teleport: { b: 2 }, warp: "not even an object" };
  await documents.accept("node", await node(3, { config, cluster: "c1.example.net" }), trust, 1);
  const body = clusterDocument("c1.example.net", { config });
  await documents.accept("cluster", await signDocument(key, "cluster", 4, body), trust, 1);
  for (const { current } of [documents, await load()]) {
    for (const held of [current.node, current.cluster]) {
      expect(held?.body.config).toEqual({ exec: { a: 1 } });
      expect(held?.passedOver).toEqual([
        "config.teleport: no section of this version",
        "config.warp: no section of this version",
      ]);
    }
  }
  const sections = { exec: { state: "unsupported" } };
  expect(judgeDocuments(documents.current, new Map(), { shadowed: [], errors: [] }).node).toMatchObject({
    outcome: "partial",
    sections,
  });
});

test("skips peers and grants that require an unknown feature, and applies the others", async () => {
  const { documents, load } = await open();
  const peers = [
    { uid: "a" },
    { uid: "b", requires: ["time-travel"] },
    { uid: "c", requires: [] },
    { uid: "d", requires: 1 },
  ];
  const grants = [{ id: 1, requires: ["time-travel", "warp"] }, { id: 2 }];
  const body = domainDocument({ peers, grants });
  await documents.accept("domain", await signDocument(key, "domain", 3, body), trust, 1);
  for (const { current } of [documents, await load()]) {
    expect(current.domain?.body.peers).toEqual([peers[0], peers[2]]);
    expect(current.domain?.body.grants).toEqual([grants[1]]);
    expect(current.domain?.passedOver).toEqual([
      "peers.1: not supported, it requires time-travel",
      "peers.3: not supported, it requires what cannot be read",
      "grants.0: not supported, it requires time-travel, warp",
    ]);
  }
  expect(judgeDocuments(documents.current, new Map(), { shadowed: [], errors: [] }).domain).toEqual({
    outcome: "partial",
    sections: {},
  });
});

test("limits the length of the report on skipped items", async () => {
  const { documents } = await open();
  const peers = Array.from({ length: 1000 }, () => ({ requires: Array.from({ length: 64 }, () => "f".repeat(64)) }));
  await documents.accept("domain", await signDocument(key, "domain", 3, domainDocument({ peers })), trust, 1);
  const { passedOver = [] } = documents.current.domain ?? {};
  expect(passedOver).toHaveLength(20);
  expect(Math.max(...passedOver.map((line) => line.length))).toBe(256);
  expect(passedOver.at(-1)).toBe("and 981 more");
});

test("limits the length of the violations of a refused document", async () => {
  const { documents } = await open();
  const tags = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`${"é".repeat(500)}${i}`, "x"]));
  const accepted = documents.accept("node", await node(3, { tags }), trust, 1);
  const { details } = await accepted.then(
    () => ({ details: {} }),
    (error: { details: unknown }) => error,
  );
  const { issues } = details as { issues: string[] };
  expect(issues).toHaveLength(20);
  expect(Math.max(...issues.map((line) => line.length))).toBe(256);
});

test("still refuses a known section that is not an object", async () => {
  const { documents } = await open();
  const refused = documents.accept("node", await node(3, { config: { exec: "x" } }), trust, 1);
  await expect(refused).rejects.toThrow(/config\.exec/);
});

describe("a refused document changes nothing", () => {
  test.each([
    ["another issuer", () => node(4, {}, { iss: "https://other.example" }), /iss/],
    ["another node's", () => node(4, {}, { aud: "11111111-1111-4111-8111-111111111111" }), /aud/],
    ["another name", () => signDocument(key, "domain", 4, domainDocument()), /name/],
    ["another subject", () => node(4, {}, { sub: "other" }), /sub/],
    ["an unknown key", () => signDocument(stranger, "node", 4, nodeDocument()), /unknown key/],
    [
      "the right kid and the wrong key",
      () => signDocument({ ...stranger, kid: key.kid }, "node", 4, nodeDocument()),
      /verify/,
    ],
    [
      "a changed payload",
      async () => {
        const [header, , signature] = (await node(4)).split(".");
        const [, payload] = (await node(5)).split(".");
        return `${header}.${payload}.${signature}`;
      },
      /verify/,
    ],
    ["no JWS", async () => "rubbish", /not a compact JWS/],
  ])("%s", async (_what, make, why) => {
    const { documents, load } = await open();
    await documents.accept("node", await node(3), trust, 1);
    const before = documents.current;
    const refused = documents.accept("node", await make(), trust, 2);
    await expect(refused).rejects.toMatchObject({ name: "InputError", code: "bad-signature" });
    await expect(refused).rejects.toThrow(why);
    expect(documents.current).toBe(before);
    expect((await load()).current).toEqual(before);
  });

  test("one that violates its schema is kept aside, with its fields named", async () => {
    const { documents, at, load } = await open();
    await documents.accept("node", await node(3), trust, 1);
    const bad = await signDocument(key, "node", 4, { ...nodeDocument(), state: "SLEEPING", tags: { "a b": "c" } });
    const refused = documents.accept("node", bad, trust, 2);
    await expect(refused).rejects.toMatchObject({ code: "invalid-document" });
    await expect(refused).rejects.toThrow(/node\.state: .*node\.tags\.a b: /);
    expect(readFileSync(at("node.refused.json"), "utf8")).toContain(bad);
    expect((await load()).version("node")).toBe(3);
    await documents.accept("node", await node(4), trust, 3);
    expect(documents.version("node")).toBe(4);
  });

  test("one that requires an unknown feature names it", async () => {
    const { documents } = await open();
    await documents.accept("node", await node(3), trust, 1);
    await expect(documents.accept("node", await node(4, { requires: ["warp"] }), trust, 2)).rejects.toMatchObject({
      code: "not-supported",
      details: { missing: ["warp"] },
    });
    expect(documents.version("node")).toBe(3);
  });

  test("a cluster's, unless the node's document names that cluster", async () => {
    const { documents } = await open();
    const cluster = await signDocument(key, "cluster", 1, clusterDocument("c1.example.net"));
    await expect(documents.accept("cluster", cluster, trust, 1)).rejects.toThrow(/sub/);
    await documents.accept("node", await node(1, { cluster: "c2.example.net" }), trust, 1);
    await expect(documents.accept("cluster", cluster, trust, 1)).rejects.toThrow(/sub/);
    await documents.accept("node", await node(2, { cluster: "c1.example.net" }), trust, 1);
    await documents.accept("cluster", cluster, trust, 1);
    expect(documents.version("cluster")).toBe(1);
  });
});

describe("on disk", () => {
  test("a damaged document is replaced by the previous one, and the damage is reported", async () => {
    const { documents, load, at } = await open();
    await documents.accept("node", await node(3), trust, 1);
    await documents.accept("node", await node(4), trust, 2);
    writeFileSync(at("node.json"), "damaged");
    const later = await load();
    expect(later.version("node")).toBe(3);
    expect(later.damage).toEqual([{ file: "desired/node.json", isRecovered: true }]);
    await expect(later.accept("node", await node(2), trust, 3)).rejects.toMatchObject({ code: "below-floor" });
    await later.accept("node", await node(4), trust, 3);
    expect((await load()).version("node")).toBe(4);
  });

  test("reports the use of a previous document once, and of previous floors, which do not fall", async () => {
    const { documents, load, at } = await open();
    await documents.accept("node", await node(3), trust, 1);
    await documents.accept("node", await node(4), trust, 2);
    for (const name of ["node.json", "floors.json"]) writeFileSync(at(name), "damaged");
    expect((await load()).damage).toHaveLength(2);
    const later = await load();
    expect(later.damage).toEqual([]);
    expect(later.version("node")).toBe(3);
    await expect(later.accept("node", await node(2), trust, 3)).rejects.toMatchObject({ code: "below-floor" });
  });

  test("with both copies damaged the others stay applied", async () => {
    const { documents, load, at } = await open();
    await documents.accept("node", await node(3), trust, 1);
    await documents.accept("domain", await signDocument(key, "domain", 9, domainDocument()), trust, 43);
    writeFileSync(at("domain.json"), "{}");
    const later = await load();
    expect(later.damage).toEqual([{ file: "desired/domain.json", isRecovered: false }]);
    expect([later.version("node"), later.version("domain")]).toEqual([3, 0]);
  });

  test("leaving the cluster deletes its document permanently", async () => {
    const { documents, load, root } = await open();
    await documents.accept("node", await node(1, { cluster: "c1.example.net" }), trust, 1);
    for (const version of [1, 2]) {
      await documents.accept(
        "cluster",
        await signDocument(key, "cluster", version, clusterDocument("c1.example.net")),
        trust,
        1,
      );
    }
    await documents.leaveCluster();
    await documents.leaveCluster();
    expect(documents.current.cluster).toBeUndefined();
    expect((await load()).current.cluster).toBeUndefined();
    expect(readdirSync(join(root, "s/desired")).filter((name) => name.startsWith("cluster"))).toEqual([]);
  });
});

describe("the verdict on documents", () => {
  test("reports every present section as unsupported, and those an agent never has as such", async () => {
    const { documents } = await open();
    await documents.accept("node", await node(1, { type: "Agent", config: { network: {}, exec: { a: 1 } } }), trust, 1);
    const { node: verdict, cluster } = judgeDocuments(documents.current, new Map(), { shadowed: [], errors: [] });
    expect(verdict).toMatchObject({ outcome: "partial", sections: { exec: { state: "unsupported", steps: 0 } } });
    expect(verdict?.sections.network?.issues).toEqual(["network: not a section of an agent"]);
    expect(Object.keys(verdict?.sections ?? {})).toEqual(["network", "exec"]);
    expect(cluster).toBeUndefined();
  });

  test("with nothing to do is converged", () => {
    expect(judgeDocuments({}, new Map(), { shadowed: [], errors: [] })).toEqual({});
  });
});

describe("between two clusters", () => {
  test("the one that was left has no version for the one that was joined", async () => {
    const { documents } = await open();
    await documents.accept("node", await node(1, { cluster: "c1.example.net" }), trust, 1);
    await documents.accept(
      "cluster",
      await signDocument(key, "cluster", 7, clusterDocument("c1.example.net")),
      trust,
      1,
    );
    await documents.accept("node", await node(2, { cluster: "c2.example.net" }), trust, 2);
    expect(documents.version("cluster")).toBe(0);
    await documents.accept(
      "cluster",
      await signDocument(key, "cluster", 7, clusterDocument("c2.example.net")),
      trust,
      3,
    );
    expect(documents.current.cluster).toMatchObject({ version: 7, sub: "c2.example.net" });
  });
});

describe("a disk that refuses writes", () => {
  const refusing = (root: string) => {
    const real = hostFiles(root);
    const disk = { isFull: false };
    const write =
      <T extends unknown[]>(work: (...args: T) => Promise<void>) =>
      (...args: T) =>
        disk.isFull ? Promise.reject(new HostError("read-only", "read-only file system")) : work(...args);
    return {
      disk,
      files: {
        ...real,
        writeAtomic: write((...args: Parameters<Files["writeAtomic"]>) => real.writeAtomic(...args)),
        remove: write((path: string) => real.remove(path)),
      },
    };
  };

  test("does not keep a version from being applied, nor from the disk once that accepts writes", async () => {
    const { root, load, documents: first } = await open();
    await first.accept("node", await node(3), trust, 1);
    const { disk, files } = refusing(root);
    const documents = await DesiredDocuments.load(files, "/s");
    disk.isFull = true;
    await documents.accept("node", await node(4, { state: "INACTIVE" }), trust, 2);
    expect(documents.current.node).toMatchObject({ version: 4, body: { state: "INACTIVE" } });
    expect(documents.unsaved).toEqual(["node"]);
    await documents.keep();
    expect((await load()).version("node")).toBe(3);
    // The previous copy is that of the disk.
    expect(await documents.rolledBack("node").catch((error: unknown) => error)).toMatchObject({ code: "inactive" });
    await documents.accept("node", await node(5), trust, 3);
    disk.isFull = false;
    await documents.keep();
    expect([documents.unsaved, (await load()).version("node")]).toEqual([[], 5]);
    await expect((await load()).accept("node", await node(4), trust, 4)).rejects.toMatchObject({ code: "below-floor" });
  });

  test("does not keep a node in a cluster", async () => {
    const { root, load, documents: first } = await open();
    await first.accept("node", await node(1, { cluster: "c.example.net" }), trust, 1);
    const cluster = await signDocument(key, "cluster", 1, clusterDocument("c.example.net"));
    await first.accept("cluster", cluster, trust, 1);
    const { disk, files } = refusing(root);
    const documents = await DesiredDocuments.load(files, "/s");
    disk.isFull = true;
    await documents.leaveCluster();
    expect(documents.current.cluster).toBeUndefined();
    disk.isFull = false;
    await documents.keep();
    expect((await load()).current.cluster).toBeUndefined();
  });
});

describe("the floor", () => {
  test("is on disk before its document", async () => {
    const { root, documents } = await open();
    await documents.accept("node", await node(3), trust, 1);
    const real = hostFiles(root);
    let writes = 0;
    const cut = await DesiredDocuments.load(
      {
        ...real,
        writeAtomic: (...args) => ((writes += 1) > 3 ? Promise.reject(new Error("cut")) : real.writeAtomic(...args)),
      },
      "/s",
    );
    await cut.accept("node", await node(5), trust, 2).catch(() => undefined);
    const later = await DesiredDocuments.load(real, "/s");
    await expect(later.accept("node", await node(4), trust, 3)).rejects.toMatchObject({ code: "below-floor" });
    await later.accept("node", await node(5), trust, 3);
    expect(later.version("node")).toBe(5);
  });

  test("that was lost is no lower than the applied version", async () => {
    const { documents, load, at } = await open();
    await documents.accept("node", await node(5), trust, 1);
    rmSync(at("floors.json"), { force: true });
    await expect((await load()).accept("node", await node(4), trust, 2)).rejects.toMatchObject({ code: "below-floor" });
  });
});

test("the applied version with another body changes nothing, in memory or on disk", async () => {
  const { documents, load } = await open();
  await documents.accept("node", await node(5, { tags: { a: "1" } }), trust, 1);
  await documents.accept("node", await node(5, { tags: { a: "2" } }), trust, 2);
  expect(documents.current.node?.body.tags).toEqual({ a: "1" });
  expect((await load()).current).toEqual(documents.current);
});

test("reports a stored document that this version cannot parse as damage, and continues", async () => {
  const { documents, load, root } = await open();
  await documents.accept("domain", await signDocument(key, "domain", 9, domainDocument()), trust, 1);
  const Stored = z.object({ jws: z.string(), receivedAt: z.number() });
  const file = stateFile(hostFiles(root), { path: "/s/desired/node.json", schema: Stored, keepsPrevious: true });
  await file.save({ jws: await signDocument(key, "node", 3, { state: "FORMER" }), receivedAt: 1 });
  const later = await load();
  expect(later.current.node).toBeUndefined();
  expect(later.version("domain")).toBe(9);
  expect(later.damage).toEqual([{ file: "desired/node.json", isRecovered: false }]);
});
