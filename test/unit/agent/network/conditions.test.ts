import { expect, test } from "vitest";
import { clusterConditions, networkConditions, watchNetworkSection } from "../../../../src/agent/network/conditions.ts";
import { effective } from "../../../../src/agent/shadow/merge.ts";
import type { Standing } from "../../../../src/agent/reconcile/section-status.ts";
import { createEventLog } from "../../../../src/agent/telemetry/events.ts";
import { HostError } from "../../../../src/errors.ts";
import type { NodeEvent } from "../../../../src/protocol/documents/telemetry.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const standing = (fields: Partial<Standing> = {}): Standing => ({
  section: "network",
  outcome: { state: "converged" },
  issues: [],
  rejected: 0,
  notices: [],
  sinces: new Map(),
  reported: {},
  version: { node: 1 },
  steps: 0,
  since: 0,
  lastAttempt: 0,
  failures: 0,
  drift: { count: 0, what: [] },
  ...fields,
});
const step = (kind: string, subject = "routes") => ({ kind, subject, guarded: true });
const LINE = "route prepend unicast 10.9.0.0/16 via 10.5.0.9 table 254 proto 218 scope global";
const refused = (text: string) =>
  new HostError("ip-failed", `ip: line 2, ${text}: Nexthop has invalid gateway.`, {
    details: { tool: "ip", line: 2, text },
  });

test("an entry of the cluster for an interface that the member does not have", () => {
  const { errors } = effective(
    { network: { interfaces: [{ nic: "eth0" }] } },
    { network: { interfaces: [{ nic: "eth0" }, { nic: "ens9", clusterIP: "10.0.0.9" }] } },
  );
  expect(clusterConditions(errors)).toMatchObject([
    {
      eventType: "Network Error",
      object: "cluster:network.interfaces.ens9",
      level: "WARNING",
      details: { path: "network.interfaces.ens9" },
    },
  ]);
});

test("a route that the kernel refuses", () => {
  expect(networkConditions(standing({ outcome: { state: "failed", step: step("ip"), error: refused(LINE) } }))).toEqual(
    [
      {
        eventType: "Network Route Error",
        object: "routes",
        level: "ERROR",
        message: `A route could not be applied: ${LINE}`,
        details: { route: LINE, reason: `ip: line 2, ${LINE}: Nexthop has invalid gateway.` },
        over: "Routes are applied again",
      },
    ],
  );
});

test.each<[string, Partial<Standing>]>([
  ["all is well", {}],
  [
    "an address is refused",
    { outcome: { state: "failed", step: step("ip"), error: refused("address replace 10.0.0.1/24 dev x") } },
  ],
  ["the firewall is refused", { outcome: { state: "failed", step: step("nft"), error: refused(LINE) } }],
  ["nobody knows what failed", { outcome: { state: "failed", error: new Error(LINE) } }],
  ["something else does not stay", { outcome: { state: "diverged", remaining: [step("sysctl")] } }],
  ["it waits", { outcome: { state: "pending", reason: "x" } }],
  ["an item is rejected", { issues: [{ path: "network.interfaces[0]", code: "bad-ip", message: "x" }] }],
])("no event when %s", (_, fields) => {
  expect(networkConditions(standing(fields))).toEqual([]);
});

test("addresses that disappear again, and a missing lease", () => {
  const found = networkConditions(
    standing({
      outcome: { state: "diverged", remaining: [step("ip", "routes"), step("nft")] },
      issues: [
        {
          path: "network.interfaces[0]",
          code: "no-lease",
          message: "no DHCP server has answered on wan0 yet",
        },
      ],
    }),
  );
  expect(found).toMatchObject([
    { eventType: "Network Route Error", details: { steps: ["ip routes"] } },
    {
      eventType: "Network Error",
      object: "lease:network.interfaces[0]",
      level: "ERROR",
      message: "WAN DHCP lease failure: no DHCP server has answered on wan0 yet",
    },
  ]);
  expect(networkConditions(undefined)).toEqual([]);
});

test("raised and cleared with the state of the section", async () => {
  const clock = new FakeClock();
  const sent: NodeEvent[] = [];
  let current: readonly Standing[] = [
    standing({ section: "services", outcome: { state: "diverged", remaining: [step("ip")] } }),
  ];
  const events = createEventLog({ clock, sink: (event) => sent.push(event) });
  const watch = watchNetworkSection({
    clock,
    events,
    standings: () => current,
    clusterIssues: () => [],
    others: () => [],
  });
  watch.refresh();
  await clock.advance(60_000);
  expect(sent).toEqual([]);
  current = [standing({ outcome: { state: "failed", step: step("ip"), error: refused(LINE) } })];
  watch.refresh();
  await clock.advance(5000);
  current = [standing()];
  watch.refresh();
  await clock.advance(5000);
  expect(sent.map(({ eventType, state }) => `${eventType} ${state}`)).toEqual([
    "Network Route Error EXCEEDED",
    "Network Route Error CLEARED",
  ]);
  watch.close();
});
