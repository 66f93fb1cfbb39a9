import fc from "fast-check";
import { expect, test } from "vitest";
import { scrubber } from "../../../../src/lib/text/scrub.ts";

const SECRET = 'Zq7"+/väry?secret';
const scrub = scrubber([SECRET, "abc"], "***");

test.each([
  ["as it is", SECRET],
  ["as JSON", JSON.stringify({ value: SECRET })],
  ["as JSON in JSON", JSON.stringify({ line: JSON.stringify({ value: SECRET }) })],
  ["in an address", `https://x.example/?v=${encodeURIComponent(SECRET)}`],
  ["in hexadecimal", Buffer.from(SECRET).toString("hex")],
  ["in large hexadecimal", Buffer.from(SECRET).toString("hex").toUpperCase()],
])("removes a known secret %s", (_, text) => {
  const clean = scrub(`before ${text} after`);
  for (const form of [SECRET, "secret", encodeURIComponent(SECRET), Buffer.from(SECRET).toString("hex")])
    expect(clean.toLowerCase()).not.toContain(form.toLowerCase());
  expect(clean).toMatch(/^before .* after$/);
});

test("and inside any base64, with any text around it", () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 9 }), fc.string({ maxLength: 9 }), fc.boolean(), (before, after, isUrl) => {
      const text = Buffer.from(before + SECRET + after).toString(isUrl ? "base64url" : "base64");
      const decoded = Buffer.from(scrub(text).replace("***", ""), "base64").toString();
      expect(decoded).not.toContain("secret");
    }),
  );
});

test.each([
  ["eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJ4In0.c2lnbmF0dXJl", "***"],
  ["https://user:hunter2@host.example/x", "https://***@host.example/x"],
  ["Authorization: Bearer abcdef123456", "Authorization: *** ***"],
  ['{"password":"hunter2","port":1}', '{"password":"***","port":1}'],
  ["password=hunter2 port=1", "password=*** port=1"],
  [String.raw`{"msg":"sent {\"token\":\"hunter2\"}"}`, String.raw`{"msg":"sent {\"token\":\"***\"}"}`],
  ["-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----", "***"],
])("removes what looks like a secret: %s", (text, expected) => {
  expect(scrub(text)).toBe(expected);
});

test("keeps ordinary lines", () => {
  const line = "2026-11-21T19:00:00Z info session: connected url=wss://cp.example/agent token-free abc";
  expect(scrub(line)).toBe(line);
});
