import { expect, test } from "vitest";
import { refusalOf } from "../../../../src/lib/net/transfer-address.ts";

const NONE = { allow: [], own: [] };
const EVERYTHING = { allow: ["0.0.0.0/0", "::/0"], own: [] };

test.each([
  ["0.0.0.0", "unspecified"],
  ["0.1.2.3", "unspecified"],
  ["127.0.0.1", "loopback"],
  ["127.255.255.254", "loopback"],
  ["100.100.100.200", "metadata"],
  ["169.254.169.254", "metadata"],
  ["169.254.170.2", "metadata"],
  ["168.63.129.16", "metadata"],
  ["192.0.0.192", "metadata"],
  ["169.254.1.1", "link-local"],
  ["192.0.0.8", "reserved"],
  ["192.88.99.1", "reserved"],
  ["192.0.2.1", "documentation"],
  ["198.51.100.7", "documentation"],
  ["203.0.113.9", "documentation"],
  ["198.18.0.1", "benchmark"],
  ["198.19.255.255", "benchmark"],
  ["224.0.0.1", "multicast"],
  ["239.255.255.250", "multicast"],
  ["240.0.0.1", "reserved"],
  ["255.255.255.255", "reserved"],
  ["::", "unspecified"],
  ["::1", "loopback"],
  ["0:0:0:0:0:0:0:1", "loopback"],
  ["fe80::1", "link-local"],
  ["fe80::1%eth0", "link-local"],
  ["ff02::1", "multicast"],
  ["fd00:ec2::254", "metadata"],
  ["fd20:ce::254", "metadata"],
  ["2001:db8::1", "documentation"],
  ["3fff::1", "documentation"],
  ["2001:2::1", "benchmark"],
  ["2001:10::1", "reserved"],
  ["100::1", "reserved"],
  ["5f00::1", "reserved"],
  ["64:ff9b:1::1", "reserved"],
  ["4000::1", "reserved"],
  ["::ffff:127.0.0.1", "loopback"],
  ["::ffff:a9fe:a9fe", "metadata"],
  ["::127.0.0.1", "loopback"],
  ["64:ff9b::a9fe:a9fe", "metadata"],
  ["2002:7f00:1::", "loopback"],
  ["2001:0:7f00:1::", "loopback"],
  ["localhost", "not-an-address"],
  ["0x7f.1", "not-an-address"],
  ["", "not-an-address"],
])("no transfer connects to %s: %s", (address, refusal) => {
  expect(refusalOf(address, NONE)).toBe(refusal);
});

test.each([
  "8.8.8.8",
  "1.1.1.1",
  "10.0.0.1",
  "172.16.0.1",
  "172.31.255.255",
  "192.168.1.1",
  "100.64.0.1",
  "100.127.255.255",
  "fc00::1",
  "fdff::1",
  "fec0::1",
  "64:ff9b::10.0.0.1",
  "2002:a00:1::1",
  "2001:0:808:808::f5ff:fffe",
  "172.32.0.1",
  "100.128.0.1",
  "192.0.1.1",
  "2606:4700::1111",
  "2a00:1450::1",
  "::ffff:8.8.8.8",
  "64:ff9b::8.8.8.8",
  "2002:808:808::1",
  "2001:0:808:808::f7f7:f7f7",
])("may connect to %s", (address) => {
  expect(refusalOf(address, NONE)).toBeUndefined();
});

test.each([
  ["127.0.0.1", undefined],
  ["10.1.2.3", undefined],
  ["100.64.0.1", undefined],
  ["::1", undefined],
  ["fd12::1", undefined],
  ["::ffff:10.0.0.1", undefined],
  ["64:ff9b::10.0.0.1", undefined],
  ["169.254.169.254", "metadata"],
  ["fd00:ec2::254", "metadata"],
  ["100.100.100.200", "metadata"],
  ["169.254.0.1", "link-local"],
  ["fe80::1", "link-local"],
  ["224.0.0.1", "multicast"],
  ["64:ff9b::a9fe:a9fe", "metadata"],
  ["0.0.0.0", "unspecified"],
  ["240.0.0.1", "reserved"],
])("when everything is allowed, of %s this remains: %s", (address, refusal) => {
  expect(refusalOf(address, EVERYTHING)).toBe(refusal);
});

test("a block allows only its own addresses", () => {
  const rules = { allow: ["10.0.0.0/8"], own: ["10.9.9.9", "192.168.0.1"] };
  expect(refusalOf("10.9.9.9", rules)).toBeUndefined();
  expect(refusalOf("192.168.0.1", rules)).toBe("own");
  expect(refusalOf("127.0.0.1", rules)).toBe("loopback");
});

test("refuses the machine's own addresses in every spelling, unless allowed", () => {
  const own = ["8.8.4.4", "10.0.0.9", "fd12::9", "2606:4700:0:0:0:0:0:9"];
  expect(refusalOf("10.0.0.9", { allow: [], own })).toBe("own");
  expect(refusalOf("fd12::9", { allow: [], own })).toBe("own");
  expect(refusalOf("8.8.4.4", { allow: [], own })).toBe("own");
  expect(refusalOf("::ffff:8.8.4.4", { allow: [], own })).toBe("own");
  expect(refusalOf("64:ff9b::8.8.4.4", { allow: [], own })).toBe("own");
  expect(refusalOf("2606:4700::9", { allow: [], own })).toBe("own");
  expect(refusalOf("8.8.4.4", { allow: ["8.8.4.0/24"], own })).toBeUndefined();
});
