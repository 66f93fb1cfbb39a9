import { getHeapStatistics } from "node:v8";
import type { Clock } from "../../../host/clock.ts";
import type { DiskSpace } from "../../../host/files/files.ts";
import {
  parseCpuTimes,
  parseLinkCounters,
  parseLoad,
  parseMemory,
  parseProcessIo,
  parseProcessStatus,
  parseProcessTicks,
  parseTcp,
} from "../../../host/proc.ts";
import type { CpuTimes, LinkCounters, Memory, TcpCounters } from "../../../host/proc.ts";
import type { Reader } from "../../../host/reader.ts";
import { countHalfOpen } from "../../../host/network/ip/sockets.ts";
import type { MetricSample } from "../../../protocol/documents/telemetry.ts";
import { usedRatio } from "../heartbeat.ts";

/** Counters and gauges at one moment; undefined ones could not be read. */
export interface MetricReadings {
  /** Monotonic milliseconds. */
  readonly elapsed: number;
  readonly cpu: CpuTimes | undefined;
  readonly memory: Memory | undefined;
  readonly disk: DiskSpace | undefined;
  readonly load: number | undefined;
  readonly tcp: TcpCounters | undefined;
  readonly halfOpen: number | undefined;
  /** Links by name; `index` identifies a link that was recreated under its old name. */
  readonly links: ReadonlyMap<string, LinkCounters & { readonly index: string | undefined }>;
  readonly heapUsedRatio: number;
  readonly processTicks: number | undefined;
  readonly processResidentBytes: number | undefined;
  readonly processIo: { readonly readBytes: number; readonly writeBytes: number } | undefined;
}

export interface Sampler {
  /** Reads the machine and returns the sample since the last call; `minute` in Unix seconds. */
  sample(minute: number): Promise<MetricSample>;
}

export interface SamplerSources {
  readonly reader: Reader;
  readonly clock: Clock;
  readonly countHalfOpen?: () => Promise<number | undefined>;
  /** Returns values of other parts of the agent: `event.dropped`, `gw.connected`, … */
  readonly extra?: () => Promise<Readonly<Record<string, number>>> | Readonly<Record<string, number>>;
}

type Metrics = Record<string, number | undefined>;

const MINUTE_MS = 60_000;

/** Stores the previous readings; the first sample after a start has gauges only. */
export function createSampler(sources: SamplerSources): Sampler {
  let previous: MetricReadings | undefined;
  return {
    async sample(minute) {
      const current = await readMetrics(sources);
      const metrics = sampleBetween(previous, current);
      previous = current;
      return { t: minute, m: { ...metrics, ...(await sources.extra?.()) } };
    },
  };
}

/** Takes one sample at every full minute of the wall clock until the returned function is called. */
export function startSampling(
  clock: Clock,
  sampler: Sampler,
  emit: (sample: MetricSample) => void,
  onError: (error: unknown) => void,
): () => void {
  let isStopped = false;
  let lastMinute = minuteOf(clock.now());
  let cancel = (): void => {};
  const schedule = (): void => {
    cancel = clock.after(MINUTE_MS - (clock.now() % MINUTE_MS), tick);
  };
  const tick = (): void => {
    const minute = minuteOf(clock.now());
    // A timer may fire early; the same minute is not sampled twice.
    if (minute === lastMinute) return schedule();
    lastMinute = minute;
    sampler
      .sample(minute)
      .then((sample) => {
        if (!isStopped) emit(sample);
      })
      .catch(onError);
    return schedule();
  };
  schedule();
  return () => {
    isStopped = true;
    cancel();
  };
}

/** Computes the metrics between two readings. Counters that decreased are skipped. Pure. */
export function sampleBetween(
  previous: MetricReadings | undefined,
  current: MetricReadings,
): Readonly<Record<string, number>> {
  const metrics: Metrics = { ...gauges(current), ...(previous === undefined ? {} : deltas(previous, current)) };
  const known: Record<string, number> = {};
  for (const [name, value] of Object.entries(metrics)) {
    if (value !== undefined && Number.isFinite(value)) known[name] = Math.round(value * 1000) / 1000;
  }
  return known;
}

/** Reads every source once. */
export async function readMetrics({
  reader,
  clock,
  countHalfOpen: count = countHalfOpen,
}: SamplerSources): Promise<MetricReadings> {
  const halfOpen = await count();
  const text = (path: string): string => reader.read(path) ?? "";
  const heap = getHeapStatistics();
  const counters = [...parseLinkCounters(text("/proc/net/dev"))];
  return {
    elapsed: clock.elapsed(),
    cpu: parseCpuTimes(text("/proc/stat")),
    memory: parseMemory(text("/proc/meminfo")),
    disk: reader.space("/"),
    load: parseLoad(text("/proc/loadavg")),
    tcp: parseTcp(text("/proc/net/snmp")),
    halfOpen,
    links: new Map(
      counters.map(([name, values]) => [name, { ...values, index: reader.read(`/sys/class/net/${name}/ifindex`) }]),
    ),
    heapUsedRatio: heap.used_heap_size / heap.heap_size_limit,
    processTicks: parseProcessTicks(text("/proc/self/stat")),
    processResidentBytes: parseProcessStatus(text("/proc/self/status"))?.residentBytes,
    processIo: parseProcessIo(text("/proc/self/io")),
  };
}

function gauges(current: MetricReadings): Metrics {
  const { memory, disk } = current;
  return {
    ram: memory === undefined ? undefined : percent(memory.totalBytes - memory.availableBytes, memory.totalBytes),
    disk: disk === undefined ? undefined : 100 * usedRatio(disk),
    heap: 100 * current.heapUsedRatio,
    load1: current.load,
    "proc.rss": current.processResidentBytes,
    embflows: current.halfOpen,
    "tcp.established": current.tcp?.established,
  };
}

function deltas(previous: MetricReadings, current: MetricReadings): Metrics {
  const seconds = (current.elapsed - previous.elapsed) / 1000;
  if (seconds <= 0) return {};
  const perSecond = (before: number | undefined, after: number | undefined): number | undefined =>
    divide(rise(before, after), seconds);
  const perMinute = (before: number | undefined, after: number | undefined): number | undefined =>
    divide(rise(before, after), seconds / 60);
  const ticks = rise(previous.cpu?.totalTicks, current.cpu?.totalTicks);
  const idle = rise(previous.cpu?.idleTicks, current.cpu?.idleTicks);
  const [before, after] = [previous.tcp, current.tcp];
  return {
    cpu: ticks === undefined || idle === undefined ? undefined : percent(Math.max(0, ticks - idle), ticks),
    "proc.cpu": percent(rise(previous.processTicks, current.processTicks), ticks),
    "proc.readBps": perSecond(previous.processIo?.readBytes, current.processIo?.readBytes),
    "proc.writeBps": perSecond(previous.processIo?.writeBytes, current.processIo?.writeBytes),
    "tcp.resets": perMinute(resets(before), resets(after)),
    "tcp.retrans": perMinute(before?.retransmits, after?.retransmits),
    "tcp.activeOpens": perMinute(before?.activeOpens, after?.activeOpens),
    "tcp.passiveOpens": perMinute(before?.passiveOpens, after?.passiveOpens),
    "tcp.attemptFails": perMinute(before?.attemptFails, after?.attemptFails),
    ...linkDeltas(previous, current, perSecond, perMinute),
  };
}

type Rate = (before: number, after: number) => number | undefined;

/** New, removed and recreated links have no delta. */
function linkDeltas(previous: MetricReadings, current: MetricReadings, perSecond: Rate, perMinute: Rate): Metrics {
  const metrics: Metrics = {};
  for (const [name, after] of current.links) {
    const before = previous.links.get(name);
    if (name === "lo" || before === undefined || before.index !== after.index) continue;
    if (after.rxBytes < before.rxBytes || after.txBytes < before.txBytes) continue;
    metrics[`nic.${name}.rxBps`] = bits(perSecond(before.rxBytes, after.rxBytes));
    metrics[`nic.${name}.txBps`] = bits(perSecond(before.txBytes, after.txBytes));
    metrics[`nic.${name}.rxErr`] = perMinute(before.rxErrors, after.rxErrors);
    metrics[`nic.${name}.txErr`] = perMinute(before.txErrors, after.txErrors);
    metrics[`nic.${name}.rxDrop`] = perMinute(before.rxDropped, after.rxDropped);
    metrics[`nic.${name}.txDrop`] = perMinute(before.txDropped, after.txDropped);
  }
  return metrics;
}

function resets(tcp: TcpCounters | undefined): number | undefined {
  return tcp === undefined ? undefined : tcp.resetsSent + tcp.establishedResets;
}

/** Returns the increase of a counter; undefined if it was reset or wrapped. */
function rise(before: number | undefined, after: number | undefined): number | undefined {
  return before === undefined || after === undefined || after < before ? undefined : after - before;
}

function divide(value: number | undefined, by: number): number | undefined {
  return value === undefined ? undefined : value / by;
}

function percent(part: number | undefined, whole: number | undefined): number | undefined {
  if (part === undefined || whole === undefined || whole <= 0) return undefined;
  return Math.min(100, (100 * part) / whole);
}

function bits(bytes: number | undefined): number | undefined {
  return bytes === undefined ? undefined : bytes * 8;
}

function minuteOf(now: number): number {
  return Math.floor(now / MINUTE_MS) * 60;
}
