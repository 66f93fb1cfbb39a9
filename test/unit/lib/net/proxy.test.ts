import { describe, expect, test } from "vitest";
import { isLoopback, parseNoProxy, proxyFor } from "../../../../src/lib/net/proxy.ts";

const https = new URL("http://proxy.example:3128");
const http = new URL("http://plain.example:80");

describe("the proxy of a connection", () => {
  test("depends on whether it is TLS", () => {
    const settings = { https, http, noProxy: [] };
    expect(proxyFor(settings, "cp.example", 443, true)).toBe(https);
    expect(proxyFor(settings, "cp.example", 80, false)).toBe(http);
    expect(proxyFor({ https, noProxy: [] }, "cp.example", 80, false)).toBeUndefined();
  });

  test.each(["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.1", "::1", "[::1]", "a.localhost"])(
    "is never used to this machine: %s",
    (host) => {
      expect(proxyFor({ https, noProxy: [] }, host, 443, true)).toBeUndefined();
    },
  );

  test.each([
    ["*", "any.example", 443, true],
    ["example.net", "example.net", 443, true],
    ["example.net", "cp.example.net", 443, true],
    [".example.net", "cp.example.net", 443, true],
    ["*.example.net", "CP.Example.Net", 443, true],
    ["example.net", "badexample.net", 443, false],
    ["example.net:8443", "example.net", 8443, true],
    ["example.net:8443", "example.net", 443, false],
    ["10.0.0.1", "10.0.0.1", 443, true],
    ["10.0.0.1:443", "10.0.0.1", 443, true],
    ["10.0.0.1", "110.0.0.1", 443, false],
    ["2001:db8::1", "2001:db8::1", 443, true],
    ["2001:db8::1", "2001:db8::2", 443, false],
    ["[2001:db8::1]", "2001:db8::1", 443, true],
    ["[2001:db8::1]:443", "2001:db8::1", 443, true],
    ["[2001:db8::1]:443", "2001:db8::1", 8443, false],
  ])("with the rule %s for %s:%i is bypassed: %s", (rule, host, port, isDirect) => {
    expect(proxyFor({ https, noProxy: parseNoProxy(rule) }, host, port, true)).toBe(isDirect ? undefined : https);
  });
});

test.each([
  "127.0.0.1.example.net",
  "localhost.example.net",
  "128.0.0.1",
  "0.0.0.0",
  "::",
  "10.0.0.1",
  "",
  "notlocalhost",
])("%j is not loopback", (host) => {
  expect(isLoopback(host)).toBe(false);
});

test("trims and lower-cases the list, and drops empty parts", () => {
  expect(parseNoProxy(" A.example , ,b.Example,")).toEqual(["a.example", "b.example"]);
  expect(parseNoProxy(undefined)).toEqual([]);
});
