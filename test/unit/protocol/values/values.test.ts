import { describe, expect, test } from "vitest";
import { z } from "zod";
import { Origin } from "../../../../src/protocol/documents/claims.ts";
import { describeIssues } from "../../../../src/protocol/channel/envelope.ts";
import {
  boundedMap,
  EventName,
  Fqdn,
  Host,
  IpAddress,
  LinkName,
  NodeName,
  Port,
  Uid,
} from "../../../../src/protocol/values/values.ts";

const cases: readonly (readonly [string, z.ZodType, readonly unknown[], readonly unknown[]])[] = [
  [
    "host",
    Host,
    ["127.0.0.1", "::1", "example.net", "example.net.", "a_b.example", "h", "2001:db8::1"],
    [
      "",
      ".",
      "-n",
      "--help",
      "a b",
      "a;b",
      "$(id)",
      "a\0",
      "fe80::1%eth0",
      "a..b",
      "x".repeat(64),
      "é",
      "a/b",
      "[::1]",
    ],
  ],
  ["address", IpAddress, ["0.0.0.0", "::"], ["", "127.1", "example.net", "::1 ", "1.2.3.4/8"]],
  ["node name", NodeName, ["a", "n-1"], ["", "-a", "a-", "A", "a.b", "a".repeat(64)]],
  ["domain name", Fqdn, ["a", "a.b-c.d"], ["", ".", "a.", ".a", "a..b", "A.b", "-a.b", "x.".repeat(200)]],
  [
    "origin",
    Origin,
    ["https://a", "http://[::1]:8480"],
    ["https://a/", "https://u@a", "ftp://a", "https://", "https://a b"],
  ],
  ["port", Port, [1, 65_535], [0, 65_536, 1.5, "80", -1]],
  ["event", EventName, ["tg-ping", "a", "Web_1.api"], ["", ".a", "-a", "a b", "a".repeat(65), "../x"]],
  ["link", LinkName, ["eth0", "br-0.5", "wlan0:1"], ["", "a b", "a/b", "x".repeat(16), "é"]],
];

describe.each(cases)("%s", (_name, schema, good, bad) => {
  test.each(good.map((value) => [value]))("accepts %j", (value) => {
    expect(schema.safeParse(value).success).toBe(true);
  });
  test.each(bad.map((value) => [value]))("refuses %j", (value) => {
    expect(schema.safeParse(value).success).toBe(false);
  });
});

test("a uid is converted to lower case", () => {
  expect(Uid.parse("0B5E6A9E-31A7-4A1C-9A52-7F6D2D9F3C11")).toBe("0b5e6a9e-31a7-4a1c-9a52-7f6d2d9f3c11");
});

const Map3 = boundedMap(z.number(), { minName: 1, maxName: 4, maxNames: 3, isPlain: (value) => value === 1 });

test.each([
  ["three members", { a: 1, b: 2, c: 3 }, undefined],
  ["the first of many wrong members alone", { a: 1, b: null, c: null }, ["b: must be a number, not null"]],
  ["an empty name", { "": 1 }, ["a key has 1 to 4 characters"]],
  ["a long name", { abcde: 1 }, ["abcde: a key has 1 to 4 characters"]],
  ["too many members", { a: 1, b: 1, c: 1, d: null }, ["must not have more than 3 names"]],
  ["too many members within one", { a: { b: 1, c: 1, d: 1 } }, ["must not have more than 3 names"]],
  ["a list", [], ["must be an object, not a list"]],
  ["nothing", undefined, ["is missing"]],
])("a bounded map judges %s", (_, value, lines) => {
  const { error } = Map3.safeParse(value);
  expect(error === undefined ? undefined : describeIssues(error)).toEqual(lines);
});
