import { expect, test } from "vitest";
import { SessionError } from "../../../../src/errors.ts";
import { judgeEnd, judgeRefusal } from "../../../../src/agent/session/ending.ts";

const nobody = { isProven: false, isDeleted: false };
const proven = { isProven: true, isDeleted: false };

test.each([
  { end: undefined, evidence: proven, code: "connection-lost", ending: { kind: "failed" } },
  { end: 1001, evidence: proven, code: "connection-closed", ending: { kind: "failed" } },
  { end: 1011, evidence: nobody, code: "connection-closed", ending: { kind: "failed" } },
  { end: 1011, evidence: proven, code: "server-error", ending: { kind: "failed" } },
  { end: 1013, evidence: proven, code: "server-error", ending: { kind: "failed" } },
  { end: 1009, evidence: proven, code: "too-large", ending: { kind: "failed" } },
  { end: 4001, evidence: nobody, code: "not-authentic", ending: { kind: "not-authentic" } },
  { end: 4001, evidence: proven, code: "not-authentic", ending: { kind: "not-authentic" } },
  { end: 4002, evidence: nobody, code: "connection-closed", ending: { kind: "failed" } },
  { end: 4002, evidence: proven, code: "superseded", ending: { kind: "superseded" } },
  { end: 4003, evidence: nobody, code: "not-authentic", ending: { kind: "not-authentic" } },
  { end: 4003, evidence: proven, code: "not-authentic", ending: { kind: "not-authentic" } },
  { end: 4003, evidence: { isProven: false, isDeleted: true }, code: "deleted", ending: { kind: "deleted" } },
  { end: 4004, evidence: nobody, code: "connection-closed", ending: { kind: "failed" } },
  { end: 4004, evidence: proven, code: "protocol-version", ending: { kind: "protocol-version" } },
  { end: 4008, evidence: nobody, code: "connection-closed", ending: { kind: "failed" } },
])("$end of one with $evidence is $code", ({ end, evidence, code, ending }) => {
  const judged = judgeEnd({ closeCode: end, reason: "300" }, evidence);
  expect(judged.ending).toEqual(ending);
  expect(judged.error).toMatchObject({ code, message: end === undefined ? "300" : `closed with ${end}: 300` });
});

test("reports an end by this side as such", () => {
  const { ending, error } = judgeEnd({ closeCode: undefined, reason: "too many", ours: "flooded" }, proven);
  expect([ending.kind, error.code, error.message]).toEqual(["failed", "flooded", "too many"]);
});

test.each([
  { reason: "300", delayMs: 300_000 },
  { reason: "7 seconds", delayMs: 7000 },
  { reason: "-7", delayMs: 60_000 },
  { reason: "later", delayMs: 60_000 },
])("4008 with $reason waits $delayMs ms", ({ reason, delayMs }) => {
  expect(judgeEnd({ closeCode: 4008, reason }, proven)).toMatchObject({
    error: { code: "too-many" },
    ending: { kind: "asked-to-wait", delayMs },
  });
});

test.each([
  { tlsKey: undefined, code: "not-authentic" },
  { tlsKey: "pinned", code: "not-authentic" },
  { tlsKey: "foreign", code: "tls-intercepted" },
])("reports a hello refused over the TLS key $tlsKey as $code", ({ tlsKey, code }) => {
  const judged = judgeRefusal(new SessionError("identity-held", "unknown node"), tlsKey, ["other", "pinned"]);
  expect(judged.code).toBe(code);
  expect(judged.message).toContain("identity-held: unknown node");
});
