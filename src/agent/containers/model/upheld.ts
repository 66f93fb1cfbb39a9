import type { ContainerSettings, EngineInfo, UpdateBody } from "../../../host/engine/engine.ts";

/** The settings of a container that are restored when somebody changes them at the engine. */
export interface Upheld {
  readonly resources: Readonly<Record<"NanoCpus" | "Memory" | "MemorySwap" | "PidsLimit", number>>;
  readonly restartPolicy: string;
  readonly network: Attachment;
}

/** The one network that a container is attached to. */
export interface Attachment {
  readonly name: string;
  /** Name for its siblings. */
  readonly alias: string;
  /** Undefined: the engine chooses. */
  readonly address: string | undefined;
}

/** Facts of the machine that neutral values depend on. */
export interface Machine extends Pick<EngineInfo, "cpus" | "cgroupVersion"> {
  /** Its memory nodes, `0-1`. */
  readonly memoryNodes: string;
}

/** Differences between how a container is attached and how it was made. */
export interface AttachmentDrift {
  /** Other networks that it is attached to. */
  readonly foreign: readonly string[];
  /** Its own network: with its name and address, with different ones, or detached. */
  readonly own: "as-made" | "otherwise" | "off";
}

const MIN_RESERVATION_BYTES = 6 * 1024 * 1024;

/** Fields that no container of Holdfast is made with; 0 and "" mean unset, which an update cannot restore. */
const UNUSED = [
  "CpuShares",
  "CpuPeriod",
  "CpuQuota",
  "CpuRealtimePeriod",
  "CpuRealtimeRuntime",
  "CpusetCpus",
  "CpusetMems",
  "BlkioWeight",
  "MemoryReservation",
  "KernelMemory",
] as const;

/** The fields of `POST /containers/{id}/update` that differ from how the container was made. Pure. */
export function changedFields(
  upheld: Upheld,
  settings: ContainerSettings,
  machine: Machine | undefined,
): readonly string[] {
  const { resources, restartPolicy } = settings;
  const limits = Object.entries(upheld.resources).flatMap(([name, value]) => (resources[name] === value ? [] : [name]));
  const neutral = machine === undefined ? {} : neutralValues(upheld, machine);
  const unused = UNUSED.filter((name) => {
    const value = resources[name] ?? 0;
    return value !== 0 && value !== "" && value !== -1 && value !== neutral[name];
  });
  return [...limits, ...unused, ...(restartPolicy === upheld.restartPolicy ? [] : ["RestartPolicy"])];
}

/** The body that restores these fields to the values the container was made with, or else to values that limit nothing. Pure. */
export function puttingBack(upheld: Upheld, fields: readonly string[], machine: Machine | undefined): UpdateBody {
  const neutral = machine === undefined ? {} : neutralValues(upheld, machine);
  return {
    // The engine validates memory and swap together, so all are sent.
    ...upheld.resources,
    RestartPolicy: { Name: upheld.restartPolicy },
    ...Object.fromEntries(fields.flatMap((name) => (neutral[name] === undefined ? [] : [[name, neutral[name]]]))),
  };
}

/** The differences in how a container is attached to networks; undefined when there are none. Pure. */
export function changedAttachment(
  { network: { name, alias, address } }: Upheld,
  { networks }: ContainerSettings,
): AttachmentDrift | undefined {
  const foreign = Object.keys(networks).filter((other) => other !== name);
  const own = networks[name];
  const isAsMade =
    own !== undefined && own.aliases.includes(alias) && (address === undefined || own.address === address);
  if (isAsMade && foreign.length === 0) return undefined;
  return { foreign, own: own === undefined ? "off" : isAsMade ? "as-made" : "otherwise" };
}

function neutralValues(
  upheld: Upheld,
  { cpus, cgroupVersion, memoryNodes }: Machine,
): Readonly<Record<string, unknown>> {
  return {
    CpuShares: 1024,
    BlkioWeight: 500,
    CpusetCpus: cpus > 1 ? `0-${cpus - 1}` : "0",
    CpusetMems: memoryNodes,
    // A soft limit in version 1. In version 2 a protection, of which the engine takes no less than this.
    MemoryReservation: cgroupVersion === 1 ? upheld.resources.Memory : MIN_RESERVATION_BYTES,
    KernelMemory: -1,
  };
}
