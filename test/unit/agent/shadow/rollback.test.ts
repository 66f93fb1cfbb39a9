import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import type { Trust } from "../../../../src/agent/identity/identity.ts";
import { DesiredDocuments } from "../../../../src/agent/shadow/desired.ts";
import { HostError } from "../../../../src/errors.ts";
import { hostFiles, type Files } from "../../../../src/host/files/files.ts";
import { keySetOf } from "../../../../src/protocol/channel/keys-chain.ts";
import type { NodeDocument } from "../../../../src/protocol/documents/documents.ts";
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
let trust: Trust;

beforeAll(async () => {
  key = await signingKey();
  trust = { iss: ISS, uid: UID, keys: await keySetOf([key.publicKey]) };
});

const node = (version: number, changes: Partial<NodeDocument> = {}) =>
  signDocument(key, "node", version, nodeDocument({ tags: { v: String(version) }, ...changes }));

async function open(files: (root: string) => Files = hostFiles) {
  const root = tempDir();
  mkdirSync(join(root, "s/desired"), { recursive: true });
  const load = () => DesiredDocuments.load(files(root), "/s");
  const documents = await load();
  const take = async (...versions: number[]): Promise<void> => {
    for (const version of versions) await documents.accept("node", await node(version), trust, version);
  };
  return { documents, load, take, at: (name: string) => join(root, "s/desired", name) };
}

const v1 = { version: 1, body: { tags: { v: "1" } }, refused: { version: 2, at: 9 } };

describe("a rolled back document", () => {
  test("is the previous one, also after a restart, and the refused one is kept for diagnosis", async () => {
    const { documents, load, take, at } = await open();
    await take(1, 2);
    expect(await documents.rolledBack("node")).toMatchObject({ from: 2, to: 1, desired: { node: { version: 1 } } });
    expect(documents.version("node")).toBe(2);
    expect(await documents.rollBack("node", 9)).toMatchObject({ from: 2, to: 1 });
    for (const held of [documents, await load()]) {
      expect(held.current.node).toMatchObject(v1);
      expect([held.version("node"), held.newest("node")]).toEqual([1, 2]);
    }
    expect(readFileSync(at("node.refused.json"), "utf8")).toContain((await node(2)).split(".", 2)[1]);
  });

  test("is not replaced by the refused version, and is by a newer one", async () => {
    const { documents, load, take } = await open();
    await take(1, 2);
    await documents.rollBack("node", 9);
    const later = await load();
    await expect(later.accept("node", await node(2), trust, 10)).rejects.toMatchObject({
      code: "rolled-back",
      version: 2,
    });
    expect(later.current.node).toMatchObject(v1);
    await later.accept("node", await node(3), trust, 11);
    expect(later.current.node?.refused).toBeUndefined();
    expect((await load()).version("node")).toBe(3);
    // A version refused once is not the target of the next rollback.
    expect(await later.rollBack("node", 12)).toMatchObject({ from: 3, to: 1 });
  });

  test("survives damage to its newest copy, and lost floors", async () => {
    const { documents, load, take, at } = await open();
    await take(1, 2);
    await documents.rollBack("node", 9);
    for (const name of ["node.json", "floors.json", "floors.json.previous"]) writeFileSync(at(name), "{");
    const later = await load();
    expect(later.current.node).toMatchObject(v1);
    await expect(later.accept("node", await node(2), trust, 10)).rejects.toMatchObject({ code: "rolled-back" });
  });

  test("accepts the refused version again once its floor is reset", async () => {
    const { documents, load, take } = await open();
    await take(1, 2);
    await documents.rollBack("node", 9);
    await documents.resetFloor("node");
    for (const held of [documents, await load()]) expect([held.version("node"), held.newest("node")]).toEqual([1, 1]);
    await documents.accept("node", await node(2), trust, 10);
    expect(documents.version("node")).toBe(2);
  });

  test("does not let a version that arrives meanwhile be overwritten", async () => {
    const { documents, load, take } = await open();
    await take(1, 2);
    await Promise.all([documents.rollBack("node", 9), documents.accept("node", await node(3), trust, 10)]);
    expect(documents.version("node")).toBe(3);
    expect((await load()).version("node")).toBe(3);
  });
});

describe("a rollback is refused", () => {
  test("when there is no document, and when there is no previous one", async () => {
    const { documents, take } = await open();
    await expect(documents.rollBack("node", 9)).rejects.toMatchObject({ code: "not-found" });
    await expect(documents.rollBack("cluster", 9)).rejects.toMatchObject({ code: "not-found" });
    await take(1);
    await expect(documents.rollBack("node", 9)).rejects.toThrow("no node document before version 1 is kept");
    await take(2);
    await documents.rollBack("node", 9);
    await expect(documents.rollBack("node", 9)).rejects.toThrow(/before version 1 is kept: it is rolled back from 2/);
    expect(documents.current.node).toMatchObject(v1);
  });

  test("when the previous one is of another cluster, or damaged", async () => {
    const { documents, at } = await open();
    const cluster = async (fqdn: string, version: number) =>
      documents.accept("cluster", await signDocument(key, "cluster", version, clusterDocument(fqdn)), trust, 1);
    await documents.accept("node", await node(1, { cluster: "a.example.net" }), trust, 1);
    await cluster("a.example.net", 5);
    await documents.accept("node", await node(2, { cluster: "b.example.net" }), trust, 2);
    await expect(documents.rollBack("cluster", 9)).rejects.toMatchObject({ code: "not-found" });
    await cluster("b.example.net", 1);
    await expect(documents.rollBack("cluster", 9)).rejects.toMatchObject({ code: "not-found" });
    writeFileSync(at("node.json.previous"), "no document");
    await expect(documents.rollBack("node", 9)).rejects.toMatchObject({ code: "not-found" });
  });

  test("when it would switch on a node that was switched off", async () => {
    const { documents, take } = await open();
    await take(1);
    await documents.accept("node", await node(2, { state: "INACTIVE" }), trust, 2);
    await expect(documents.rollBack("node", 9)).rejects.toMatchObject({ code: "inactive" });
    expect(documents.version("node")).toBe(2);
  });

  test("not for a disk that refuses writes: it is applied in memory, and stored once the disk accepts writes", async () => {
    let isFull = false;
    const full = (root: string): Files => {
      const files = hostFiles(root);
      const writeAtomic: Files["writeAtomic"] = (path, ...rest) =>
        isFull && !path.endsWith(".refused.json")
          ? Promise.reject(new HostError("disk-full", "full"))
          : files.writeAtomic(path, ...rest);
      return { ...files, writeAtomic };
    };
    const { documents, load, take } = await open(full);
    await take(1, 2);
    isFull = true;
    await documents.rollBack("node", 9);
    expect([documents.version("node"), (await load()).version("node")]).toEqual([1, 2]);
    isFull = false;
    await documents.keep();
    expect((await load()).current.node).toMatchObject({ version: 1, refused: { version: 2 } });
  });
});

test("rolls back the domain's document separately", async () => {
  const { documents, take } = await open();
  await take(1, 2);
  for (const version of [3, 4]) {
    await documents.accept("domain", await signDocument(key, "domain", version, domainDocument()), trust, 1);
  }
  expect(await documents.rollBack("domain", 9)).toMatchObject({ from: 4, to: 3 });
  expect([documents.version("node"), documents.version("domain")]).toEqual([2, 3]);
});
