import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { walkKeysChain, type KeysEnvelope } from "../../../../../src/protocol/channel/keys-chain.ts";
import { loadControlKeys, type KeysLedger } from "../../../../../src/controller/channel/keys/control-keys.ts";
import { keyStore } from "../../../../../src/controller/channel/keys/key-store.ts";
import { temporaryDirectory } from "../../../../support/control-plane/running-controller.ts";

async function bench() {
  const directory = await temporaryDirectory();
  const store = keyStore(hostFiles(), directory);
  const envelopes: KeysEnvelope[] = [];
  const ledger: KeysLedger = {
    all: () => Promise.resolve([...envelopes]),
    append(_version, envelope) {
      envelopes.push(envelope);
      return Promise.resolve();
    },
  };
  const load = (spki: readonly string[] = []) => loadControlKeys(store, ledger, { spki, nowSeconds: 1 });
  return { directory, store, ledger, envelopes, load };
}

const PIN = "p".repeat(43);

test("nothing changed makes no new version", async () => {
  const { load } = await bench();
  const first = await load();
  const second = await load();
  expect(second.newest).toEqual(first.newest);
  expect(second.envelopes).toHaveLength(1);
  expect([...second.accepted.keys()]).toEqual([first.signing.kid]);
});

test("a new pin and a new signing key each make a version signed by root, and the old key counts no more", async () => {
  const { directory, load } = await bench();
  const first = await load();
  const pinned = await load([PIN]);
  expect(pinned.newest).toMatchObject({ version: 2, spki: [PIN] });
  await rm(join(directory, "signing.jwk"));
  const rotated = await load([PIN]);
  expect(rotated.newest.version).toBe(3);
  expect(rotated.accepted.has(first.signing.kid)).toBe(false);
  expect(await walkKeysChain(first.newest, rotated.envelopes.slice(1))).toEqual(rotated.newest);
});

test("the root may be away while nothing must be signed", async () => {
  const { directory, load } = await bench();
  await load();
  await rename(join(directory, "root.jwk"), join(directory, "root.away"));
  expect((await load()).newest.version).toBe(1);
  await expect(load([PIN])).rejects.toMatchObject({ code: "root-key-missing" });
  const { store } = await bench();
  await store.create("root");
  await writeFile(join(directory, "root.jwk"), '{"kty":"OKP"}');
  await expect(load([PIN])).rejects.toMatchObject({ code: "key-damaged" });
});

test("a new root is signed in by the old one and takes its place", async () => {
  const { store, load } = await bench();
  const first = await load();
  const next = await store.create("root-next");
  const changed = await load();
  expect(changed.newest).toMatchObject({ version: 2, root: next.publicKey });
  expect(changed.rootThumbprint).toBe(next.kid);
  expect(changed.envelopes[1]?.cross).toBeDefined();
  expect(await walkKeysChain(first.rootThumbprint, changed.envelopes)).toEqual(changed.newest);
  expect((await store.load("root"))?.kid).toBe(next.kid);
  expect(await store.load("root-next")).toBeUndefined();
  expect((await load([PIN])).newest.version).toBe(3);
});

test("a change of root that was cut off before the files moved is finished", async () => {
  const { directory, store, load } = await bench();
  await load();
  const old = await store.load("root");
  const next = await store.create("root-next");
  await load();
  await rename(join(directory, "root.jwk"), join(directory, "root-next.jwk"));
  const other = await store.create("root");
  expect(other.kid).not.toBe(old?.kid);
  expect((await load()).newest.version).toBe(2);
  expect((await store.load("root"))?.kid).toBe(next.kid);
});

test("a root of another control plane is refused", async () => {
  const { directory, store, load } = await bench();
  await load();
  await rm(join(directory, "root.jwk"));
  await store.create("root");
  await expect(load([PIN])).rejects.toMatchObject({ code: "root-key-foreign" });
  await mkdir(join(directory, "unrelated"));
});
