import { expect, test } from "vitest";
import { addressFilter } from "../../../../src/lib/net/address-filter.ts";

test.each([
  ["10.0.0.0/8", "10.255.0.1", true],
  ["10.0.0.0/8", "11.0.0.0", false],
  ["10.1.2.3/8", "10.0.0.0", true],
  ["10.1.2.3", "10.1.2.3", true],
  ["10.1.2.3", "10.1.2.4", false],
  ["0.0.0.0/0", "255.255.255.255", true],
  ["0.0.0.0/0", "::1", false],
  ["fd00::/8", "fd00::1", true],
  ["fd00::/8", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true],
  ["fd00::/8", "fe00::", false],
  ["::/0", "1.2.3.4", false],
  ["nonsense", "1.2.3.4", false],
  ["0.0.0.0/0", "nonsense", false],
])("%s contains %s: %s", (block, address, expected) => {
  expect(addressFilter(block)(address)).toBe(expected);
});
