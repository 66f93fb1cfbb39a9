import { expect, test } from "vitest";
import { sourcesOf } from "../../../../src/controller/http/sources.ts";

const from = (remoteAddress: string, forwarded?: string) => ({
  socket: { remoteAddress },
  headers: forwarded === undefined ? {} : { "x-forwarded-for": forwarded },
});
const direct = sourcesOf({ trustedProxies: [], hasFrontEnd: false });
const fronted = sourcesOf({ trustedProxies: ["10.0.0.0/8", "fd00::/8"], hasFrontEnd: true });

test("without front ends the address is the socket's, and what a client claims is ignored", () => {
  expect(direct.of(from("::ffff:192.0.2.1", "203.0.113.9"))).toEqual({ address: "192.0.2.1", prefix: "192.0.2.1" });
  expect(direct.of(from("2001:db8::1"))).toEqual({ address: "2001:db8::1", prefix: "2001:db8::/64" });
});

test("a front end that is not trusted by name hides its clients", () => {
  const hidden = sourcesOf({ trustedProxies: [], hasFrontEnd: true });
  expect(hidden.areHidden).toBe(true);
  expect(hidden.of(from("10.0.0.1", "203.0.113.9"))).toEqual({ address: "10.0.0.1", prefix: undefined });
});

test.each([
  ["203.0.113.9", "203.0.113.9"],
  ["198.51.100.1, 203.0.113.9", "203.0.113.9"],
  ["203.0.113.9, 10.1.2.3 , fd00::5", "203.0.113.9"],
  ["203.0.113.9:4711", "203.0.113.9"],
  ["[2001:db8:0:0::7]:4711", "2001:db8::7"],
  ["::ffff:203.0.113.9", "203.0.113.9"],
])("the client of %s is the last that is no front end", (forwarded, address) => {
  expect(fronted.of(from("10.0.0.1", forwarded)).address).toBe(address);
});

test.each([undefined, "", "unknown", "203.0.113.9, _hidden", "203.0.113.9,", "10.0.0.2"])(
  "a front end that names nobody (%s) is not taken for one client",
  (forwarded) => {
    expect(fronted.of(from("10.0.0.1", forwarded))).toEqual({ address: "10.0.0.1", prefix: undefined });
  },
);

test("who comes past the front ends cannot claim another address", () => {
  expect(fronted.of(from("192.0.2.1", "203.0.113.9")).address).toBe("192.0.2.1");
});
