import type { ContainerSpec, ResourceLimits } from "../../../protocol/sections/exec/config.ts";

/** Resources of the machine. */
export interface HostFacts {
  /** Processors, as the engine counts them. */
  readonly cpus: number;
  readonly memoryBytes: number;
  /** Disk that holds the engine's images and the volumes, such as `/dev/vda`; undefined if unknown. */
  readonly diskDevice?: string;
}

export interface CompiledLimits {
  /** Fields of `HostConfig` that can be changed on a running container. */
  readonly update: { readonly NanoCpus: number; readonly Memory: number; readonly MemorySwap: number };
  /** Fields of `HostConfig` that need a new container. */
  readonly fixed: Readonly<Record<string, unknown>>;
  /** `memory.high` of the control group; the Engine API cannot set it. */
  readonly memoryHighBytes: number;
  readonly warnings: readonly string[];
}

/** Minimum that the engine accepts. */
const MIN_MEMORY_BYTES = 6 * 1024 * 1024;
const MIN_NANO_CPUS = 10_000_000;
const DEFAULT_PERCENT = { cpu: 50, memory: 50, memoryHigh: 45 };
const SLOW = { bytesPerSecond: 64 * 1024, operationsPerSecond: 10 };

/** Compiles the limits of a container; the default is half of the machine. */
export function compileLimits(spec: Pick<ContainerSpec, "limits" | "ulimits">, host: HostFacts): CompiledLimits {
  const cpu = nanoCpusOf(spec.limits.cpuMax ?? DEFAULT_PERCENT.cpu, host.cpus);
  const memory = memoryOf(spec.limits, host.memoryBytes);
  const io = blockIo(spec.limits, host.diskDevice);
  const ulimits = spec.ulimits
    .toSorted((a, b) => (a.type < b.type ? -1 : 1))
    .map(({ type, soft, hard }) => ({ Name: type, Soft: soft, Hard: hard }));
  return {
    update: { NanoCpus: cpu.nanoCpus, Memory: memory.maxBytes, MemorySwap: memory.maxBytes },
    fixed: { ...io.fields, ...(ulimits.length === 0 ? {} : { Ulimits: ulimits }) },
    memoryHighBytes: memory.highBytes,
    warnings: [...cpu.warnings, ...memory.warnings, ...io.warnings],
  };
}

/** Converts percent of the whole machine to the engine's processor time, within its bounds. */
export function nanoCpusOf(percent: number, cpus: number): { nanoCpus: number; warnings: readonly string[] } {
  const most = Math.max(cpus, 1) * 1_000_000_000;
  const wanted = Math.floor((percent / 100) * most);
  if (wanted > most) {
    return { nanoCpus: most, warnings: [`limits.cpuMax: ${percent} % is more than the machine: 100 % is used`] };
  }
  if (wanted < MIN_NANO_CPUS) {
    return {
      nanoCpus: MIN_NANO_CPUS,
      warnings: [`limits.cpuMax: ${percent} % is too little: a hundredth of a core is used`],
    };
  }
  return { nanoCpus: wanted, warnings: [] };
}

function memoryOf(limits: ResourceLimits, hostBytes: number) {
  const wanted = Math.floor(limits.memMaxBytes ?? (hostBytes * DEFAULT_PERCENT.memory) / 100);
  const maxBytes = Math.min(Math.max(wanted, MIN_MEMORY_BYTES), Number.MAX_SAFE_INTEGER);
  const highBytes = Math.floor(limits.memHighBytes ?? (hostBytes * DEFAULT_PERCENT.memoryHigh) / 100);
  return {
    maxBytes,
    highBytes: Math.min(highBytes, maxBytes),
    warnings: [
      ...(wanted < MIN_MEMORY_BYTES ? [`limits.memMax: ${wanted} bytes is too little: 6 MB is used`] : []),
      ...(limits.memHighBytes !== undefined && highBytes > maxBytes
        ? ["limits.memHigh: is above memMax, which is used"]
        : []),
    ],
  };
}

const RATES = [
  ["ioRbps", "BlkioDeviceReadBps", "byte/s", SLOW.bytesPerSecond],
  ["ioWbps", "BlkioDeviceWriteBps", "byte/s", SLOW.bytesPerSecond],
  ["ioRiops", "BlkioDeviceReadIOps", "op/s", SLOW.operationsPerSecond],
  ["ioWiops", "BlkioDeviceWriteIOps", "op/s", SLOW.operationsPerSecond],
] as const;

function blockIo(limits: ResourceLimits, device: string | undefined) {
  const fields: Record<string, unknown> = {};
  const warnings: string[] = [];
  for (const [name, field, unit, slow] of RATES) {
    const rate = limits[name];
    if (rate === undefined) continue;
    if (device === undefined) {
      warnings.push(`limits.${name}: is not applied, since the disk of the containers is unknown`);
      continue;
    }
    fields[field] = [{ Path: device, Rate: Math.min(Math.floor(rate), Number.MAX_SAFE_INTEGER) }];
    if (rate < slow) warnings.push(`limits.${name}: ${rate} ${unit} is very little`);
  }
  return { fields, warnings };
}
