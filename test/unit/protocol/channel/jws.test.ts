import { CompactSign, decodeProtectedHeader } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { InputError } from "../../../../src/errors.ts";
import { peekClaims, signJws, verifyJws, type KeySet } from "../../../../src/protocol/channel/jws.ts";
import { thumbprint, thumbprintsOf } from "../../../../src/protocol/values/keys.ts";
import { generateKeys, publicKeys } from "../../../../src/agent/identity/identity.ts";
import { licenseClaims } from "../../../support/control-plane/license.ts";
import { signingKey, UID, type SigningKey } from "../../../support/control-plane/signing.ts";

const TYP = "holdfast-deleted+jwt";
const claims = { iss: "https://cp.example", aud: UID, nonce: "n".repeat(43), iat: 1 };
let key: SigningKey;
let keys: KeySet;

beforeAll(async () => {
  key = await signingKey();
  keys = new Map([[key.kid, key.publicKey]]);
});

const signed = (payload: string, header: Record<string, unknown> = {}) =>
  new CompactSign(Buffer.from(payload))
    .setProtectedHeader({ alg: "Ed25519", typ: TYP, kid: key.kid, ...header })
    .sign(key.privateKey, { crit: { b64: true } });
const text = (value: unknown) =>
  Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

const header = (alg: string): string => text({ alg, typ: "holdfast-license+jwt", kid: key.kid });

describe("a JWS", () => {
  test("verifies and gives its claims without unknown ones", async () => {
    const jws = await signJws(TYP, { ...claims, extra: 1 } as typeof claims, key);
    expect(await verifyJws(TYP, jws, keys)).toEqual(claims);
    expect(peekClaims(TYP, jws)).toEqual(claims);
  });

  test.each<[string, () => string | Promise<string>]>([
    ["another typ", () => signed(JSON.stringify(claims), { typ: "holdfast-license+jwt" })],
    ["a further header member", () => signed(JSON.stringify(claims), { jwk: key.publicKey })],
    ["a critical member", () => signed(JSON.stringify(claims), { crit: ["b64"], b64: true })],
    ["the older name of its algorithm", () => signed(JSON.stringify(claims), { alg: "EdDSA" })],
    ["an unknown kid", () => signed(JSON.stringify(claims), { kid: "x".repeat(43) })],
    ["no algorithm", () => `${text({ alg: "none", typ: TYP, kid: key.kid })}.${text(claims)}.AA`],
    [
      "a hidden header key",
      () => `${text(`{"alg":"Ed25519","typ":"${TYP}","kid":"${key.kid}","__proto__":{}}`)}.${text(claims)}.AA`,
    ],
    ["a header that is a list", () => `${text([])}.${text(claims)}.AA`],
    ["a kid that is no text", () => `${text({ alg: "Ed25519", typ: TYP, kid: 1 })}.${text(claims)}.AA`],
    ["no signature", async () => (await signed(JSON.stringify(claims))).replace(/[^.]+$/, "")],
    ["four parts", async () => `${await signed(JSON.stringify(claims))}.AA`],
    ["nothing", () => ""],
  ])("with %s is refused as badly signed", async (_what, make) => {
    await expect(verifyJws(TYP, await make(), keys)).rejects.toMatchObject({
      name: "InputError",
      code: "bad-signature",
    });
  });

  test.each(["EdDSA", "Ed25519"])(
    "is a license under the algorithm name %s, and is written under the older one",
    async (alg) => {
      const typ = "holdfast-license+jwt";
      const jws = await signed(JSON.stringify(licenseClaims), { typ, alg });
      expect(await verifyJws(typ, jws, keys)).toEqual(licenseClaims);
      expect(decodeProtectedHeader(await signJws(typ, licenseClaims, key)).alg).toBe("EdDSA");
      const none = signed(JSON.stringify(licenseClaims), { typ, alg }).then((text) =>
        text.replace(/^[^.]+/, header("ES256")),
      );
      await expect(none.then((text) => verifyJws(typ, text, keys))).rejects.toThrow(/alg must be EdDSA or Ed25519/);
    },
  );

  test("with any one character changed is refused", async () => {
    const jws = await signJws(TYP, claims, key);
    for (let at = 0; at < jws.length - 1; at += 1) {
      const changed = jws.slice(0, at) + (jws[at] === "A" ? "B" : "A") + jws.slice(at + 1);
      await expect(verifyJws(TYP, changed, keys)).rejects.toBeInstanceOf(InputError);
    }
  });

  test("with claims that its schema refuses names the field", async () => {
    const wrong = verifyJws(TYP, await signed(JSON.stringify({ ...claims, aud: "me" })), keys);
    await expect(wrong).rejects.toMatchObject({ code: "invalid-claims" });
    await expect(wrong).rejects.toThrow(`${TYP}: aud: `);
    for (const payload of ["", "{", '{"__proto__":{}}', "[".repeat(40)]) {
      await expect(verifyJws(TYP, await signed(payload), keys)).rejects.toBeInstanceOf(InputError);
    }
  });
});

test("thumbprints are those of RFC 7638, of public keys only", async () => {
  // RFC 8037 appendix A.3
  const x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
  expect(await thumbprint({ kty: "OKP", crv: "Ed25519", x })).toBe("kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
  const all = generateKeys();
  const halves = publicKeys(all);
  expect(JSON.stringify(halves)).not.toContain('"d"');
  const prints = await thumbprintsOf(halves);
  expect(new Set(Object.values(prints)).size).toBe(3);
  expect(await thumbprintsOf(publicKeys(generateKeys()))).not.toEqual(prints);
});
