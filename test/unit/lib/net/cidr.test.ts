import fc from "fast-check";
import { BlockList, isIP } from "node:net";
import { describe, expect, it } from "vitest";
import { addressRange, isInBlock, parseCidr } from "../../../../src/lib/net/cidr.ts";

describe("a CIDR", () => {
  it.each([
    ["10.0.0.0/8", "10.0.0.0/8", false],
    ["10.1.2.3/8", "10.0.0.0/8", true],
    ["192.168.11.5", "192.168.11.5/32", false],
    ["255.255.255.255/0", "0.0.0.0/0", true],
    ["0.0.0.0/0", "0.0.0.0/0", false],
    ["2001:DB8::1/32", "2001:db8::/32", true],
    ["::", "::/128", false],
    ["1:2:3:4:5:6:7:8/127", "1:2:3:4:5:6:7:8/127", false],
    ["1::8/64", "1::/64", true],
    ["::ffff:10.0.0.1/104", "::ffff:a00:0/104", true],
  ])("%s is %s", (text, expected, hadHostBits) => {
    expect(parseCidr(text)).toEqual({ text: expected, hadHostBits });
  });

  it.each([
    "",
    "/",
    "10.0.0.0/33",
    "10.0.0.0/-1",
    "10.0.0.0/08",
    "10.0.0.0/8/8",
    "10.0.0.0/",
    "10.0.0.0/8 ",
    " 10.0.0.0/8",
    "10.0.0/8",
    "010.0.0.0/8",
    "::/129",
    "fe80::1%eth0/64",
    "fe80::1%eth0",
    "name/8",
    "1e1.0.0.0/8",
    "0x0a.0.0.1",
  ])("%j is invalid", (text) => {
    expect(parseCidr(text)).toBeUndefined();
  });

  it("contains its address and equals its own spelling", () => {
    const sized = fc.oneof(fc.tuple(fc.ipV4(), fc.nat(32)), fc.tuple(fc.ipV6(), fc.nat(128)));
    fc.assert(
      fc.property(sized, ([address, prefix]) => {
        const cidr = parseCidr(`${address}/${prefix}`);
        const [network = "", length] = cidr?.text.split("/") ?? [];
        const family = isIP(address) === 4 ? "ipv4" : "ipv6";
        const block = new BlockList();
        block.addSubnet(network, Number(length), family);
        expect(block.check(address, family)).toBe(true);
        expect(parseCidr(cidr?.text ?? "")).toEqual({ text: cidr?.text, hadHostBits: false });
      }),
    );
  });
});

describe("the range of a block", () => {
  const sized = fc.oneof(fc.tuple(fc.ipV4(), fc.nat(32)), fc.tuple(fc.ipV6(), fc.nat(128)));

  it("contains exactly the addresses of the block, of its own family", () => {
    fc.assert(
      fc.property(sized, fc.oneof(fc.ipV4(), fc.ipV6()), ([address, prefix], other) => {
        const block = new BlockList();
        block.addSubnet(address, prefix, isIP(address) === 4 ? "ipv4" : "ipv6");
        for (const candidate of [address, other]) {
          const [range, point] = [addressRange(`${address}/${prefix}`), addressRange(candidate)?.low];
          if (range === undefined || point === undefined) throw new Error("not read");
          const isWithin = Buffer.compare(range.low, point) <= 0 && Buffer.compare(point, range.high) <= 0;
          const isOfFamily = isIP(candidate) === isIP(address);
          expect(isWithin).toBe(isOfFamily && block.check(candidate, isIP(candidate) === 4 ? "ipv4" : "ipv6"));
        }
      }),
    );
  });

  it("is undefined for an invalid block", () => {
    expect(addressRange("10.0.0.0/33")).toBeUndefined();
    expect(addressRange("")).toBeUndefined();
  });
});

describe("an address in a block", () => {
  it.each([
    ["10.0.0.0", "10.0.0.0/8", true],
    ["10.255.255.255", "10.0.0.0/8", true],
    ["11.0.0.0", "10.0.0.0/8", false],
    ["9.255.255.255", "10.0.0.0/8", false],
    ["10.1.0.0/16", "10.0.0.0/8", true],
    ["10.0.0.0/7", "10.0.0.0/8", false],
    ["255.255.255.255", "0.0.0.0/0", true],
    // In the form of an interface: the block of the address.
    ["192.0.2.9", "192.0.2.2/24", true],
    ["2001:db8::1", "2001:db8::/32", true],
    ["2001:db9::", "2001:db8::/32", false],
    ["10.0.0.1", "::/0", false],
    ["::1", "0.0.0.0/0", false],
    ["", "10.0.0.0/8", false],
    ["10.0.0.1", "public", false],
  ])("%s in %s: %s", (address, block, expected) => {
    expect(isInBlock(address, block)).toBe(expected);
  });
});
