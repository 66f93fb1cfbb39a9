import { describe, expect, test } from "vitest";
import { planServices, waitingServices, type ServicesActual } from "../../../../../src/agent/sections/services/plan.ts";
import type { OverlayService, ServiceHealth } from "../../../../../src/protocol/overlay/overlay.ts";
import type { Service } from "../../../../../src/protocol/sections/services/services.ts";
import { aConfigService, itsEntry } from "../../../../support/overlay/l4-items.ts";

function actualOf(services: readonly OverlayService[] = [], health: readonly ServiceHealth[] = []): ServicesActual {
  return {
    services: new Map(services.map((service) => [service.name, service])),
    health: new Map(health.map((one) => [one.name, one])),
    addresses: new Map([
      ["eth0", ["10.0.0.2", "10.0.0.3"]],
      ["bare", []],
    ]),
  };
}

describe("the steps to services", () => {
  const health = { intervalMs: 1000, failures: 1, successes: 1 };
  const table: readonly (readonly [string, readonly Service[], readonly OverlayService[], readonly string[]])[] = [
    ["nothing to nothing", [], [], []],
    ["a new one", [aConfigService("a")], [], ["offer a"]],
    ["the same", [aConfigService("a")], [itsEntry()], []],
    ["the same under another id", [aConfigService("b")], [itsEntry()], []],
    ["another port", [aConfigService("a", { port: 81 })], [itsEntry()], ["change a"]],
    ["a health check where there was none", [aConfigService("a", { healthCheck: health })], [itsEntry()], ["change a"]],
    ["no health check any more", [aConfigService("a")], [itsEntry({ healthCheck: health })], ["change a"]],
    ["another name", [aConfigService("a", { name: "api" })], [itsEntry()], ["withdraw web", "offer a"]],
    ["gone", [], [itsEntry()], ["withdraw web"]],
    ["switched off", [aConfigService("a", { enabled: false })], [itsEntry()], ["withdraw web"]],
    ["ftp where there was tcp", [aConfigService("a", { protocol: "ftp" })], [itsEntry()], ["change a"]],
    ["ftp", [aConfigService("a", { protocol: "ftp" })], [itsEntry({ application: "ftp" })], []],
    [
      "a link has an address again",
      [aConfigService("a", { sourceInterface: "eth0" })],
      [itsEntry({ lacksSource: true })],
      ["change a"],
    ],
  ];
  test.each(table)("%s", (_, desired, services, steps) => {
    const planned = planServices(desired, actualOf(services));
    expect(planned.map(({ kind, subject }) => `${kind} ${subject}`)).toEqual(steps);
    const applied = planned.reduce((left, step) => {
      if (step.kind === "withdraw") return left.filter(({ name }) => name !== step.name);
      return [...left.filter(({ name }) => name !== step.service.name), step.service];
    }, services);
    expect(planServices(desired, actualOf(applied))).toEqual([]);
  });

  test.each([
    ["eth0", itsEntry({ sourceAddress: "10.0.0.2" })],
    ["bare", itsEntry({ lacksSource: true })],
    ["eth9", itsEntry({ lacksSource: true })],
  ])("lead from the first address of their link: %s", (sourceInterface, service) => {
    expect(planServices([aConfigService("a", { sourceInterface })], actualOf())).toMatchObject([{ service }]);
    expect(planServices([aConfigService("a", { sourceInterface })], actualOf([service]))).toEqual([]);
  });
});

describe("the conditions that services wait for", () => {
  const down: ServiceHealth = { name: "web", state: "down", since: 1 };

  test("ignore results for another target", () => {
    expect(waitingServices([aConfigService("a", { port: 81 })], actualOf([itsEntry()], [down]))).toEqual([]);
    expect(waitingServices([aConfigService("a")], actualOf([itsEntry()], [down]))).toHaveLength(1);
  });
  test("name a target that is down, as long as the service is offered", () => {
    const issue = { path: "services.items.a", code: "service-down" };
    expect(waitingServices([aConfigService("a")], actualOf([], [down]))).toMatchObject([issue]);
    expect(waitingServices([aConfigService("a")], actualOf([], [{ ...down, state: "unknown" }]))).toEqual([]);
    expect(waitingServices([aConfigService("a", { enabled: false })], actualOf([], [down]))).toEqual([]);
    expect(waitingServices([aConfigService("a", { name: "api" })], actualOf([], [down]))).toEqual([]);
  });

  test.each(["bare", "eth9"])("name a link without an address: %s", (sourceInterface) => {
    expect(waitingServices([aConfigService("a", { sourceInterface })], actualOf([], [down]))).toEqual([
      {
        path: "services.items.a.sourceInterface",
        code: "address-absent",
        message: `services.items.a.sourceInterface: ${sourceInterface} has no IPv4 address`,
      },
    ]);
  });
});
