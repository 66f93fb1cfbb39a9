import { expect, test } from "vitest";
import { judgeTrigger } from "../../../../../src/agent/triggers/execution/judge.ts";
import type { TriggerClaims } from "../../../../../src/protocol/documents/claims.ts";
import { claims, NOW } from "../rig.ts";

const good = claims("tg-ping");
const expected = { uid: good.aud, iss: good.iss, sid: good.sid, sessionNow: NOW + 1000 };
const other = "00000000-0000-4000-8000-000000000000";

test("obeys claims for this node, from its control plane, in this session, in time", () => {
  expect(judgeTrigger(good, expected)).toBeUndefined();
  expect(judgeTrigger({ ...good, iat: NOW / 1000 + 61 }, expected)).toBeUndefined();
});

test.each<[string, Partial<TriggerClaims>, string]>([
  ["iss", { iss: "https://evil.example.net" }, "bad-signature"],
  ["aud", { aud: other }, "bad-signature"],
  ["exp", { exp: NOW / 1000 + 1 }, "bad-signature"],
  ["iat", { iat: NOW / 1000 + 62 }, "bad-signature"],
  ["sid", { sid: other }, "replayed"],
])("refuses a wrong %s", (field, change, code) => {
  expect(judgeTrigger({ ...good, ...change }, expected)).toMatchObject({ code, details: { field } });
});
