import { execFileSync } from "node:child_process";
import { availableParallelism, totalmem } from "node:os";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  parseBootId,
  parseCpuTimes,
  parseLinkCounters,
  parseLoad,
  parseMemory,
  cleanMappings,
  parseMemoryMaps,
  parseProcessIo,
  parseProcessStatus,
  parseProcessTicks,
  parseTcp,
  parseUptime,
} from "../../../src/host/proc.ts";
import { hostReader } from "../../../src/host/reader.ts";
import {
  MEMINFO,
  NET_DEV,
  PROCESS_IO,
  PROCESS_STAT,
  PROCESS_STATUS,
  SNMP,
  STAT,
} from "../../support/machine/proc-texts.ts";
import { anyText } from "../../support/any-text.ts";

describe("texts as printed by a kernel", () => {
  test("memory", () => {
    expect(parseMemory(MEMINFO)).toEqual({ totalBytes: 8_192_000_000, availableBytes: 2_048_000_000 });
    expect(parseMemory("MemTotal: 100 kB\n")).toBeUndefined();
    expect(parseMemory("MemTotal: 0 kB\nMemAvailable: 0 kB\n")).toBeUndefined();
  });

  test("processor times count guests once, and iowait as idle", () => {
    expect(parseCpuTimes(STAT)).toEqual({ totalTicks: 1040, idleTicks: 840, cores: 2, bootedAt: 1_795_216_193 });
    expect(parseCpuTimes("cpu  1 2 3\n")).toBeUndefined();
    expect(parseCpuTimes("cpu  1 2 x 4 5\n")).toBeUndefined();
  });

  test("load and uptime", () => {
    expect(parseLoad("0.52 0.58 0.59 1/467 5648\n")).toBe(0.52);
    expect(parseUptime("829.75 1569.33\n")).toBe(829.75);
    expect(parseLoad("many")).toBeUndefined();
    expect(parseUptime("-1 2")).toBeUndefined();
  });

  test("finds TCP counters by name, not by place", () => {
    expect(parseTcp(SNMP)).toEqual({
      activeOpens: 67,
      passiveOpens: 2,
      attemptFails: 3,
      establishedResets: 4,
      established: 5,
      retransmits: 6,
      resetsSent: 112,
    });
    expect(parseTcp("Tcp: ActiveOpens\nTcp: 1\n")).toBeUndefined();
    expect(parseTcp("Tcp: ActiveOpens\n")).toBeUndefined();
  });

  test("link counters, also if the number touches the name and the name has a dot", () => {
    const counters = parseLinkCounters(NET_DEV);
    expect([...counters.keys()]).toEqual(["lo", "eth0", "ens192.100"]);
    expect(counters.get("eth0")).toEqual({
      rxBytes: 270_216_559,
      rxErrors: 1,
      rxDropped: 2,
      txBytes: 529_864,
      txErrors: 3,
      txDropped: 4,
    });
    expect(counters.get("ens192.100")).toMatchObject({ rxBytes: 1000, txBytes: 2000 });
  });

  test("a process: times after any command name, bytes, memory, switches", () => {
    expect(parseProcessTicks(PROCESS_STAT)).toBe(500);
    expect(parseProcessIo(PROCESS_IO)).toEqual({ readBytes: 4096, writeBytes: 8192 });
    expect(parseProcessStatus(PROCESS_STATUS)).toEqual({ residentBytes: 65_536_000, switches: 150 });
    expect(parseMemoryMaps("Rss: 1728 kB\nPrivate_Dirty: 116 kB\n")).toEqual({
      residentBytes: 1_769_472,
      privateDirtyBytes: 118_784,
    });
  });
});

describe("clean mappings of a file", () => {
  const mapping = (head: string, dirty = 0): string =>
    [head, "Size: 12 kB", "Shared_Dirty: 0 kB", `Private_Dirty: ${dirty} kB`, `Anonymous: ${dirty} kB`, ""].join("\n");
  const text = [
    mapping("400000-403000 r--p 00000000 fe:01 77                         /usr/bin/node"),
    mapping("403000-410000 r-xp 00003000 fe:01 77                         /usr/bin/node"),
    mapping("410000-412000 r--p 00010000 fe:01 77                         /usr/bin/node", 8),
    mapping("412000-413000 rw-p 00012000 fe:01 77                         /usr/bin/node"),
    mapping("7f0000-7f1000 r-xp 00000000 fe:01 78                         /lib/libc.so.6"),
    mapping("7f1000-7f2000 r-xp 00000000 fe:01 79                         /usr/bin/node (deleted)"),
    mapping("7f2000-7f3000 r-xp 00000000 00:00 0 "),
  ].join("");

  test("are those that are not written", () => {
    expect(cleanMappings(text, "/usr/bin/node")).toEqual([
      { start: 0x400000n, length: 0x3000n },
      { start: 0x403000n, length: 0xd000n },
    ]);
  });

  test("are none of an incomplete text", () => {
    expect(cleanMappings("403000-410000 r-xp 00003000 fe:01 77 /usr/bin/node\nSize: 12 kB\n", "/usr/bin/node")).toEqual(
      [],
    );
    expect(cleanMappings("", "/usr/bin/node")).toEqual([]);
  });
});

describe("the machine itself", () => {
  const reader = hostReader();
  const text = (path: string): string => reader.read(path) ?? "";

  test("agrees with Node about memory and cores", () => {
    expect(parseMemory(text("/proc/meminfo"))?.totalBytes).toBe(totalmem());
    expect(parseCpuTimes(text("/proc/stat"))?.cores).toBe(
      Number(execFileSync("nproc", ["--all"], { encoding: "utf8" })),
    );
    expect(availableParallelism()).toBeLessThanOrEqual(parseCpuTimes(text("/proc/stat"))?.cores ?? 0);
  });

  test("agrees with other programs about the boot", () => {
    const bootId = execFileSync("cat", ["/proc/sys/kernel/random/boot_id"], { encoding: "utf8" }).trim();
    expect(parseBootId(text("/proc/sys/kernel/random/boot_id"))).toBe(bootId);
    const bootedAt = parseCpuTimes(text("/proc/stat"))?.bootedAt ?? 0;
    const uptime = parseUptime(text("/proc/uptime")) ?? 0;
    expect(Math.abs(Date.now() / 1000 - uptime - bootedAt)).toBeLessThan(5);
  });

  test("has every file that the agent reads", () => {
    expect(parseLoad(text("/proc/loadavg"))).toBeGreaterThanOrEqual(0);
    expect(parseTcp(text("/proc/net/snmp"))).toBeDefined();
    expect(parseLinkCounters(text("/proc/net/dev")).has("lo")).toBe(true);
    expect(parseProcessTicks(text("/proc/self/stat"))).toBeGreaterThan(0);
    expect(parseProcessIo(text("/proc/self/io"))).toBeDefined();
    expect(parseProcessStatus(text("/proc/self/status"))?.residentBytes).toBeGreaterThan(1_000_000);
    expect(parseMemoryMaps(text("/proc/self/smaps_rollup"))?.privateDirtyBytes).toBeGreaterThan(1_000_000);
  });
});

const parsers = {
  parseBootId,
  parseCpuTimes,
  parseLinkCounters,
  parseLoad,
  parseMemory,
  parseMemoryMaps,
  parseProcessIo,
  parseProcessStatus,
  parseProcessTicks,
  parseTcp,
  parseUptime,
};

/** Garbage, and real texts with a piece cut out or written over. */
const damaged = fc.oneof(
  anyText(400),
  fc
    .tuple(
      fc.constantFrom(MEMINFO, STAT, SNMP, NET_DEV, PROCESS_IO, PROCESS_STAT, PROCESS_STATUS),
      fc.nat(700),
      fc.nat(40),
      fc.string({ maxLength: 20 }),
    )
    .map(([text, at, length, patch]) => text.slice(0, at) + patch + text.slice(at + length)),
);

function numbersIn(value: unknown): readonly number[] {
  if (typeof value === "number") return [value];
  if (value instanceof Map) return [...(value as Map<string, unknown>).values()].flatMap(numbersIn);
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(numbersIn) : [];
}

test.each(Object.entries(parsers))("%s never throws and never gives NaN", (_, parse) => {
  fc.assert(
    fc.property(damaged, (text) => {
      for (const number of numbersIn(parse(text))) expect(number).toBeGreaterThanOrEqual(0);
    }),
  );
});
