import { describe, expect, test } from "vitest";
import { z } from "zod";
import { AgentFile } from "../../../../src/agent/settings.ts";
import { NodeDocument } from "../../../../src/protocol/documents/documents.ts";
import { clusterSectionSchemas, sectionSchemas } from "../../../../src/protocol/sections/sections.ts";
import { FIELDS, LEFT_OUT, shownValue } from "../../../../src/protocol/documents/shown.ts";

/** Returns the names of all fields of a JSON Schema. */
function fieldsOf(schema: unknown, found = new Set<string>()): ReadonlySet<string> {
  if (typeof schema !== "object" || schema === null) return found;
  for (const [name, value] of Object.entries(schema) as [string, unknown][]) {
    if (name === "properties" && typeof value === "object" && value !== null && !Array.isArray(value)) {
      for (const field of Object.keys(value)) found.add(field);
      for (const inner of Object.values(value)) fieldsOf(inner, found);
    } else {
      fieldsOf(value, found);
    }
  }
  return found;
}

const json = (schema: z.ZodType): unknown => z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
const schemas: readonly (readonly [string, unknown])[] = [
  ["settings", json(AgentFile)],
  ...Object.entries(sectionSchemas).map(([name, schema]) => [name, json(schema)] as const),
  ...Object.entries(clusterSectionSchemas).map(([name, schema]) => [name, json(schema)] as const),
];

describe("every field is classified", () => {
  test.each(schemas)("of %s: it may be shown or is hidden", (name, schema) => {
    const { shown = "", hidden = "" } = FIELDS[name] ?? {};
    const judged = new Set([...shown.split(" "), ...hidden.split(" ")]);
    expect([...fieldsOf(schema)].filter((field) => !judged.has(field))).toEqual([]);
    expect(shown.split(" ").filter((field) => hidden.split(" ").includes(field))).toEqual([]);
  });

  test("of the document's record too, except the sections", () => {
    const judged = new Set(FIELDS["document"]?.shown.split(" "));
    expect(Object.keys(NodeDocument.shape).filter((field) => !judged.has(field) && field !== "config")).toEqual([]);
  });

  test("an unclassified field is detected", () => {
    expect(fieldsOf(json(z.object({ list: z.array(z.object({ newSecret: z.string() })) })))).toContain("newSecret");
  });
});

test("hides what is not known to be harmless, and reports it to the scrubber", () => {
  const value = { tunnels: [{ name: "a", psk: "s1", newField: ["s2", { deep: "s3" }], mtu: 1400 }] };
  expect(shownValue("network", value)).toEqual({
    shown: { tunnels: [{ name: "a", psk: LEFT_OUT, newField: LEFT_OUT, mtu: 1400 }] },
    leftOut: ["s1", "s2", "s3"],
  });
});

test("shows only the names of the fields of a section without a schema", () => {
  const value = { upstream: "s1", port: 53 };
  expect(shownValue("dns", value)).toEqual({ shown: { upstream: LEFT_OUT, port: LEFT_OUT }, leftOut: ["s1"] });
});

test("hides the pass phrases of SNMP, a shared secret of clusters and the commands of thresholds", () => {
  const snmp = { username: "nms", authPassphrase: "s1", privacyPassphrase: "s2", community: "s3" };
  expect(shownValue("snmp", snmp)).toEqual({
    shown: { username: "nms", authPassphrase: LEFT_OUT, privacyPassphrase: LEFT_OUT, community: LEFT_OUT },
    leftOut: ["s1", "s2", "s3"],
  });
  expect(shownValue("cluster", { host: "192.0.2.1", shared: "s1" }).leftOut).toEqual(["s1"]);
  expect(shownValue("alert", { thresholds: [{ name: "disk", command: "s1" }] }).leftOut).toEqual(["s1"]);
});

test("finds items by their ids", () => {
  expect(shownValue("connectors", { items: { web: { port: 80, x: "s1" } } }).shown).toEqual({
    items: { web: { port: 80, x: LEFT_OUT } },
  });
});

test("removes user, password and query from an address", () => {
  const { shown, leftOut } = shownValue("settings", { proxy: "http://me:p%40ss@proxy.example:3128/?k=v" });
  expect(shown).toEqual({ proxy: "http://proxy.example:3128/" });
  expect(leftOut).toEqual(expect.arrayContaining(["me", "p%40ss", "p@ss", "k=v"]));
});
