import { expect, test } from "vitest";
import { parsedSections } from "../../../../src/agent/applying/parsed-sections.ts";

const item = { node: "local", service: "web", protocol: "tcp", port: 8080, sourceBlock: "10.0.0.0/8" };

test("parses a raw section once, and again when it or its schema changes", () => {
  const parsed = parsedSections();
  const raw = { version: 2, items: { a: item } };
  const first = parsed.connectors(raw, "Node");
  expect(first.items).toMatchObject([{ id: "a", sources: ["10.0.0.0/8"] }]);
  expect(parsed.connectors(raw, "Node")).toBe(first);
  expect(parsed.connectors(raw, "Agent").items[0]).not.toHaveProperty("sources");
  expect(parsed.connectors({ version: 2, items: { b: item } }, "Node").items).toMatchObject([{ id: "b" }]);
  const services = { version: 2, items: { s: { name: "web", protocol: "tcp", host: "127.0.0.1", port: 80 } } };
  expect(parsed.services(services, false)).toBe(parsed.services(services, false));
  expect(parsed.services(services, true)).not.toBe(parsed.services(services, false));
});

test.each([undefined, null, 7, "text"])("parses %j as before", (raw) => {
  expect(parsedSections().connectors(raw, "Node").items).toEqual([]);
});
