import { describe, expect, it } from "vitest";
import { servicesReport } from "../../../../src/agent/data-plane/services-report.ts";
import { ServicesReport } from "../../../../src/protocol/local/overlay.ts";
import type { OverlayService } from "../../../../src/protocol/overlay/overlay.ts";
import type { JsonObject } from "../../../../src/protocol/values/values.ts";
import { ABSENT, aReading, type ReadingParts } from "../../../support/overlay/overlay-reading.ts";

const web = { name: "web", protocol: "tcp", host: "127.0.0.1", port: 8080 };
const offered: OverlayService = {
  name: "web",
  protocol: "tcp",
  host: "127.0.0.1",
  port: 8080,
  connectTimeoutMs: 5000,
  idleTimeoutMs: 1000,
};

const config = (item: JsonObject, connectors: JsonObject = {}): ReadingParts["config"] => ({
  services: { version: 2, items: { s1: { ...web, ...item } } },
  connectors: { version: 2, items: connectors },
});

const only = (parts: ReadingParts, changes: Parameters<typeof aReading>[1] = {}) =>
  ServicesReport.parse(servicesReport(aReading(parts, changes))).services[0];

describe("a service", () => {
  it("that is offered has its target, its health, and its connectors", () => {
    const to = { node: "local", service: "web", protocol: "tcp" };
    const connectors = {
      a: { ...to, port: 1001, nic: "eth0", description: "pages, too" },
      b: { ...to, port: 1002, node: "branch-2" },
      c: { ...to, port: 1003, service: "other" },
      d: { ...to, port: 1004, localIp: "10.0.0.1", enabled: false },
      e: { ...to, port: 1005, service: "127.0.0.1:80" },
    };
    const health = [{ name: "web", state: "up", since: 5 } as const];
    expect(only({ config: config({ description: "pages" }, connectors), services: [offered], health })).toEqual({
      id: "s1",
      name: "web",
      description: "pages",
      state: "offered",
      protocol: "tcp",
      target: { transport: "tcp", host: "127.0.0.1", port: 8080 },
      health: { state: "up", since: 5 },
      connectors: ["a", "d"],
      usedBy: [
        { id: "a", description: "pages, too", transport: "tcp", port: 1001, nic: "eth0" },
        { id: "d", transport: "tcp", port: 1004, address: "10.0.0.1" },
      ],
    });
    const many = Array.from({ length: 40 }, (_, at) => [`c${at}`, { ...to, port: 2000 + at }] as const);
    const crowded = only({ config: config({}, Object.fromEntries(many)), services: [offered] });
    expect([crowded?.connectors.length, crowded?.usedBy?.length]).toEqual([40, 32]);
    expect(only({ config: config({}), services: [offered] })?.health).toBeUndefined();
  });

  it.each<[string, JsonObject, Partial<ReadingParts>, Parameters<typeof aReading>[1], JsonObject]>([
    ["is off", { enabled: false }, { services: [offered] }, {}, { state: "off" }],
    ["is off with the node", {}, { node: { state: "INACTIVE" } }, {}, { state: "off", reason: { code: "inactive" } }],
    [
      "is down",
      { healthCheck: {} },
      { services: [offered], health: [{ name: "web", state: "down", since: 9 }] },
      {},
      {
        state: "offered",
        reason: { code: "service-down", message: "127.0.0.1:8080 does not answer" },
        health: { state: "down", since: 9 },
      },
    ],
    [
      "has no address to leave from",
      { sourceInterface: "eth9" },
      { services: [{ ...offered, lacksSource: true }] },
      {},
      { state: "waiting", reason: { code: "address-absent" } },
    ],
    ["is not there yet", {}, {}, {}, { state: "waiting", reason: { code: "pending" } }],
    [
      "waits for the overlay",
      {},
      {},
      { ...ABSENT, status: { state: "down", since: 1 } },
      { state: "waiting", reason: { code: "overlay-down", message: "the overlay is not running" } },
    ],
    ["is refused", { host: "1.2.3" }, {}, {}, { state: "rejected", reason: { code: "E_NAME_FORMAT" }, connectors: [] }],
  ])("%s", (_what, change, parts, changes, expected) => {
    expect(only({ config: config(change), ...parts }, changes)).toMatchObject(expected);
  });

  it("of a disabled section is off, and a malformed section is an issue", () => {
    const off = { services: { version: 2, enabled: false, items: { s1: web } } };
    expect(only({ config: off })).toMatchObject({ state: "off" });
    const { issues, services } = servicesReport(aReading({ config: { services: { items: [] } } }));
    expect({ issues, services }).toMatchObject({ issues: [{ code: "E_ENUM" }], services: [] });
  });
});
