import { describe, expect, test } from "vitest";
import { parseForwardDrops } from "../../../../../src/host/network/firewall/forward-drops.ts";

const DROP = { drop: null };
const MATCH = { match: { op: "==", left: { meta: { key: "iifname" } }, right: "eth0" } };

function ruleset(
  { family = "ip", table = "filter", hook = "forward", type = "filter", policy = "accept" },
  ...rules: readonly (readonly object[])[]
): string {
  const name = "FORWARD";
  const chain = { family, table, name, hook, type, prio: 0, policy };
  const own = rules.map((expr) => ({ rule: { family, table, chain: name, expr } }));
  return JSON.stringify({ nftables: [{ metainfo: {} }, { table: { family, name: table } }, { chain }, ...own] });
}

describe("a chain of the hook forward", () => {
  test.each([
    ["with the policy drop", ruleset({ policy: "drop" }, [MATCH, { accept: null }]), "policy drop"],
    ["whose last rule drops all", ruleset({}, [MATCH, { accept: null }], [{ counter: null }, DROP]), "drop"],
    ["whose last rule rejects all", ruleset({ family: "inet" }, [{ reject: { type: "icmpx" } }]), "reject"],
  ])("%s is named", (_, text, by) => {
    expect(parseForwardDrops(text)).toMatchObject([{ chain: "FORWARD", by }]);
  });

  test.each([
    ["that accepts all in the end", ruleset({ policy: "drop" }, [{ accept: null }])],
    ["that drops some", ruleset({}, [MATCH, DROP])],
    ["that leaves it to another", ruleset({}, [{ jump: { target: "DOCKER-USER" } }])],
    ["of ours", ruleset({ family: "inet", table: "holdfast", policy: "drop" })],
    ["of another protocol", ruleset({ family: "ip6", policy: "drop" })],
    ["of another hook", ruleset({ hook: "input", policy: "drop" })],
  ])("%s is not", (_, text) => {
    expect(parseForwardDrops(text)).toEqual([]);
  });
});

test.each(["{}", "[]", "null", '{"nftables": 5}', '{"nftables": [1, null, {"chain": 7}, {"rule": []}]}'])(
  "an answer of another form names no chain: %s",
  (text) => {
    expect(parseForwardDrops(text)).toEqual([]);
  },
);

test("an answer that is not JSON is reported as such", () => {
  expect(() => parseForwardDrops("oops")).toThrow("not JSON");
});
