import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { listSections } from "../../../src/agent/list-sections.ts";
import { Issue } from "../../../src/protocol/reconcile.ts";
import { SectionName } from "../../../src/protocol/sections.ts";

/** What others rest on comes before them: links before tunnels, services before the connectors that refer to them. */
const ORDER: readonly SectionName[] = [
  "core",
  "jvm",
  "network",
  "dns",
  "gateway",
  "vpn",
  "services",
  "connectors",
  "exec",
  "_bgp",
  "snmp",
  "apigw",
  "cluster",
  "alert",
];

/** Puts each section through its contract, by its name. */
const contracts: ReadonlyMap<string, () => void> = new Map();

const sections = listSections();
const names = sections.map(({ name }) => name);

test("the order is of every section there is", () => {
  expect([...ORDER].sort()).toEqual([...SectionName.options].sort());
});

test("the sections are named once each, as documents name them, and in the order in which they rest on each other", () => {
  expect(names).toEqual(ORDER.filter((name) => names.includes(name)));
});

test("each has a contract", () => {
  expect([...contracts.keys()].sort()).toEqual([...names].sort());
});

for (const run of contracts.values()) run();

describe.each(sections.map((section) => [section.name, section] as const))("%s", (name, section) => {
  test("throws at nothing that a document may hold", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), (raw) => {
        for (const issue of section.prepare(raw).rejected)
          expect(Issue.parse(issue).path.split(".", 1)).toEqual([name]);
      }),
    );
  });
});
