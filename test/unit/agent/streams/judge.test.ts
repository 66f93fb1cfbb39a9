import { createHash, randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { judgeStream } from "../../../../src/agent/streams/judge.ts";
import { StreamClaims } from "../../../../src/protocol/documents/claims.ts";

const ticket = "t".repeat(43);
const expected = { uid: randomUUID(), iss: "https://cp.example", sid: randomUUID(), ticket, sessionNow: 1_000_000 };
const good: StreamClaims = {
  iss: expected.iss,
  aud: expected.uid,
  sid: expected.sid,
  jti: randomUUID(),
  kind: "container-exec",
  params: { container: "web" },
  user: "ann",
  th: createHash("sha256").update(ticket).digest("base64url"),
  iat: 990,
  exp: 1050,
};

test("obeys claims that fit", () => {
  expect(StreamClaims.parse(good)).toEqual(good);
  expect(judgeStream(good, expected)).toBeUndefined();
});

test.each([
  ["iss", { iss: "https://other.example" }, "bad-signature"],
  ["aud", { aud: randomUUID() }, "bad-signature"],
  ["iat", { iat: 1061, exp: 1100 }, "bad-signature"],
  ["exp", { exp: 1000 }, "bad-signature"],
  ["th", { th: "x".repeat(43) }, "bad-signature"],
  ["sid", { sid: randomUUID() }, "replayed"],
] as const)("refuses a wrong %s", (field, change, code) => {
  expect(judgeStream({ ...good, ...change }, expected)).toMatchObject({ code, details: { field } });
});

test.each([
  ["an unknown claim", { limit: 1 }],
  ["no ticket hash", { th: undefined }],
  ["a kind of another form", { kind: "Container Exec" }],
  ["parameters that are no object", { params: "web" }],
])("%s is not a set of claims", (_, change) => {
  expect(StreamClaims.safeParse({ ...good, ...change }).success).toBe(false);
});
