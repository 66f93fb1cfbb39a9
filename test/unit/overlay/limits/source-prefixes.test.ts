import { describe, expect, it } from "vitest";
import { SourcePrefixes } from "../../../../src/overlay/limits/source-prefixes.ts";

describe("prefixes of sources", () => {
  it.each([
    ["198.51.100.7", "198.51.100.250", "198.51.101.7"],
    ["::ffff:198.51.100.7", "198.51.100.8", "198.51.10.7"],
    ["2001:db8::1", "2001:db8:0:0:ffff::2", "2001:db8:0:1::1"],
    ["::1", "::2", "1::1"],
  ])("limit new sessions of %s and %s together, and not those of %s", (one, same, other) => {
    const prefixes = new SourcePrefixes();
    for (let i = 0; i < 500; i += 1) {
      expect(prefixes.admitsNew(one, 0)).toBe(true);
      expect(prefixes.admitsNew(same, 0)).toBe(true);
    }
    expect(prefixes.admitsNew(one, 999)).toBe(false);
    expect(prefixes.admitsNew(same, 999)).toBe(false);
    expect(prefixes.admitsNew(other, 999)).toBe(true);
    expect(prefixes.admitsNew(one, 1000)).toBe(true);
  });

  it("send nothing to sources that sent nothing", () => {
    const prefixes = new SourcePrefixes();
    expect(prefixes.admits("198.51.100.7", 1)).toBe(false);
    prefixes.received("198.51.100.7", 40, 0);
    expect(prefixes.admits("198.51.101.7", 1)).toBe(false);
    expect(prefixes.admits("198.51.100.8", 1500)).toBe(true);
    expect(prefixes.admits("198.51.100.7", 1)).toBe(false);
  });

  it("send three times what was received, and a MiB a second more", () => {
    const prefixes = new SourcePrefixes();
    const from = "198.51.100.7";
    let answered = 0;
    for (let i = 0; i < 10_000; i += 1) {
      prefixes.received(from, 10, i);
      while (prefixes.admits(from, 100)) answered += 100;
    }
    expect(answered).toBeGreaterThan(10 * 1024 * 1024);
    expect(answered).toBeLessThan(3 * 10 * 10_000 + 64 * 1024 + 10 * 1024 * 1024 + 100);
  });

  it("bound the memory of a flood from forged addresses", () => {
    const prefixes = new SourcePrefixes();
    prefixes.received("198.51.100.7", 40, 0);
    for (let i = 0; i < 10_000; i += 1) prefixes.received(`10.${i >> 8}.${i & 255}.1`, 40, 0);
    expect(prefixes.admits("198.51.100.7", 100)).toBe(false);
    expect(prefixes.admits("10.0.0.1", 100)).toBe(true);
  });
});
