import { mkdir, open } from "node:fs/promises";
import { constants } from "node:fs";
import { join } from "node:path";
import { errnoOf, HostError, toError } from "../../errors.ts";
import type { ResourceLimits } from "../../protocol/sections/exec/config.ts";
import type { BlockDevice } from "./block-device.ts";
import { ioMaxText, limitsFrom, limitTexts, sliceProperties } from "./cgroup-texts.ts";
import type { Exec } from "./exec.ts";
import type { Reader } from "../reader.ts";

/**
 * Limits that the Engine API cannot set, on version 2 control groups (cgroups(7)).
 * @throws {HostError} `unsupported` if the machine has none, `cgroup-failed` if the kernel or systemd refuses; errors of
 *   `Exec.run`.
 */
export interface ControlGroups {
  /** The `CgroupParent` of new containers. */
  readonly parent: string;
  /** Sets `memory.high` of a running container in bytes; undefined removes the limit. */
  setMemoryHigh(container: RunningContainer, bytes: number | undefined, signal: AbortSignal): Promise<void>;
  /** Returns `memory.high` of a running container in bytes; undefined if it has no limit or cannot be read. */
  memoryHigh(container: RunningContainer): number | undefined;
  /**
   * Makes the parent group and sets its limits; removes limits that are undefined. `cpuMax` is in percent of one core. Returns a
   * warning for each limit that is unsupported.
   */
  setLimits(limits: ResourceLimits, disk: BlockDevice | undefined, signal: AbortSignal): Promise<readonly string[]>;
  /** Returns the limits of the parent group; undefined if the group does not exist. */
  limits(disk: BlockDevice | undefined): ResourceLimits | undefined;
}

export interface RunningContainer {
  readonly pid: number;
  /** The engine's id of the container. Only a group with this name is changed. */
  readonly id: string;
}

const MOUNT = "/sys/fs/cgroup";
const GROUP = "holdfast-containers";
const SLICE = `${GROUP}.slice`;
const SYSTEMCTL = { deadlineMs: 20_000, maxOutputBytes: 16_384 };

/** Returns the control groups of the engine's cgroup driver. `root` replaces `/` for writes, as the reader's root does for reads. */
export function controlGroups(
  driver: "systemd" | "cgroupfs",
  { reader, exec, root = "/" }: { readonly reader: Reader; readonly exec: Exec; readonly root?: string },
): ControlGroups {
  const isSystemd = driver === "systemd";
  const parentPath = isSystemd ? `${MOUNT}/holdfast.slice/${SLICE}` : `${MOUNT}/${GROUP}`;

  const requireUnified = (): void => {
    if (reader.read(`${MOUNT}/cgroup.controllers`) !== undefined) return;
    throw new HostError("unsupported", "this machine has no version 2 control groups with controllers");
  };

  async function systemctl(args: readonly string[], signal: AbortSignal): Promise<void> {
    const { exitCode, stderr } = await exec.run("systemctl", args, { ...SYSTEMCTL, signal });
    if (exitCode === 0) return;
    throw new HostError("cgroup-failed", `systemctl ${args[0] ?? ""}: ${stderr.trim().slice(0, 300)}`);
  }

  async function write(path: string, text: string): Promise<void> {
    try {
      const file = await open(join(root, path), constants.O_WRONLY);
      try {
        await file.writeFile(text);
      } finally {
        await file.close();
      }
    } catch (cause) {
      const code = errnoOf(cause) === "ENOENT" ? "unsupported" : "cgroup-failed";
      throw new HostError(code, `cannot set ${path} to ${text}: ${toError(cause).message}`, { cause });
    }
  }

  /** Returns the container's own group. Processes may be in groups that the container made below it. */
  function groupOf({ pid, id }: RunningContainer): string | undefined {
    const [, path = ""] = /^0::(\/.*)$/m.exec(reader.read(`/proc/${pid}/cgroup`) ?? "") ?? [];
    const parts = path.split("/");
    const own = parts.findIndex((part) => id.length >= 12 && part.includes(id));
    return own === -1 ? undefined : parts.slice(0, own + 1).join("/");
  }

  async function makeParent(signal: AbortSignal): Promise<void> {
    if (reader.list(parentPath) !== undefined) return;
    if (isSystemd) return systemctl(["start", SLICE], signal);
    for (const controller of ["cpu", "memory", "io", "pids"]) {
      // A controller that this kernel lacks is reported when its limit is written.
      await write(`${MOUNT}/cgroup.subtree_control`, `+${controller}`).catch(() => undefined);
    }
    await mkdir(join(root, parentPath), { recursive: true, mode: 0o755 });
  }

  return {
    parent: isSystemd ? SLICE : `/${GROUP}`,
    async setMemoryHigh(container, bytes, signal) {
      requireUnified();
      const group = groupOf(container);
      if (group === undefined) {
        throw new HostError(
          "cgroup-failed",
          `process ${container.pid} is not in a control group of container ${container.id}`,
        );
      }
      const value = limitTexts.memory(bytes);
      if (!isSystemd) return write(`${MOUNT}${group}/memory.high`, value);
      const scope = group.slice(group.lastIndexOf("/") + 1);
      const property = `MemoryHigh=${bytes === undefined ? "infinity" : value}`;
      return systemctl(["set-property", "--runtime", scope, property], signal);
    },
    memoryHigh(container) {
      const group = groupOf(container);
      const text = group === undefined ? undefined : reader.read(`${MOUNT}${group}/memory.high`)?.trim();
      return text === undefined || !/^\d+$/.test(text) ? undefined : Number(text);
    },
    async setLimits(limits, disk, signal) {
      const isEmpty = Object.values(limits).every((value) => value === undefined);
      if (isEmpty && reader.list(parentPath) === undefined) return [];
      requireUnified();
      await makeParent(signal);
      const wantsIo = [limits.ioRbps, limits.ioWbps, limits.ioRiops, limits.ioWiops].some((rate) => rate !== undefined);
      const warnings: string[] =
        wantsIo && disk === undefined
          ? ["limits: cannot determine the disk of the containers; I/O is not limited"]
          : [];
      if (isSystemd) {
        await systemctl(["set-property", "--runtime", SLICE, ...sliceProperties(limits, disk)], signal);
        return warnings;
      }
      const files = [
        ["cpu.max", limitTexts.cpu(limits.cpuMax)],
        ["memory.max", limitTexts.memory(limits.memMaxBytes)],
        ["memory.high", limitTexts.memory(limits.memHighBytes)],
        ...(disk === undefined ? [] : [["io.max", ioMaxText(limits, disk)] as const]),
      ] as const;
      for (const [name, text] of files) {
        const path = `${parentPath}/${name}`;
        // If a controller is missing, there is no limit to remove.
        if (reader.read(path) === undefined && /^max|=max wbps=max riops=max wiops=max$/.test(text)) continue;
        try {
          await write(path, text);
        } catch (error) {
          // One missing controller does not affect the others.
          if (!(error instanceof HostError && error.code === "unsupported")) throw error;
          warnings.push(`${name} is not limited: ${error.message}`);
        }
      }
      return warnings;
    },
    limits(disk) {
      if (reader.list(parentPath) === undefined) return undefined;
      return limitsFrom((name) => reader.read(`${parentPath}/${name}`), disk);
    },
  };
}
