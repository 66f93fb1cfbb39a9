import type { ResourceLimits } from "../../protocol/sections/exec/config.ts";
import type { BlockDevice } from "./block-device.ts";
import { defined } from "../../lib/defined.ts";

const PERIOD_US = 100_000;
/** The kernel's minimum of a CPU quota. */
const MIN_QUOTA_US = 1000;
const PAGE_BYTES = 4096;
const RATES = [
  ["rbps", "ioRbps", "IOReadBandwidthMax"],
  ["wbps", "ioWbps", "IOWriteBandwidthMax"],
  ["riops", "ioRiops", "IOReadIOPSMax"],
  ["wiops", "ioWiops", "IOWriteIOPSMax"],
] as const;

/** Formats limits for the files of a control group (Documentation/admin-guide/cgroup-v2.rst); an undefined value removes the limit. */
export const limitTexts = {
  /** Formats `cpu.max`; percent of one core. */
  cpu: (percent: number | undefined): string =>
    percent === undefined ? `max ${PERIOD_US}` : `${quotaUs(percent)} ${PERIOD_US}`,
  /** Formats `memory.max` and `memory.high`; the kernel counts in pages. */
  memory: (bytes: number | undefined): string => (bytes === undefined ? "max" : String(wholePages(bytes))),
};

/** Formats a line of `io.max`. */
export function ioMaxText(limits: ResourceLimits, disk: BlockDevice): string {
  const rates = RATES.map(([key, field]) => `${key}=${rateOf(limits[field]) ?? "max"}`);
  return [disk.number, ...rates].join(" ");
}

/** Formats limits as properties of a slice (systemd.resource-control(5)). */
export function sliceProperties(limits: ResourceLimits, disk: BlockDevice | undefined): readonly string[] {
  const memory = (bytes: number | undefined): string => (bytes === undefined ? "infinity" : limitTexts.memory(bytes));
  return [
    `CPUQuota=${limits.cpuMax === undefined ? "" : `${Math.max(Math.round(limits.cpuMax), 1)}%`}`,
    `MemoryMax=${memory(limits.memMaxBytes)}`,
    `MemoryHigh=${memory(limits.memHighBytes)}`,
    ...RATES.flatMap(([, field, property]) => {
      const rate = rateOf(limits[field]);
      // Each assignment adds a device; an empty one clears the list.
      return [
        `${property}=`,
        ...(rate === undefined || disk === undefined ? [] : [`${property}=${disk.path} ${rate}`]),
      ];
    }),
  ];
}

/** Parses the files of a group; omits resources without a limit. */
export function limitsFrom(read: (file: string) => string | undefined, disk: BlockDevice | undefined): ResourceLimits {
  const [quota = "max", period = String(PERIOD_US)] = (read("cpu.max") ?? "max").trim().split(" ");
  const memMaxBytes = numberOf(read("memory.max"));
  const memHighBytes = numberOf(read("memory.high"));
  const line = read("io.max")
    ?.split("\n")
    .find((text) => disk !== undefined && text.startsWith(`${disk.number} `));
  const rates = RATES.flatMap(([key, field]) => {
    const rate = numberOf(new RegExp(`\\b${key}=(\\d+)`).exec(line ?? "")?.[1]);
    return rate === undefined ? [] : [[field, rate] as const];
  });
  return {
    ...(quota === "max" ? {} : { cpuMax: (Number(quota) / Number(period)) * 100 }),
    ...defined({ memMaxBytes, memHighBytes }),
    ...Object.fromEntries(rates),
  };
}

/** Reports whether limits read from a group equal the limits set, allowing for the rounding of the kernel and of systemd. */
export function isSameLimits(actual: ResourceLimits, wanted: ResourceLimits): boolean {
  const pages = (bytes: number | undefined): number | undefined =>
    bytes === undefined ? undefined : wholePages(bytes);
  return (
    isNear(actual.cpuMax, wanted.cpuMax) &&
    pages(actual.memMaxBytes) === pages(wanted.memMaxBytes) &&
    pages(actual.memHighBytes) === pages(wanted.memHighBytes) &&
    RATES.every(([, field]) => rateOf(actual[field]) === rateOf(wanted[field]))
  );
}

function isNear(actual: number | undefined, wanted: number | undefined): boolean {
  if (actual === undefined || wanted === undefined) return actual === wanted;
  return Math.abs(actual - Math.max(wanted, 1)) <= 0.5;
}

const quotaUs = (percent: number): number => Math.max(Math.round((percent / 100) * PERIOD_US), MIN_QUOTA_US);
const wholePages = (bytes: number): number => Math.floor(bytes / PAGE_BYTES) * PAGE_BYTES;

/** The kernel refuses a rate of 0. */
const rateOf = (rate: number | undefined): number | undefined =>
  rate === undefined ? undefined : Math.max(Math.floor(rate), 1);

function numberOf(text: string | undefined): number | undefined {
  const plain = text?.trim() ?? "";
  return /^\d+$/.test(plain) ? Number(plain) : undefined;
}
