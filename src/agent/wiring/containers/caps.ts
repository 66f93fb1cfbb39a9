import { HostError, toError } from "../../../errors.ts";
import { wholeDiskOf } from "../../../host/process/block-device.ts";
import type { Clock } from "../../../host/clock.ts";
import type { ControlGroups } from "../../../host/process/cgroups.ts";
import type { EngineInfo } from "../../../host/engine/engine.ts";
import type { Reader } from "../../../host/reader.ts";
import type { ResourceLimits } from "../../../protocol/sections/exec/config.ts";
import type { CapsSeen } from "../../sections/exec/caps.ts";
import { defined } from "../../../lib/defined.ts";

/** The limits of all containers together, set on their parent control group. */
export interface OpenedCaps {
  /** Reads files of the kernel without asking the engine; undefined until the engine has been asked once. */
  observe(info: EngineInfo | undefined): CapsSeen | undefined;
  /** Asks again what the machine lacks and why; the answer is remembered. @throws {HostError} `engine-unwell`. */
  apply(limits: ResourceLimits, signal: AbortSignal): Promise<void>;
}

export interface OpenCapsOptions {
  readonly reader: Reader;
  readonly groups: (info: EngineInfo | undefined) => ControlGroups | undefined;
  readonly info: () => EngineInfo | undefined;
  readonly clock: Pick<Clock, "after">;
  /** Tries refused limits again. */
  readonly requestPass: () => void;
}

const RETRY_MS = 60_000;

/** Opens the limits; nothing is read before the engine is known. */
export function openCaps({ reader, groups, info, clock, requestPass }: OpenCapsOptions): OpenedCaps {
  let last: CapsSeen["last"];
  /** Cache time of an engine's control group driver. */
  let latest: EngineInfo | undefined;
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
    observe(now) {
      const known = now ?? latest;
      if (known === undefined) return undefined;
      latest = known;
      return { actual: groups(known)?.limits(diskOf(known)), last };
    },
    async apply(limits, signal) {
      const known = info() ?? latest;
      if (known === undefined) throw new HostError("engine-unwell", "the container engine is not identified yet");
      const note = (warnings: readonly string[], failure?: string): CapsSeen["last"] => {
        const actual = groups(known)?.limits(diskOf(known));
        return { wanted: limits, actual, warnings, ...defined({ failure }) };
      };
      try {
        last = note(await set(limits, known, signal));
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof HostError)) throw error;
        const refused = note([], error.message);
        last = refused;
        clock.after(RETRY_MS, () => {
          if (last !== refused) return;
          last = undefined;
          requestPass();
        });
      }
    },
  };
}
