import { expect, test } from "vitest";
import { networkReport, type ObservedNetwork } from "../../../../src/agent/network/report.ts";
import type { RouteState } from "../../../../src/host/network/state/state.ts";
import { NETWORK_REPORT_LIMITS } from "../../../../src/protocol/local/api.ts";
import { NetworkReport } from "../../../../src/protocol/local/network.ts";

const route: RouteState = {
  table: 254,
  kind: "unicast",
  destination: "10.9.0.0/16",
  via: "10.5.0.9",
  link: "v0",
  metric: 50,
  protocol: 218,
  scope: "global",
  isOnLink: false,
};
const observed: ObservedNetwork = {
  links: [
    {
      name: "v0",
      index: 2,
      kind: "veth",
      mtu: 1500,
      mac: "02:00:00:00:00:01",
      isUp: true,
      hasCarrier: false,
      operState: "lowerlayerdown",
      isOurs: false,
      altnames: [],
    },
  ],
  addresses: [{ link: "v0", address: "10.5.0.1/24", isOurs: true, isDynamic: false }],
  routes: [route, { ...route, protocol: 3 }],
  rules: [{ priority: 5200, protocol: 218, to: "11.0.0.0/8", mark: 1, mask: 255, table: 1000 }],
  neighbours: [{ link: "v0", address: "10.5.0.9", states: ["reachable"] }],
};

const seen = {
  table: 254,
  kind: "unicast",
  destination: "10.9.0.0/16",
  via: "10.5.0.9",
  link: "v0",
  metric: 50,
};

test("has the observed state in the form of the local API", () => {
  const report = networkReport(observed);
  expect(NetworkReport.parse(report)).toEqual(report);
  expect(report).toEqual({
    schema: 1,
    links: [
      {
        name: "v0",
        kind: "veth",
        mac: "02:00:00:00:00:01",
        mtu: 1500,
        isUp: true,
        hasCarrier: false,
        isOurs: false,
      },
    ],
    addresses: [{ link: "v0", address: "10.5.0.1/24", isOurs: true, isDynamic: false }],
    routes: [
      { ...seen, protocol: 218, isOurs: true },
      { ...seen, protocol: 3, isOurs: false, isBehind: true },
    ],
    rules: [{ priority: 5200, to: "11.0.0.0/8", mark: 1, mask: 255, table: 1000, isOurs: true }],
    neighbours: [{ link: "v0", address: "10.5.0.9", states: ["reachable"] }],
    truncated: {},
  });
});

test("reports a part of a full table, and the total number", () => {
  const routes = Array.from({ length: NETWORK_REPORT_LIMITS.routes + 7 }, () => route);
  const report = networkReport({ ...observed, routes });
  expect(report.routes).toHaveLength(NETWORK_REPORT_LIMITS.routes);
  expect(report.truncated).toEqual({ routes: NETWORK_REPORT_LIMITS.routes + 7 });
});

test("no default route of equal metric is certain to be unused, but all are behind ours", () => {
  const stranger: RouteState = { ...route, destination: "0.0.0.0/0", metric: 0, protocol: 4 };
  const ours: RouteState = { ...stranger, protocol: 218, scope: "site", via: "10.5.0.1" };
  const behind = (...routes: RouteState[]) =>
    networkReport({ ...observed, routes }).routes.map(({ isBehind }) => isBehind === true);
  expect(behind(stranger, { ...stranger, via: "10.5.0.2" })).toEqual([false, false]);
  expect(behind(stranger, { ...stranger, metric: 5 }, { ...stranger, table: 77 })).toEqual([false, true, false]);
  expect(behind(ours, stranger, stranger)).toEqual([false, true, true]);
});
