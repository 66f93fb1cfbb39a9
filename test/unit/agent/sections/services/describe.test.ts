import { expect, test } from "vitest";
import { planServices } from "../../../../../src/agent/sections/services/plan.ts";
import { describeServiceStep } from "../../../../../src/agent/sections/services/describe.ts";
import type { OverlayService } from "../../../../../src/protocol/overlay/overlay.ts";
import type { Service } from "../../../../../src/protocol/sections/services/services.ts";
import { aConfigService, itsEntry } from "../../../../support/overlay/l4-items.ts";

const health = { intervalMs: 1000, failures: 1, successes: 1 };
const table: readonly (readonly [Partial<Service> | undefined, Partial<OverlayService> | undefined, string])[] = [
  [{}, undefined, "offer web at tcp 127.0.0.1:9000"],
  [{ host: "::1" }, undefined, "offer web at tcp [::1]:9000"],
  [undefined, {}, "withdraw web at tcp 127.0.0.1:9000, ends its flows"],
  [{ port: 81 }, {}, "change web: target tcp 127.0.0.1:9000 → tcp 127.0.0.1:81, ends its flows"],
  [{ transport: "udp" }, {}, "change web: target tcp 127.0.0.1:9000 → udp 127.0.0.1:9000, ends its flows"],
  [
    { connectTimeoutMs: 1500, idleTimeoutMs: 1000 },
    {},
    "change web: connectTimeout 5 s → 1.5 s, idleTimeout 900 s → 1 s",
  ],
  [{ healthCheck: health }, {}, "change web: healthCheck"],
  [{ sourceInterface: "eth0" }, {}, "change web: leaves from any → 10.0.0.2"],
  [{ sourceInterface: "eth0" }, { lacksSource: true }, "change web: leaves from nowhere → 10.0.0.2"],
];

test.each(table)("%j from %j", (desired, service, detail) => {
  const actual = {
    services: new Map(service === undefined ? [] : [["web", itsEntry(service)]]),
    health: new Map(),
    addresses: new Map([["eth0", ["10.0.0.2"]]]),
  };
  const steps = planServices(desired === undefined ? [] : [aConfigService("a", desired)], actual);
  expect(steps.map((step) => `${step.kind} ${describeServiceStep(step, actual)}`)).toEqual([detail]);
});
