import { expect, test } from "vitest";
import { diffNetwork } from "../../../../src/host/network/diff.ts";
import { OUR_PROTOCOL, type NetworkTarget, type RouteState } from "../../../../src/host/network/state/state.ts";
import { aLink, ModelNetwork } from "../../../support/network/model-network.ts";

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
])("a client %s ends, and the routes of its link are as wanted, in one pass", async (_what, addresses) => {
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

test.each([
  ["", { isOurs: false, isDynamic: true }, ["address replace 10.2.0.9/24 brd + dev eth1 label eth1:hf"]],
  [", also where that was cut short before", { isOurs: true, isDynamic: false }, []],
])(
  "a leased address that becomes permanent exists all the time, and its client ends once it is%s",
  async (_what, found, taken) => {
    const own = { link: "eth1", address: "10.2.0.9/24" };
    const model = new ModelNetwork({
      links: [aLink("eth1", { isUp: true })],
      addresses: [{ ...own, ...found, hasNoRoute: true }],
      routes: [],
      sysctls: new Map([["net.ipv4.conf.eth1.promote_secondaries", "0"]]),
      dhcp: new Set(["eth1"]),
    });
    const { protocol: _, ...wanted } = onLink(254);
    const target: NetworkTarget = {
      links: [],
      addresses: [own],
      routes: [wanted],
      rules: [],
      sysctls: new Map(),
      dhcp: new Set(),
    };
    model.onLine = () => expect(model.addresses.some(({ address }) => address.startsWith("10.2.0.9/"))).toBe(true);
    const changes = diffNetwork(model.state(), target);
    for (const change of changes) await model.apply(change);
    expect(changes).toEqual([
      { kind: "sysctl", values: [["net.ipv4.conf.eth1.promote_secondaries", "1"]] },
      {
        kind: "ip",
        lines: [
          ...taken,
          "route append 10.2.0.0/24 dev eth1 table 254 proto kernel scope link src 10.2.0.9",
          "route prepend unicast 10.1.0.0/16 dev eth1 table 254 proto 218 scope link",
        ],
      },
      { kind: "dhcp", link: "eth1", run: false },
      {
        kind: "ip",
        lines: [
          "address replace 10.2.0.9/32 dev eth1 label eth1:hf noprefixroute",
          "address delete 10.2.0.9/24 dev eth1",
          "address replace 10.2.0.9/24 brd + dev eth1 label eth1:hf",
          "address delete 10.2.0.9/32 dev eth1",
        ],
      },
      { kind: "sysctl", values: [["net.ipv4.conf.eth1.promote_secondaries", "0"]] },
    ]);
    expect(model.state().addresses).toEqual([{ ...own, isOurs: true, isDynamic: false }]);
    expect(diffNetwork(model.state(), target)).toEqual([]);
  },
);
