import { expect, test } from "vitest";
import { authHeader, parseLine, pullCode } from "../../../../src/host/engine/pull.ts";

test("reports in the engine's words why a pull failed", () => {
  const output: readonly (readonly [string, string])[] = [
    ['Head "http://127.0.0.1:5000/v2/a/manifests/1": no basic auth credentials', "pull-unauthorized"],
    ["unauthorized: authentication required", "pull-unauthorized"],
    [
      "pull access denied for x, repository does not exist or may require 'docker login': denied: requested access",
      "pull-unauthorized",
    ],
    ["manifest for a:2 not found: manifest unknown: manifest unknown", "pull-not-found"],
    ["name unknown: repository name not known to registry", "pull-not-found"],
    ["no matching manifest for linux/arm64 in the manifest list entries", "image-platform"],
    ["toomanyrequests: You have reached your pull rate limit", "pull-rate-limited"],
    ["received unexpected HTTP status: 429 Too Many Requests", "pull-rate-limited"],
    ["write /var/lib/docker/tmp/x: no space left on device", "pull-no-space"],
    [
      "failed to register layer: Error processing tar file(exit status 1): write /a: no space left on device",
      "pull-no-space",
    ],
    ["unexpected EOF", "pull-failed"],
    ['Get "https://x/v2/": dial tcp: lookup x: no such host', "pull-failed"],
    ["", "pull-failed"],
  ];
  expect(output.map(([message]) => [message, pullCode(message)])).toEqual(output);
});

test("a line is progress or a failure", () => {
  const line =
    '{"status":"Downloading","progressDetail":{"current":1,"total":9},"id":"f00","progress":"[>  ]","new":1}';
  expect(parseLine(line)).toEqual({ layer: "f00", status: "Downloading", current: 1, total: 9 });
  expect(parseLine('{"status":"Pulling","progressDetail":{}}')).toMatchObject({ layer: undefined, total: undefined });
  expect(parseLine('{"errorDetail":{"message":"detail"},"error":"short"}')).toEqual({ failure: "detail" });
  expect(parseLine('{"error":"short"}')).toEqual({ failure: "short" });
  for (const wrong of ["", "no", "[]", '{"status":1}']) expect(() => parseLine(wrong)).toThrow("progress of a pull");
});

test("the credential is base64url with padding", () => {
  const header = authHeader({ username: "ü>?", password: "p~~?>", server: "h" });
  expect(header).toMatch(/^[\w-]+=*$/);
  expect(header.length % 4).toBe(0);
  expect(JSON.parse(Buffer.from(header, "base64url").toString())).toEqual({
    username: "ü>?",
    password: "p~~?>",
    serveraddress: "h",
  });
});
