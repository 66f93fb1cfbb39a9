import { exportJWK, generateKeyPair } from "jose";
import { expect, test } from "vitest";
import type { KeysClaims } from "../../../../src/protocol/documents/claims.ts";
import { signJws, type Signer } from "../../../../src/protocol/channel/jws.ts";
import { walkKeysChain, type KeysEnvelope } from "../../../../src/protocol/channel/keys-chain.ts";
import { Ed25519PublicKey, thumbprint } from "../../../../src/protocol/values/keys.ts";

interface Pair extends Signer {
  readonly publicKey: Ed25519PublicKey;
}

async function makePair(): Promise<Pair> {
  const { publicKey, privateKey } = await generateKeyPair("Ed25519", { extractable: true });
  const key = Ed25519PublicKey.parse(await exportJWK(publicKey));
  return { publicKey: key, privateKey, kid: await thumbprint(key) };
}

const [rootA, rootB, signer, stranger] = await Promise.all([makePair(), makePair(), makePair(), makePair()]);

function claims(version: number, root: Pair): KeysClaims {
  return { name: "keys", version, iat: 1, root: root.publicKey, signing: [signer.publicKey], spki: [] };
}

async function envelope(version: number, root: Pair, signedBy: Pair, cross?: Pair): Promise<KeysEnvelope> {
  const content = claims(version, root);
  const jws = await signJws("holdfast-keys+jwt", content, signedBy);
  return cross === undefined ? { jws } : { jws, cross: await signJws("holdfast-keys+jwt", content, cross) };
}

const v1 = await envelope(1, rootA, rootA);
const v2 = await envelope(2, rootA, rootA);
const toB = await envelope(3, rootB, rootA, rootB);
const v4 = await envelope(4, rootB, rootB);

test("the root of a license leads to the newest version", async () => {
  expect((await walkKeysChain(rootA.kid, [v1])).version).toBe(1);
  expect((await walkKeysChain(rootA.kid, [v1, v2, toB, v4])).root).toEqual(rootB.publicKey);
});

test("the license of a later root starts at the version that introduced it", async () => {
  expect((await walkKeysChain(rootB.kid, [v1, v2, toB, v4])).version).toBe(4);
  expect((await walkKeysChain(rootB.kid, [toB])).version).toBe(3);
});

test("an accepted version allows only its successors", async () => {
  const current = claims(2, rootA);
  expect(await walkKeysChain(current, [])).toEqual(current);
  expect((await walkKeysChain(current, [toB, v4])).version).toBe(4);
});

const [payloadOnly, otherPayload] = [toB, await envelope(3, rootB, rootB)];

test.each<[string, string | KeysClaims, readonly KeysEnvelope[]]>([
  ["nothing for a license", rootA.kid, []],
  ["a root that nobody named", stranger.kid, [v1, v2]],
  ["a version left out", rootA.kid, [v1, toB]],
  ["a version twice", rootA.kid, [v1, v1]],
  ["a version that falls", claims(3, rootB), [v2]],
  ["a stranger's signature", rootA.kid, [v1, await envelope(2, rootA, stranger)]],
  ["the signing key in place of root", rootA.kid, [v1, await envelope(2, rootA, signer)]],
  ["a new root without its own signature", claims(2, rootA), [{ jws: toB.jws }]],
  ["a new root without the old one's signature", claims(2, rootA), [await envelope(3, rootB, rootB, rootB)]],
  ["a cross signature by another key", claims(2, rootA), [await envelope(3, rootB, rootA, stranger)]],
  [
    "a cross signature over another payload",
    claims(2, rootA),
    [{ jws: payloadOnly.jws, cross: (await envelope(9, rootB, rootB)).jws }],
  ],
  ["an old root after the change", claims(3, rootB), [await envelope(4, rootB, rootA)]],
  ["text that is no JWS", rootA.kid, [{ jws: "a.b.c" }]],
])("%s is refused", async (_what, trusted, envelopes) => {
  await expect(walkKeysChain(trusted, envelopes)).rejects.toMatchObject({ code: "bad-signature" });
});

test("a cross signature alone does not replace the old root's", async () => {
  await expect(walkKeysChain(claims(2, rootA), [otherPayload])).rejects.toMatchObject({ code: "bad-signature" });
});
