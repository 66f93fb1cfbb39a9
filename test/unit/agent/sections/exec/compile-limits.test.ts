import { describe, expect, test } from "vitest";
import { compileLimits, nanoCpusOf } from "../../../../../src/agent/sections/exec/compile-limits.ts";

const MB = 1024 * 1024;
const HOST = { cpus: 4, memoryBytes: 8192 * MB, diskDevice: "/dev/vda" };

const compiled = (
  limits: Parameters<typeof compileLimits>[0]["limits"],
  host: typeof HOST | { cpus: number; memoryBytes: number } = HOST,
) => compileLimits({ limits, ulimits: [] }, host);

describe("processor time", () => {
  test.each([
    [50, 4, 2_000_000_000, 0],
    [100, 4, 4_000_000_000, 0],
    [150, 4, 4_000_000_000, 1],
    [12.5, 1, 125_000_000, 0],
    [0, 4, 10_000_000, 1],
    [0.1, 1, 10_000_000, 1],
    [-5, 2, 10_000_000, 1],
    [1e30, 2, 2_000_000_000, 1],
  ])("%d percent of %d cores", (percent, cpus, nanoCpus, warnings) => {
    const result = nanoCpusOf(percent, cpus);
    expect(result.nanoCpus).toBe(nanoCpus);
    expect(result.warnings).toHaveLength(warnings);
  });
});

describe("memory", () => {
  test("is half of the machine, throttled slightly below", () => {
    const { update, memoryHighBytes, warnings } = compiled({});
    expect(update).toEqual({ NanoCpus: 2_000_000_000, Memory: 4096 * MB, MemorySwap: 4096 * MB });
    expect(memoryHighBytes).toBe(Math.floor(8192 * MB * 0.45));
    expect(warnings).toEqual([]);
  });

  test("is never less than the engine's minimum, and memHigh never above it", () => {
    const { update, memoryHighBytes, warnings } = compiled({ memMaxBytes: 1 * MB, memHighBytes: 100 * MB });
    expect(update).toMatchObject({ Memory: 6 * MB, MemorySwap: 6 * MB });
    expect(memoryHighBytes).toBe(6 * MB);
    expect(warnings).toEqual([expect.stringMatching(/^limits.memMax: /), expect.stringMatching(/^limits.memHigh: /)]);
  });

  test("stays an integer that JSON can carry", () => {
    expect(compiled({ memMaxBytes: 1e30 }).update.Memory).toBe(Number.MAX_SAFE_INTEGER);
    expect(compiled({ memMaxBytes: 12_345_678.9 }).update.Memory).toBe(12_345_678);
  });
});

describe("block I/O", () => {
  test("is limited on the whole disk, and absurd rates are passed on with a warning", () => {
    const { fixed, warnings } = compiled({ ioRbps: 15, ioWbps: 1_000_000, ioRiops: 5, ioWiops: 100 });
    expect(fixed).toEqual({
      BlkioDeviceReadBps: [{ Path: "/dev/vda", Rate: 15 }],
      BlkioDeviceWriteBps: [{ Path: "/dev/vda", Rate: 1_000_000 }],
      BlkioDeviceReadIOps: [{ Path: "/dev/vda", Rate: 5 }],
      BlkioDeviceWriteIOps: [{ Path: "/dev/vda", Rate: 100 }],
    });
    expect(warnings).toEqual([expect.stringMatching(/^limits.ioRbps: /), expect.stringMatching(/^limits.ioRiops: /)]);
  });

  test("is skipped with a warning when the disk is unknown", () => {
    const { fixed, warnings } = compiled({ ioRbps: 1e6 }, { cpus: 1, memoryBytes: 1024 * MB });
    expect(fixed).toEqual({});
    expect(warnings).toEqual([expect.stringMatching(/^limits.ioRbps: is not applied/)]);
  });
});

test("ulimits are sorted by name", () => {
  const ulimits = [
    { type: "nproc", soft: 1, hard: 2 },
    { type: "core", soft: -1, hard: -1 },
  ];
  expect(compileLimits({ limits: {}, ulimits }, HOST).fixed).toEqual({
    Ulimits: [
      { Name: "core", Soft: -1, Hard: -1 },
      { Name: "nproc", Soft: 1, Hard: 2 },
    ],
  });
});
