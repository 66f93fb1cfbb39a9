import { expect, test } from "vitest";
import { judgeRegistration, type RegistrationFacts } from "../../../../src/controller/model/registration.ts";

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
