import { expect, test } from "vitest";
import { diffNetwork } from "../../../../src/host/network/diff.ts";
import { OUR_PROTOCOL, type NetworkTarget, type RouteState } from "../../../../src/host/network/state/state.ts";
import { aLink, ModelNetwork } from "../../../support/network/model-network.ts";

const route = (via: string, protocol: number): RouteState => ({
  table: 254,
  kind: "unicast",
  destination: "10.9.0.0/16",
  via,
  link: "eth0",
  metric: 0,
  protocol,
  scope: "global",
  isOnLink: true,
});

test("a route of ours behind a foreign one moves before it, also when another of ours led them all", async () => {
  const model = new ModelNetwork({
    links: [aLink("eth0", { isUp: true })],
    routes: [route("192.0.2.1", OUR_PROTOCOL), route("192.0.2.2", 4), route("192.0.2.3", OUR_PROTOCOL)],
  });
  const { protocol: _, ...wanted } = route("192.0.2.3", OUR_PROTOCOL);
  const target: NetworkTarget = {
    links: [],
    addresses: [],
    routes: [wanted],
    rules: [],
    sysctls: new Map(),
    dhcp: new Set(),
  };
  for (const change of diffNetwork(model.state(), target)) await model.apply(change);
  expect(model.state().routes.map(({ via }) => via)).toEqual(["192.0.2.3", "192.0.2.2"]);
  expect(diffNetwork(model.state(), target)).toEqual([]);
});

test.each([
  ["alone", []],
  ["beside a stranger's", [route("192.0.2.2", 4)]],
])("a route gets a source without removing its predecessor, %s", async (_where, strangers) => {
  const plain = route("192.0.2.1", OUR_PROTOCOL);
  const model = new ModelNetwork({ links: [aLink("eth0", { isUp: true })], routes: [plain, ...strangers] });
  const { protocol: _, ...wanted } = { ...plain, source: "192.0.2.9" };
  const base = { links: [], addresses: [], rules: [], sysctls: new Map<string, string>(), dhcp: new Set<string>() };
  for (const routes of [[wanted], [{ ...wanted, source: "192.0.2.8" }], [{ ...wanted, source: undefined }], [wanted]]) {
    const target: NetworkTarget = {
      ...base,
      routes: routes.map(({ source, ...rest }) => (source === undefined ? rest : { ...rest, source })),
    };
    for (const change of diffNetwork(model.state(), target)) await model.apply(change);
    expect(diffNetwork(model.state(), target)).toEqual([]);
    expect(model.state().routes.map(({ source }) => source)).toEqual([
      routes[0]?.source,
      ...strangers.map(() => undefined),
    ]);
  }
});
