import { expect, test } from "vitest";
import { natCounters, parseNatCounters } from "../../../../../src/host/network/firewall/nat-counters.ts";
import { fakeTools } from "../../../../support/fake-tools.ts";

const signal = new AbortController().signal;

// As printed by nft 1.0.6.
const LISTED =
  '{"nftables": [{"metainfo": {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}}, {"table": {"family": "inet", "name": "holdfast", "handle": 1}}, {"map": {"family": "inet", "name": "d0", "table": "holdfast", "type": "ipv4_addr", "handle": 3, "map": "ipv4_addr", "flags": ["interval"], "elem": [[{"elem": {"val": {"prefix": {"addr": "10.1.0.0", "len": 24}}, "comment": "nat-a", "counter": {"packets": 1, "bytes": 84}}}, {"prefix": {"addr": "127.0.9.0", "len": 24}}], [{"elem": {"val": "10.2.0.7", "comment": "nat-b", "counter": {"packets": 0, "bytes": 0}}}, {"prefix": {"addr": "127.0.8.7", "len": 32}}]], "stmt": [{"counter": null}]}}, {"set": {"family": "inet", "name": "m0", "table": "holdfast", "type": ["ipv4_addr", "ipv4_addr"], "handle": 5, "flags": ["interval"], "elem": [{"elem": {"val": {"concat": [{"prefix": {"addr": "127.0.0.0", "len": 8}}, {"prefix": {"addr": "10.4.0.0", "len": 16}}]}, "comment": "nat-d", "counter": {"packets": 7, "bytes": 0}}}], "stmt": [{"counter": null}]}}, {"chain": {"family": "inet", "table": "holdfast", "name": "post", "handle": 2, "type": "nat", "hook": "postrouting", "prio": 100, "policy": "accept"}}, {"rule": {"family": "inet", "table": "holdfast", "chain": "post", "handle": 8, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": "@m0"}}, {"masquerade": null}]}}, {"rule": {"family": "inet", "table": "holdfast", "chain": "post", "handle": 9, "comment": "rule-1", "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": {"prefix": {"addr": "127.0.9.0", "len": 24}}}}, {"counter": {"packets": 2, "bytes": 84}}, {"accept": null}]}}]}';

test("reads elements of maps and sets, and rules, by their comments", () => {
  expect([...parseNatCounters(LISTED)]).toEqual([
    ["nat-a", 1],
    ["nat-b", 0],
    ["nat-d", 7],
    ["rule-1", 2],
  ]);
});

test("adds up counters in one chain; of several chains and maps the highest counts", () => {
  const rule = (chain: string, packets: number) => ({
    rule: { chain, comment: "n", expr: [{ counter: { packets } }] },
  });
  const map = (name: string, packets: number) => ({
    map: { name, elem: [[{ elem: { comment: "n", counter: { packets } } }, "x"]] },
  });
  const of = (...nftables: unknown[]) => parseNatCounters(JSON.stringify({ nftables })).get("n");
  expect(of(rule("pre", 2), rule("pre", 3), rule("post", 4))).toBe(5);
  expect(of(map("a", 9), map("b", 4), rule("post", 1))).toBe(9);
});

test.each([
  "[]",
  "{}",
  '{"nftables":[7,null,{"map":{"elem":["10.0.0.1"]}},{"set":{"elem":{}}},{"rule":{"chain":"x","comment":"c","expr":[{"counter":null}]}}]}',
  '{"nftables":[{"map":{"elem":[[{"elem":{"comment":7,"counter":{"packets":1}}},"x"]]}},{"map":{"elem":[[{"elem":{"comment":"c","counter":{"packets":1.5}}},"x"]]}}]}',
])("ignores what names no counter: %s", (text) => {
  expect([...parseNatCounters(text)]).toEqual([]);
});

test("a missing table has none; an error of nft is reported; invalid JSON is an error", async () => {
  const absent = fakeTools({ nft: "echo 'Error: No such file or directory' >&2; exit 1" });
  expect([...(await natCounters(absent.exec)(signal))]).toEqual([]);
  expect(absent.calls("nft")).toEqual(["-j list table inet holdfast"]);
  const denied = fakeTools({ nft: "echo 'Operation not permitted (you must be root)' >&2; exit 1" });
  await expect(natCounters(denied.exec)(signal)).rejects.toMatchObject({
    code: "exec-failed",
    message: "nft: Operation not permitted (you must be root)",
  });
  await expect(natCounters(fakeTools({ nft: "echo '{'" }).exec)(signal)).rejects.toMatchObject({ code: "exec-failed" });
});
