import { expect, it } from "vitest";
import { networkLines, prefixLength, withWan } from "../../../../src/cli/setup/wan.ts";
import { NetworkSection } from "../../../../src/protocol/sections/network/network.ts";

it.each([
  ["24", 24],
  ["/24", 24],
  ["255.255.255.0", 24],
  ["255.255.255.255", 32],
  ["128.0.0.0", 1],
  ["32", 32],
  ["0", undefined],
  ["33", undefined],
  ["0.0.0.0", undefined],
  ["255.0.255.0", undefined],
  ["255.255.255", undefined],
  ["", undefined],
  ["x", undefined],
])("reads the mask %j as %j", (text, length) => {
  expect(prefixLength(text)).toBe(length);
});

it("replaces the entry of an interface and keeps the others", () => {
  const before = {
    forwarding: true,
    interfaces: [
      { nic: "eth0", dhcp: true, mtu: 1400 },
      { nic: "eth1", ip: "10.0.0.1/24" },
    ],
  };
  const wan = { nic: "eth0", fixed: { ip: "192.0.2.2/24", gateway: "192.0.2.1" }, dns: ["192.0.2.53"] };
  const after = withWan(before, wan);
  expect(after).toEqual({
    forwarding: true,
    interfaces: [
      { nic: "eth0", ip: "192.0.2.2/24", gateway: "192.0.2.1", dns: ["192.0.2.53"] },
      { nic: "eth1", ip: "10.0.0.1/24" },
    ],
  });
  expect(NetworkSection.safeParse(after).success).toBe(true);
  expect(NetworkSection.safeParse(withWan({}, { nic: "eth0", dns: [] })).success).toBe(true);
  expect(networkLines(after)).toEqual([
    "eth0: address 192.0.2.2/24, gateway 192.0.2.1, name servers 192.0.2.53",
    "eth1: address 10.0.0.1/24",
  ]);
});
