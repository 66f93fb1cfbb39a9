import { HostError, toError } from "../errors.ts";
import { wholeDiskOf } from "../host/block-device.ts";
import type { ControlGroups } from "../host/cgroups.ts";
import type { EngineInfo } from "../host/engine/engine.ts";
import type { Reader } from "../host/reader.ts";
import type { ResourceLimits } from "../protocol/sections/exec-config.ts";
import type { CapsSeen } from "./sections/exec/caps.ts";

/** The limits of all containers together, on the group that is their parent. */
export interface OpenedCaps {
  /** Reads files of the kernel and asks the engine nothing; undefined while that has not said what it is. */
  look(info: EngineInfo | undefined): CapsSeen | undefined;
  /** @throws {HostError} as `ControlGroups.setLimits` does where the machine refuses; what it lacks is remembered instead. */
  apply(limits: ResourceLimits, signal: AbortSignal): Promise<void>;
}

export interface OpenCapsOptions {
  readonly reader: Reader;
  readonly groups: (info: EngineInfo | undefined) => ControlGroups | undefined;
  readonly info: () => EngineInfo | undefined;
}

/** Builds it; nothing is read before the engine is known. */
export function openCaps({ reader, groups, info }: OpenCapsOptions): OpenedCaps {
  let last: CapsSeen["last"];
  const diskOf = (known: EngineInfo) => wholeDiskOf(reader, known.rootDirectory);

  async function set(limits: ResourceLimits, known: EngineInfo, signal: AbortSignal): Promise<readonly string[]> {
    const of = groups(known);
    if (of === undefined) return ["the engine keeps control groups in a way that is not known: nothing is limited"];
    try {
      return await of.setLimits(limits, diskOf(known), signal);
    } catch (error) {
      if (error instanceof HostError && error.code === "unsupported") return [toError(error).message];
      throw error;
    }
  }

  return {
    look(known) {
      if (known === undefined) return undefined;
      return { actual: groups(known)?.limits(diskOf(known)), last };
    },
    async apply(limits, signal) {
      const known = info();
      if (known === undefined) throw new HostError("engine-unwell", "the container engine has not said what it is");
      const warnings = await set(limits, known, signal);
      last = { wanted: limits, actual: groups(known)?.limits(diskOf(known)), warnings };
    },
  };
}
