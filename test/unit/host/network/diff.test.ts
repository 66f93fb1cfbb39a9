import { expect, test } from "vitest";
import { diffNetwork } from "../../../../src/host/network/diff.ts";
import { OUR_PROTOCOL, type NetworkTarget, type RouteState } from "../../../../src/host/network/state.ts";
import { aLink, ModelNetwork } from "../../../support/model-network.ts";

const onLink = (table: number): RouteState => ({
  table,
  kind: "unicast",
  destination: "10.1.0.0/16",
  link: "eth1",
  metric: 0,
  protocol: OUR_PROTOCOL,
  scope: "link",
  isOnLink: false,
});

test.each([
  ["that never had a lease", []],
  ["that had one", [{ link: "eth1", address: "10.2.0.9/24", isOurs: false, isDynamic: true }]],
])("a client %s ends, and the routes of its link are those that are wanted, in one go", async (_what, addresses) => {
  const model = new ModelNetwork({
    links: [aLink("eth1", { isUp: true })],
    addresses,
    routes: [onLink(254)],
    dhcp: new Set(["eth1"]),
  });
  const { protocol: _, ...wanted } = onLink(1000);
  const target: NetworkTarget = {
    links: [],
    addresses: [],
    routes: [wanted],
    rules: [],
    sysctls: new Map(),
    dhcp: new Set(),
  };
  for (const change of diffNetwork(model.state(), target)) await model.apply(change);
  expect(model.state().routes.map(({ table }) => table)).toEqual([1000]);
  expect(diffNetwork(model.state(), target)).toEqual([]);
});
