import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { EMPTY_TABLE, planTable, type TableStep } from "../../../src/overlay/plan-table.ts";
import type { OverlayListener, OverlayService, OverlayTable } from "../../../src/protocol/overlay/overlay.ts";
import { aListener, aService, aTable } from "../../support/overlay/overlay-rig.ts";

const brief = (steps: readonly TableStep[]): readonly string[] =>
  steps.map((step) => {
    switch (step.kind) {
      case "close":
        return `close ${step.key}`;
      case "drop-service":
        return `drop-service ${step.name}`;
      case "set-service":
        return `set-service ${step.service.name}${step.dropsFlows ? " dropping" : ""}`;
      case "change":
        return `change ${step.from}→${step.listener.key} drops ${step.drops}`;
      case "open":
        return `open ${step.listener.key}`;
    }
    throw new Error("unreachable");
  });

const web = aListener(80, { service: "web" });
const cases: readonly [string, OverlayListener, string][] = [
  ["the rate", { ...web, bitsPerSecond: 1e6 }, "change tcp:80→tcp:80 drops none"],
  ["the connector alone", { ...web, connector: "other" }, "change tcp:80→tcp:80 drops none"],
  ["the addresses", { ...web, addresses: ["127.0.0.2"] }, "change tcp:80→tcp:80 drops none"],
  ["the time-out", { ...web, idleTimeoutMs: 5000 }, "change tcp:80→tcp:80 drops none"],
  ["the sources", { ...web, sources: ["10.0.0.0/8"] }, "change tcp:80→tcp:80 drops forbidden"],
  ["the target", { ...web, target: { service: "api" } }, "change tcp:80→tcp:80 drops all"],
  ["the port under the same key", { ...web, port: 81 }, "change tcp:80→tcp:80 drops all"],
  ["the key alone", { ...web, key: "tcp:eth0:80" }, "change tcp:80→tcp:eth0:80 drops none"],
];

describe("planTable", () => {
  it("opens everything from an empty table, each once", () => {
    const table = aTable([web], [aService("web", 8080)]);
    expect(brief(planTable(EMPTY_TABLE, table))).toEqual(["set-service web", "open tcp:80"]);
    expect(planTable(table, structuredClone(table))).toEqual([]);
    expect(planTable(table, { ...table, version: table.version + 1 })).toEqual([]);
  });

  it.each(cases)("a change of %s", (_what, to, expected) => {
    expect(brief(planTable(aTable([web]), aTable([to])))).toEqual([expected]);
  });

  it("releases a port and a name before it needs them", () => {
    const before = aTable([web, aListener(90, 1)], [aService("web", 1), aService("old", 2)]);
    const after = aTable([{ ...aListener(80, 1), key: "new", connector: "n" }, aListener(90, 1)], [aService("web", 2)]);
    expect(brief(planTable(before, after))).toEqual([
      "close tcp:80",
      "drop-service old",
      "set-service web dropping",
      "open new",
    ]);
  });

  it("keeps flows when only options of a service change", () => {
    const steps = planTable(aTable([], [aService("a", 1)]), aTable([], [aService("a", 1, { connectTimeoutMs: 9 })]));
    expect(brief(steps)).toEqual(["set-service a"]);
  });

  it("leads from any table to any other", () => {
    const listener = fc
      .record({
        port: fc.integer({ min: 1, max: 4 }),
        target: fc.integer({ min: 1, max: 2 }),
        connector: fc.integer({ min: 1, max: 2 }),
      })
      .map(({ port, target, connector }) => aListener(port, target, { connector: `c${connector}` }));
    const service = fc
      .record({ name: fc.constantFrom("a", "b", "c"), port: fc.integer({ min: 1, max: 2 }) })
      .map(({ name, port }) => aService(name, port));
    const table = fc
      .tuple(
        fc.uniqueArray(listener, { selector: ({ key }) => key }),
        fc.uniqueArray(service, { selector: ({ name }) => name }),
      )
      .map(([listeners, services]) => aTable(listeners, services));
    fc.assert(
      fc.property(table, table, (from, to) => {
        const reached = follow(from, planTable(from, to));
        expect(new Set(reached.listeners)).toEqual(new Set(to.listeners));
        expect(new Set(reached.services)).toEqual(new Set(to.services));
        expect(planTable(reached, to)).toEqual([]);
      }),
    );
  });
});

/** Returns the table after the steps. */
function follow(table: OverlayTable, steps: readonly TableStep[]): OverlayTable {
  const listeners = new Map<string, OverlayListener>(table.listeners.map((one) => [one.key, one]));
  const services = new Map<string, OverlayService>(table.services.map((one) => [one.name, one]));
  for (const step of steps) {
    if (step.kind === "close") listeners.delete(step.key);
    if (step.kind === "drop-service") services.delete(step.name);
    if (step.kind === "set-service") services.set(step.service.name, step.service);
    if (step.kind === "change") listeners.delete(step.from);
    if (step.kind === "change" || step.kind === "open") listeners.set(step.listener.key, step.listener);
  }
  return { ...table, listeners: [...listeners.values()], services: [...services.values()] };
}
