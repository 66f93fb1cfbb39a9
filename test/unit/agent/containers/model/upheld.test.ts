import { expect, test } from "vitest";
import { changedAttachment, changedFields, puttingBack } from "../../../../../src/agent/containers/model/upheld.ts";

const resources = { NanoCpus: 1e9, Memory: 64e6, MemorySwap: 64e6, PidsLimit: 4096 };
const upheld = {
  resources,
  restartPolicy: "unless-stopped",
  network: { name: "ours", alias: "web", address: "172.18.0.9" },
};
const networks = { ours: { address: "172.18.0.9", aliases: ["0123456789ab", "web"] } };
const asMade = { restartPolicy: "unless-stopped", resources, networks };
const machine = { cpus: 4, cgroupVersion: 2, memoryNodes: "0-1" } as const;

test.each([
  [{}, []],
  // As reported by the engine for unset values.
  [{ CpuShares: 0, CpusetCpus: "", KernelMemory: 0, BlkioWeight: 0 }, []],
  [{ Memory: 32e6 }, ["Memory"]],
  [{ MemorySwap: -1 }, ["MemorySwap"]],
  [{ NanoCpus: 2e9, PidsLimit: 1 }, ["NanoCpus", "PidsLimit"]],
  [{ CpuShares: 2 }, ["CpuShares"]],
  [{ CpusetCpus: "0" }, ["CpusetCpus"]],
  // A value that cannot be unset has its neutral value.
  [
    {
      CpuShares: 1024,
      BlkioWeight: 500,
      CpusetCpus: "0-3",
      CpusetMems: "0-1",
      KernelMemory: -1,
      MemoryReservation: 6 * 1024 * 1024,
    },
    [],
  ],
])("a container with %j besides differs in: %j", (more, fields) => {
  expect(changedFields(upheld, { ...asMade, resources: { ...resources, ...more } }, machine)).toEqual(fields);
});

test("another restart policy is a change", () => {
  expect(changedFields(upheld, { ...asMade, restartPolicy: "no" }, machine)).toEqual(["RestartPolicy"]);
});

test("reverts changed limits, and replaces one that cannot be unset by a value that limits nothing", () => {
  expect(puttingBack(upheld, ["Memory", "CpuShares", "CpusetCpus", "MemoryReservation"], machine)).toEqual({
    ...resources,
    RestartPolicy: { Name: "unless-stopped" },
    CpuShares: 1024,
    CpusetCpus: "0-3",
    MemoryReservation: 6 * 1024 * 1024,
  });
  // In control groups of version 1 it is a soft limit.
  const older = { ...machine, cpus: 1, cgroupVersion: 1 } as const;
  expect(puttingBack(upheld, ["MemoryReservation", "CpusetCpus"], older)).toMatchObject({
    MemoryReservation: 64e6,
    CpusetCpus: "0",
  });
});

test.each([
  [networks, undefined],
  [{}, { foreign: [], own: "off" }],
  [{ other: { address: "10.0.0.2", aliases: [] } }, { foreign: ["other"], own: "off" }],
  [
    { ...networks, other: { address: "10.0.0.2", aliases: [] } },
    { foreign: ["other"], own: "as-made" },
  ],
  [{ ours: { address: "172.18.0.10", aliases: ["web"] } }, { foreign: [], own: "otherwise" }],
  [{ ours: { address: "172.18.0.9", aliases: ["0123456789ab"] } }, { foreign: [], own: "otherwise" }],
])("a container on %j differs in: %j", (found, changed) => {
  expect(changedAttachment(upheld, { ...asMade, networks: found })).toEqual(changed);
});
