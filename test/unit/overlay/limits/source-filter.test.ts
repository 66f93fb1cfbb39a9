import { describe, expect, it } from "vitest";
import { sourceFilter } from "../../../../src/overlay/limits/source-filter.ts";
import { AddressBlock } from "../../../../src/protocol/values/values.ts";

describe("sourceFilter", () => {
  it.each([
    [["10.0.0.0/8"], "10.255.1.2", true],
    [["10.0.0.0/8"], "11.0.0.1", false],
    [["10.1.2.3/8"], "10.9.9.9", true],
    [["192.0.2.7"], "192.0.2.7", true],
    [["192.0.2.7"], "192.0.2.8", false],
    [["0.0.0.0/0"], "203.0.113.9", true],
    [["0.0.0.0/0"], "2001:db8::1", false],
    [["2001:db8::/32"], "2001:db8:ffff::1", true],
    [["2001:db8::/32"], "2001:db9::1", false],
    [["::1"], "::1", true],
    [["10.0.0.0/8", "fe80::/10"], "fe80::1", true],
    [["10.0.0.0/31"], "10.0.0.2", false],
    [[], "127.0.0.1", false],
    [undefined, "127.0.0.1", true],
    [["10.0.0.0/8"], "not an address", false],
  ] as const)("%j admits %s: %s", (blocks, address, isAllowed) => {
    expect(sourceFilter(blocks === undefined ? undefined : [...blocks]).allows(address)).toBe(isAllowed);
  });

  it.each(["10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/-1", "10.0.0.0/", "example.com", "fe80::1%eth0", "", "/8"])(
    "%j is not a block",
    (text) => expect(AddressBlock.safeParse(text).success).toBe(false),
  );
});
