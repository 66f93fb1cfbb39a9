import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { isSameLimits } from "../../../../src/host/process/cgroup-texts.ts";
import { controlGroups } from "../../../../src/host/process/cgroups.ts";
import { fakeTools } from "../../../support/fake-tools.ts";
import { machineRoot } from "../../../support/machine/machine-root.ts";

const ID = "4f".repeat(32);
const DISK = { path: "/dev/sda", number: "8:0" };
const signal = new AbortController().signal;
const CGROUP = "/sys/fs/cgroup";

function machine(driver: "systemd" | "cgroupfs", files: Readonly<Record<string, string>> = {}, systemctl = "exit 0") {
  const { root, reader } = machineRoot({
    [`${CGROUP}/cgroup.controllers`]: "cpu io memory pids\n",
    [`${CGROUP}/cgroup.subtree_control`]: "",
    ...files,
  });
  const tools = fakeTools({ systemctl });
  return {
    groups: controlGroups(driver, { reader, exec: tools.exec, root }),
    calls: () => tools.calls("systemctl"),
    read: (path: string): string => readFileSync(join(root, path), "utf8"),
    write: (path: string, text: string): void => {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    },
  };
}

describe("memory.high of a container", () => {
  const container = { pid: 42, id: ID };

  test("is written into its own group, for a process in any of its groups", async () => {
    const group = `${CGROUP}/holdfast-containers/${ID}`;
    const { groups, read } = machine("cgroupfs", {
      "/proc/42/cgroup": `0::/holdfast-containers/${ID}/init.scope\n`,
      [`${group}/memory.high`]: "max\n",
    });
    expect(groups.memoryHigh(container)).toBeUndefined();
    await groups.setMemoryHigh(container, 10_000_000, signal);
    expect(read(`${group}/memory.high`)).toMatch(/^9998336/);
    expect(groups.memoryHigh(container)).toBe(9_998_336);
    await groups.setMemoryHigh(container, undefined, signal);
    expect(read(`${group}/memory.high`)).toMatch(/^max/);
  });

  test("is a property of its scope under systemd", async () => {
    const { groups, calls } = machine("systemd", {
      "/proc/42/cgroup": `0::/holdfast.slice/holdfast-containers.slice/docker-${ID}.scope/x\n`,
    });
    await groups.setMemoryHigh(container, 8192, signal);
    await groups.setMemoryHigh(container, undefined, signal);
    expect(calls()).toEqual([
      `set-property --runtime docker-${ID}.scope MemoryHigh=8192`,
      `set-property --runtime docker-${ID}.scope MemoryHigh=infinity`,
    ]);
  });

  test("of a process outside the container is not changed", async () => {
    const { groups, calls } = machine("systemd", { "/proc/42/cgroup": "0::/system.slice/ssh.service\n" });
    await expect(groups.setMemoryHigh(container, 1, signal)).rejects.toMatchObject({ code: "cgroup-failed" });
    await expect(groups.setMemoryHigh({ pid: 42, id: "" }, 1, signal)).rejects.toMatchObject({ code: "cgroup-failed" });
    expect(groups.memoryHigh(container)).toBeUndefined();
    expect(calls()).toEqual([]);
  });

  test("does not exist in the first version of control groups", async () => {
    const { reader, root } = machineRoot({ "/proc/42/cgroup": "4:memory:/docker/x\n" });
    const groups = controlGroups("cgroupfs", { reader, exec: fakeTools({}).exec, root });
    await expect(groups.setMemoryHigh(container, 1, signal)).rejects.toMatchObject({ code: "unsupported" });
    await expect(groups.setLimits({ cpuMax: 1 }, DISK, signal)).rejects.toMatchObject({ code: "unsupported" });
    expect(await groups.setLimits({}, DISK, signal)).toEqual([]);
  });
});

describe("limits of all containers", () => {
  const LIMITS = { cpuMax: 250, memMaxBytes: 1024 ** 3, memHighBytes: 8192, ioRbps: 1000, ioWiops: 5 };

  test("are written into the parent group, read back and removed", async () => {
    const parent = `${CGROUP}/holdfast-containers`;
    const { groups, read, write } = machine("cgroupfs");
    expect(groups.parent).toBe("/holdfast-containers");
    expect(groups.limits(DISK)).toBeUndefined();
    // The kernel creates these with the directory.
    for (const name of ["cpu.max", "memory.max", "memory.high", "io.max"]) write(`${parent}/${name}`, "");
    expect(await groups.setLimits(LIMITS, DISK, signal)).toEqual([]);
    expect(read(`${parent}/cpu.max`)).toBe("250000 100000");
    expect(read(`${parent}/io.max`)).toBe("8:0 rbps=1000 wbps=max riops=max wiops=5");
    expect(groups.limits(DISK)).toEqual(LIMITS);
    for (const name of ["cpu.max", "memory.max", "memory.high", "io.max"]) write(`${parent}/${name}`, "");
    await groups.setLimits({}, DISK, signal);
    expect(["cpu.max", "memory.max", "memory.high", "io.max"].map((name) => read(`${parent}/${name}`))).toEqual([
      "max 100000",
      "max",
      "max",
      "8:0 rbps=max wbps=max riops=max wiops=max",
    ]);
    expect(groups.limits(DISK)).toEqual({});
  });

  test("create the group with its controllers if missing, and name a missing file", async () => {
    const { groups, read } = machine("cgroupfs");
    // Here no kernel fills the new directory.
    expect(await groups.setLimits({ cpuMax: 100 }, DISK, signal)).toEqual([
      expect.stringMatching(/^cpu\.max is not limited: .*cpu\.max to 100000 100000/),
    ]);
    expect(read(`${CGROUP}/cgroup.subtree_control`)).toMatch(/^\+/);
    expect(groups.limits(DISK)).toEqual({});
  });

  test("are set as far as controllers for them exist", async () => {
    const group = `${CGROUP}/holdfast-containers`;
    const { groups } = machine("cgroupfs", { [`${group}/cpu.max`]: "max 100000\n", [`${group}/memory.max`]: "max\n" });
    const warnings = await groups.setLimits({ cpuMax: 50, memMaxBytes: 8192, ioRbps: 5 }, DISK, signal);
    expect(warnings).toEqual([expect.stringContaining("io.max is not limited")]);
    expect(groups.limits(DISK)).toEqual({ cpuMax: 50, memMaxBytes: 8192 });
  });

  test("are properties of a slice under systemd, which is started for them", async () => {
    const { groups, calls } = machine("systemd");
    expect(groups.parent).toBe("holdfast-containers.slice");
    await groups.setLimits(LIMITS, DISK, signal);
    expect(calls()).toEqual([
      "start holdfast-containers.slice",
      "set-property --runtime holdfast-containers.slice CPUQuota=250% MemoryMax=1073741824 MemoryHigh=8192 " +
        "IOReadBandwidthMax= IOReadBandwidthMax=/dev/sda 1000 IOWriteBandwidthMax= IOReadIOPSMax= IOWriteIOPSMax= IOWriteIOPSMax=/dev/sda 5",
    ]);
  });

  test("are removed from an existing slice, and need none", async () => {
    const slice = `${CGROUP}/holdfast.slice/holdfast-containers.slice`;
    const { groups, calls } = machine("systemd", {
      [`${slice}/cpu.max`]: "150000 100000\n",
      [`${slice}/memory.max`]: "max\n",
    });
    expect(groups.limits(DISK)).toEqual({ cpuMax: 150 });
    await groups.setLimits({}, DISK, signal);
    expect(calls()).toEqual([
      "set-property --runtime holdfast-containers.slice CPUQuota= MemoryMax=infinity MemoryHigh=infinity " +
        "IOReadBandwidthMax= IOWriteBandwidthMax= IOReadIOPSMax= IOWriteIOPSMax=",
    ]);
    const none = machine("systemd");
    await none.groups.setLimits({}, DISK, signal);
    expect(none.calls()).toEqual([]);
  });

  test("skip I/O with a warning if the disk is unknown, and report an error of systemd", async () => {
    const { groups, calls } = machine("systemd");
    expect(await groups.setLimits({ ioRbps: 5 }, undefined, signal)).toHaveLength(1);
    expect(calls().at(-1)).not.toMatch(/\/dev/);
    const refusing = machine("systemd", {}, "echo 'Access denied' >&2; exit 1");
    await expect(refusing.groups.setLimits({ cpuMax: 5 }, DISK, signal)).rejects.toThrow(/Access denied/);
  });

  test.each([
    [{}, {}, true],
    [{ cpuMax: 33.4 }, { cpuMax: 33 }, true],
    [{ cpuMax: 34 }, { cpuMax: 33 }, false],
    [{}, { cpuMax: 33 }, false],
    [{ cpuMax: 1 }, { cpuMax: 0.2 }, true],
    [{ memMaxBytes: 4096 }, { memMaxBytes: 5000 }, true],
    [{ memMaxBytes: 4096 }, { memMaxBytes: 9000 }, false],
    [{ ioRbps: 1 }, { ioRbps: 0 }, true],
    [{ ioRbps: 1 }, {}, false],
  ])("%j is as requested by %j: %j", (actual, wanted, isSame) => {
    expect(isSameLimits(actual, wanted)).toBe(isSame);
  });
});
