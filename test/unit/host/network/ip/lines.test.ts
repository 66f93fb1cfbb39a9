import { describe, expect, it } from "vitest";
import {
  addLinkLines,
  addressLabel,
  addressLine,
  addressOfLine,
  swapAddressLines,
  deleteAddressLine,
  deleteLinkLine,
  deleteRouteLine,
  deleteRuleLine,
  routeLine,
  ruleLine,
  setLinkLine,
} from "../../../../../src/host/network/ip/lines.ts";

const route = {
  table: 1000,
  kind: "unicast",
  destination: "10.0.0.0/8",
  via: "192.0.2.7",
  link: "eth0",
  metric: 5,
  scope: "global",
  isOnLink: true,
  source: "192.0.2.1",
} as const;

describe("lines for ip-batch", () => {
  it("create marked links", () => {
    expect(
      addLinkLines({ name: "eth0.30", kind: "vlan", parent: "eth0", vlanId: 30, mtu: 1400, isUp: true }),
    ).toStrictEqual([
      "link add link eth0 name eth0.30 mtu 1400 group 218 type vlan id 30",
      "link property add dev eth0.30 altname holdfast:eth0.30",
    ]);
    expect(addLinkLines({ name: "guest", kind: "vrf", table: 1001, isUp: true })).toStrictEqual([
      "link add name guest group 218 type vrf table 1001",
      "link property add dev guest altname holdfast:guest",
    ]);
    expect(addLinkLines({ name: "eth0", isUp: true })).toStrictEqual([]);
  });

  it("set and remove links", () => {
    expect(setLinkLine({ name: "eth0", mtu: 1400, master: "guest", isUp: true })).toBe(
      "link set dev eth0 mtu 1400 master guest up",
    );
    expect(setLinkLine({ name: "eth0", master: null, isUp: false })).toBe("link set dev eth0 nomaster down");
    expect(setLinkLine({ name: "eth0" })).toBeUndefined();
    expect(deleteLinkLine("eth0.30")).toBe("link delete dev eth0.30");
  });

  it("mark an address by its label if the name leaves room", () => {
    expect(addressLine({ link: "enp65s0f1np0", address: "192.0.2.1/30" })).toBe(
      "address replace 192.0.2.1/30 brd + dev enp65s0f1np0 label enp65s0f1np0:hf",
    );
    expect(addressLabel("enp65s0f1np01")).toBeUndefined();
    expect(addressLine({ link: "enp65s0f1np01", address: "192.0.2.1/31" })).toBe(
      "address replace 192.0.2.1/31 dev enp65s0f1np01",
    );
    expect(deleteAddressLine({ link: "eth0", address: "192.0.2.1/24" })).toBe("address delete 192.0.2.1/24 dev eth0");
  });

  it("create an address again while the machine has it under a free prefix length", () => {
    const address = { link: "eth0", address: "192.0.2.1/24" };
    const swapped = (taken: readonly number[]) =>
      swapAddressLines(address, (other) => !taken.includes(Number(other.address.split("/")[1])));
    const swap = [deleteAddressLine(address), addressLine(address)];
    const held = { link: "eth0", address: "192.0.2.1/31", hasNoRoute: true };
    expect(swapped([24, 32])).toStrictEqual([addressLine(held), ...swap, deleteAddressLine(held)]);
    expect(swapped([24])[0]).toBe(addressLine({ ...held, address: "192.0.2.1/32" }));
    expect(swapped([24, 29, 30, 31, 32])).toStrictEqual(swap);
  });

  it("tell the address of a line", () => {
    const address = { link: "eth0", address: "192.0.2.1/24" };
    expect(addressOfLine(addressLine(address))).toStrictEqual({ ...address, isAdded: true });
    expect(addressOfLine(deleteAddressLine(address))).toStrictEqual({ ...address, isAdded: false });
    expect(addressOfLine(routeLine(route))).toBeUndefined();
  });

  it("name everything that distinguishes one route from another", () => {
    const words = "unicast 10.0.0.0/8 via 192.0.2.7 dev eth0 metric 5 table 1000 proto 218 scope global src 192.0.2.1";
    expect(routeLine(route)).toBe(`route prepend ${words} onlink`);
    expect(deleteRouteLine(route)).toBe(`route delete ${words}`);
    const nowhere = { table: 1000, kind: "unreachable", destination: "0.0.0.0/0", metric: 4278198272 } as const;
    expect(routeLine({ ...nowhere, scope: "global", isOnLink: false })).toBe(
      "route prepend unreachable 0.0.0.0/0 metric 4278198272 table 1000 proto 218",
    );
  });

  it("name everything that distinguishes one rule from another", () => {
    const rule = {
      priority: 5180,
      to: "10.0.0.0/8",
      inLink: "eth0",
      outLink: "eth1",
      mark: 16,
      mask: 255,
      table: 1000,
    };
    const words = "priority 5180 from all to 10.0.0.0/8 iif eth0 oif eth1 fwmark 0x10/0xff table 1000 protocol 218";
    expect(ruleLine(rule)).toBe(`rule add ${words}`);
    expect(deleteRuleLine(rule)).toBe(`rule delete ${words}`);
    expect(ruleLine({ priority: 5181, from: "10.0.0.0/8", mark: 1, table: 254 })).toBe(
      "rule add priority 5181 from 10.0.0.0/8 fwmark 0x1/0xffffffff table 254 protocol 218",
    );
  });

  it.each(["a b", 'a"b', "a'b", "a#b", "a\\", "a\nb", "a\u0000", ""])("refuse the name %j", (name) => {
    expect(() => deleteLinkLine(name)).toThrow(expect.objectContaining({ code: "bad-name" }));
    expect(() => routeLine({ ...route, link: name })).toThrow(expect.objectContaining({ code: "bad-name" }));
  });
});
