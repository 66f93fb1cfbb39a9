import { expect, test } from "vitest";
import { applyReport } from "../../../../src/controller/nodes/shadow.ts";

const STORED = { version: 3, reported: { a: "1", "nic.eth0.mtu": 1500 } };

test.each([
  ["a delta", { version: 4, base: 3, set: { b: "2" }, unset: ["a"] }, { "nic.eth0.mtu": 1500, b: "2" }],
  ["unset and set at once", { version: 4, base: 3, set: { a: "2" }, unset: ["a"] }, { ...STORED.reported, a: "2" }],
  ["everything anew", { version: 1, base: 0, set: { c: "3" }, unset: [] }, { c: "3" }],
  ["an unknown key unset", { version: 9, base: 3, set: {}, unset: ["zz"] }, STORED.reported],
])("%s", (_what, report, reported) => {
  expect(applyReport(STORED, report)).toEqual({ version: report.version, reported });
});

test.each([
  ["an older base", { version: 4, base: 2, set: {}, unset: [] }, "out-of-sync"],
  ["a newer base", { version: 5, base: 4, set: {}, unset: [] }, "out-of-sync"],
  ["a version that stands", { version: 3, base: 3, set: {}, unset: [] }, "invalid-body"],
  ["too much", { version: 4, base: 3, set: { big: "é".repeat(40_000) }, unset: [] }, "invalid-body"],
])("%s is refused and changes nothing", (_what, report, code) => {
  const before = structuredClone(STORED);
  expect(() => applyReport(STORED, report)).toThrow(expect.objectContaining({ code }));
  expect(STORED).toEqual(before);
});
