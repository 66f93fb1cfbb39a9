import { expect, test } from "vitest";
import { FULL, addressOf, namesOf, nodesOf, prefixOf, siteOf } from "../../../../scripts/labs/layout.ts";
import { internetRules, linkOf, siteRules } from "../../../../scripts/labs/rules.ts";
import { newState, type LabState } from "../../../../scripts/labs/state.ts";

const state = newState(FULL);
const [siteA] = FULL.sites;
if (siteA === undefined) throw new Error("no site");

const rulesOf = (changed: Partial<LabState>): readonly string[] =>
  siteRules({ ...state, ...changed }, siteA).split("\n");

test("every host has a name and an address of its own, and the sites share one private network", () => {
  const places = [...FULL.hosts, ...FULL.sites];
  const all = places.flatMap((place) => [0, 1, 2, 3, 4].map((moves) => addressOf(place, moves)));
  expect(new Set(all).size).toBe(all.length);
  expect(new Set(namesOf(FULL)).size).toBe(namesOf(FULL).length);
  expect(nodesOf(FULL)).toEqual(["gw1", "gw2", "a", "b", "c", "d"]);
  // Link names are limited to 15 characters.
  for (const name of namesOf(FULL)) expect(name.length).toBeLessThanOrEqual(15);
  expect(prefixOf("/one")).not.toBe(prefixOf("/other"));
});

test("a site translates outgoing traffic and accepts nothing unrequested", () => {
  const rules = rulesOf({});
  expect(rules).toContain('oifname "wan" masquerade');
  expect(rules.filter((rule) => rule === 'iifname "wan" drop').length).toBe(2);
  expect(rules.filter((rule) => /redirect to|numgen|udp|reject/.test(rule))).toEqual([]);
});

test.each([
  ["in", ["iif"]],
  ["out", ["oif"]],
  ["both", ["iif", "oif"]],
] as const)("a loss %s drops there", (direction, sides) => {
  const rules = rulesOf({ faults: { a: { drop: { percent: 12.5, direction } } } });
  const lossy = rules.filter((rule) => rule.includes("numgen"));
  expect(lossy).toEqual(sides.map((side) => `${side}name "wan" numgen random mod 1000 < 125 drop`));
});

test("a loss of everything is not random", () => {
  const rules = rulesOf({ faults: { a: { drop: { percent: 100, direction: "out" } } } });
  expect(rules.filter((rule) => rule === 'oifname "wan" drop').length).toBe(1);
});

test("a lag leads new connections to the gateways through the proxy and ends the others", () => {
  const rules = rulesOf({ faults: { a: { lagMs: 20 } }, moves: { gw2: 1 } });
  expect(rules).toContain('iifname "lan" ip daddr 203.0.113.18 tcp dport 8443 redirect to :7001');
  expect(rules).toContain('iifname "lan" ip daddr 203.0.113.27 tcp dport 8443 redirect to :7002');
  expect(rules.filter((rule) => rule.endsWith("reject with tcp reset")).length).toBe(2);
  expect(rulesOf({ faults: { b: { lagMs: 20 } } })).toEqual(rulesOf({}));
});

test("datagrams are blocked in both directions", () => {
  const blocked = rulesOf({ faults: { a: { isUdpBlocked: true } } }).filter((rule) => rule.includes("udp"));
  expect(blocked).toEqual(['iifname "wan" meta l4proto udp drop', 'oifname "wan" meta l4proto udp drop']);
});

test("the internet drops traffic from and to disconnected sites; machines inside a site are not on it", () => {
  const rules = internetRules({ ...state, cut: ["gw1", "a", "web"] }).split("\n");
  expect(rules.filter((rule) => rule.endsWith(" drop"))).toEqual([
    'iifname "gw1" drop',
    'oifname "gw1" drop',
    'iifname "site-a" drop',
    'oifname "site-a" drop',
  ]);
  expect(linkOf(state, "web")).toBeUndefined();
  expect(siteOf(FULL, "web")?.edge).toBe("b");
});
