import { expect, test } from "vitest";
import {
  checkKeys,
  judgeRegistration,
  type RegistrationFacts,
} from "../../../../src/controller/nodes/registration-rules.ts";
import { makeIdentity } from "../../../support/control-plane/node-client.ts";

const KEYS = { auth: "a", overlay: "o", wireguard: "w" };
const NONE: RegistrationFacts = { registered: undefined, isDeleted: false, keyOwner: undefined, isNameTaken: false };
const refused = (code: string) => ({ kind: "refused", code });

test.each<[string, Partial<RegistrationFacts>, number, object]>([
  ["a fresh license", {}, 99, { kind: "new" }],
  ["the last moment is past", {}, 100, refused("license-expired")],
  ["the same keys again", { registered: KEYS }, 99, { kind: "again" }],
  ["the same keys long after", { registered: KEYS }, 10_000, { kind: "again" }],
  ["the same keys, name and all", { registered: KEYS, isNameTaken: true }, 99, { kind: "again" }],
  ["another auth key", { registered: { ...KEYS, auth: "x" } }, 99, refused("license-reused")],
  ["another overlay key", { registered: { ...KEYS, overlay: "x" } }, 99, refused("license-reused")],
  ["another wireguard key", { registered: { ...KEYS, wireguard: "x" } }, 99, refused("license-reused")],
  ["a key of another node", { keyOwner: "other" }, 99, refused("key-in-use")],
  ["a taken name", { isNameTaken: true }, 99, refused("name-taken")],
  ["a deleted node", { isDeleted: true }, 99, refused("license-expired")],
])("%s", (_what, facts, now, verdict) => {
  expect(judgeRegistration({ exp: 100 }, KEYS, { ...NONE, ...facts }, now)).toEqual(verdict);
});

/** The points of small order of Curve25519 and of its twist, as they come over the wire (RFC 7748 §6.1). */
const SMALL_ORDER = [
  "0000000000000000000000000000000000000000000000000000000000000000",
  "0100000000000000000000000000000000000000000000000000000000000000",
  "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
  "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
  "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
];

test("keys off their curve or of small order are refused by name", async () => {
  const { keys } = await makeIdentity();
  expect(() => checkKeys(keys)).not.toThrow();
  for (const point of SMALL_ORDER) {
    const wireguard = { ...keys.wireguard, x: Buffer.from(point, "hex").toString("base64url") };
    expect(() => checkKeys({ ...keys, wireguard }), point).toThrow("keys.wireguard");
  }
  const swapped = { ...keys.overlay, x: keys.overlay.y, y: keys.overlay.x };
  const beyond = { ...keys.overlay, x: Buffer.alloc(32, 255).toString("base64url") };
  for (const overlay of [swapped, beyond]) expect(() => checkKeys({ ...keys, overlay })).toThrow("keys.overlay");
});
