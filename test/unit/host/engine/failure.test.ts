import { expect, test } from "vitest";
import { connectionFailure, refusal, withoutSecrets } from "../../../../src/host/engine/failure.ts";

test("an engine that gives a reason has refused, one without is unhealthy", () => {
  expect(refusal("cannot x", 409, '{"message":" in use \\n"}', [])).toMatchObject({
    code: "engine-refused",
    message: "cannot x: in use",
    details: { status: 409 },
  });
  expect(refusal("cannot x", 404, "", [])).toMatchObject({ code: "engine-refused", message: "cannot x: status 404" });
  expect(refusal("cannot x", 500, '{"cause":"c","message":"m","response":500}', [])).toMatchObject({
    message: "cannot x: m",
  });
  for (const body of ["", "{}", "<html>bad gateway</html>", '{"message":""}', "null"]) {
    expect(refusal("cannot x", 502, body, [])).toMatchObject({ code: "engine-unwell" });
  }
});

test("hides secrets, also one within another and options that are secret", () => {
  expect(withoutSecrets("bad: K=abcd-efgh and abcd", ["abcd", "K=abcd-efgh", "abcd-efgh"])).toBe("bad: … and …");
  expect(withoutSecrets("mount -o user=me,password=hunter2,ro", [])).toBe("mount -o user=me,password=…,ro");
  expect(withoutSecrets("1 of 1", ["1", ""])).toBe("1 of 1");
});

test("a message is one bounded line", () => {
  const text = withoutSecrets(`a\u001b[31mb\nc${"x".repeat(5000)}`, []);
  expect(text).toMatch(/^ab cx+$/);
  expect(text).toHaveLength(500);
});

test("names an unusable socket with the reason", () => {
  const error = Object.assign(new Error("connect ENOENT"), { code: "ENOENT" });
  expect(connectionFailure("cannot x", "/run/s", error)).toMatchObject({
    code: "engine-unwell",
    message: "cannot x: the container engine at /run/s has no socket: it is not installed or not running",
    cause: error,
  });
});
