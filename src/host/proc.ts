import { colonFields, fieldsOf, toCount, toDecimal } from "../lib/text/text-fields.ts";

/** Memory by /proc/meminfo (proc_meminfo(5)). */
export interface Memory {
  readonly totalBytes: number;
  readonly availableBytes: number;
}

/** CPU times by /proc/stat (proc_stat(5)), in clock ticks over all cores. */
export interface CpuTimes {
  readonly totalTicks: number;
  /** Idle time and I/O wait. */
  readonly idleTicks: number;
  readonly cores: number;
  /** Unix seconds; the kernel derives it from the wall clock, so it can shift by a second. */
  readonly bootedAt: number | undefined;
}

/** TCP counters of /proc/net/snmp (RFC 4022); all except `established` only increase. */
export interface TcpCounters {
  readonly activeOpens: number;
  readonly passiveOpens: number;
  readonly attemptFails: number;
  readonly establishedResets: number;
  readonly established: number;
  readonly retransmits: number;
  readonly resetsSent: number;
}

/** Counters of one line of /proc/net/dev. */
export interface LinkCounters {
  readonly rxBytes: number;
  readonly rxErrors: number;
  readonly rxDropped: number;
  readonly txBytes: number;
  readonly txErrors: number;
  readonly txDropped: number;
}

/** Memory of one process by /proc/<pid>/smaps_rollup, in bytes. */
export interface MemoryMaps {
  readonly residentBytes: number;
  readonly privateDirtyBytes: number;
}

export function parseMemory(text: string): Memory | undefined {
  const fields = colonFields(text);
  const totalBytes = kibibytes(fields.get("MemTotal"));
  const availableBytes = kibibytes(fields.get("MemAvailable"));
  if (totalBytes === undefined || totalBytes === 0 || availableBytes === undefined) return undefined;
  return { totalBytes, availableBytes: Math.min(availableBytes, totalBytes) };
}

/** Parses the one-minute load average of /proc/loadavg. */
export function parseLoad(text: string): number | undefined {
  const load = toDecimal(fieldsOf(text)[0]);
  return load === undefined || load < 0 ? undefined : load;
}

/** Parses the seconds since boot of /proc/uptime. */
export function parseUptime(text: string): number | undefined {
  const seconds = toDecimal(fieldsOf(text)[0]);
  return seconds === undefined || seconds < 0 ? undefined : seconds;
}

export function parseCpuTimes(text: string): CpuTimes | undefined {
  const lines = text.split("\n");
  // guest and guest_nice, the last two fields, are already included in user and nice.
  const ticks = fieldsOf(lines.find((line) => line.startsWith("cpu ")) ?? "")
    .slice(1, 9)
    .map(toCount);
  const [idle, wait] = [ticks[3], ticks[4] ?? 0];
  if (idle === undefined || ticks.includes(undefined)) return undefined;
  return {
    totalTicks: ticks.reduce<number>((sum, value) => sum + (value ?? 0), 0),
    idleTicks: idle + wait,
    cores: lines.filter((line) => /^cpu\d/.test(line)).length,
    bootedAt: toCount(fieldsOf(lines.find((line) => line.startsWith("btime ")) ?? "")[1]),
  };
}

export function parseTcp(text: string): TcpCounters | undefined {
  const [names, values] = text.split("\n").filter((line) => line.startsWith("Tcp:"));
  if (names === undefined || values === undefined) return undefined;
  const numbers = fieldsOf(values);
  const byName = new Map(fieldsOf(names).map((name, at) => [name, toCount(numbers[at])]));
  const counters = {
    activeOpens: byName.get("ActiveOpens"),
    passiveOpens: byName.get("PassiveOpens"),
    attemptFails: byName.get("AttemptFails"),
    establishedResets: byName.get("EstabResets"),
    established: byName.get("CurrEstab"),
    retransmits: byName.get("RetransSegs"),
    resetsSent: byName.get("OutRsts"),
  };
  return isComplete(counters) ? counters : undefined;
}

export function parseLinkCounters(text: string): ReadonlyMap<string, LinkCounters> {
  const links = new Map<string, LinkCounters>();
  for (const line of text.split("\n")) {
    // The kernel forbids colons in interface names, so the first colon ends the name.
    const at = line.indexOf(":");
    if (at <= 0) continue;
    const values = fieldsOf(line.slice(at + 1)).map(toCount);
    const counters = {
      rxBytes: values[0],
      rxErrors: values[2],
      rxDropped: values[3],
      txBytes: values[8],
      txErrors: values[10],
      txDropped: values[11],
    };
    if (isComplete(counters)) links.set(line.slice(0, at).trim(), counters);
  }
  return links;
}

/** Parses the user and system clock ticks of a process from /proc/<pid>/stat. */
export function parseProcessTicks(text: string): number | undefined {
  // The second field is the command in parentheses, which may contain blanks and parentheses.
  const fields = fieldsOf(text.slice(text.lastIndexOf(")") + 1));
  const [user, system] = [toCount(fields[11]), toCount(fields[12])];
  return user === undefined || system === undefined ? undefined : user + system;
}

/** Parses the disk bytes that a process read and wrote from /proc/<pid>/io. */
export function parseProcessIo(text: string): { readonly readBytes: number; readonly writeBytes: number } | undefined {
  const fields = colonFields(text);
  const io = { readBytes: toCount(fields.get("read_bytes")), writeBytes: toCount(fields.get("write_bytes")) };
  return isComplete(io) ? io : undefined;
}

/** Parses the resident bytes and context switches of a process from /proc/<pid>/status. */
export function parseProcessStatus(
  text: string,
): { readonly residentBytes: number; readonly switches: number } | undefined {
  const fields = colonFields(text);
  const voluntary = toCount(fields.get("voluntary_ctxt_switches"));
  const forced = toCount(fields.get("nonvoluntary_ctxt_switches"));
  const residentBytes = kibibytes(fields.get("VmRSS"));
  if (residentBytes === undefined || voluntary === undefined || forced === undefined) return undefined;
  return { residentBytes, switches: voluntary + forced };
}

export function parseMemoryMaps(text: string): MemoryMaps | undefined {
  const fields = colonFields(text);
  const maps = {
    residentBytes: kibibytes(fields.get("Rss")),
    privateDirtyBytes: kibibytes(fields.get("Private_Dirty")),
  };
  return isComplete(maps) ? maps : undefined;
}

/** The address range of a mapping. */
export interface Mapping {
  readonly start: bigint;
  readonly length: bigint;
}

/** Returns a file's read-only mappings without private pages from /proc/<pid>/smaps. */
export function cleanMappings(smaps: string, path: string): readonly Mapping[] {
  return smaps.split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m).flatMap((text): Mapping[] => {
    const [line = "", ...rest] = text.split("\n");
    const [, from, to, name] = /^([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ [1-9]\d* +(.+)$/.exec(line) ?? [];
    const fields = colonFields(rest.join("\n"));
    const isClean = ["Private_Dirty", "Shared_Dirty", "Anonymous"].every((field) => fields.get(field) === "0 kB");
    if (name !== path || !isClean) return [];
    const start = BigInt(`0x${from}`);
    return [{ start, length: BigInt(`0x${to}`) - start }];
  });
}

/** Parses the boot id of /proc/sys/kernel/random/boot_id. */
export function parseBootId(text: string): string | undefined {
  const id = text.trim().toLowerCase();
  return /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id) ? id : undefined;
}

function kibibytes(text: string | undefined): number | undefined {
  const count = /^(\d{1,15}) kB$/.exec(text ?? "")?.[1];
  return count === undefined ? undefined : Number(count) * 1024;
}

function isComplete<K extends string>(record: Record<K, number | undefined>): record is Record<K, number> {
  return !Object.values(record).includes(undefined);
}

const CAP_NET_RAW = 13n; // capabilities(7)

/** Reports whether /proc/self/status grants this process CAP_NET_RAW. */
export function hasNetRaw(status: string): boolean {
  const effective = /^CapEff:\s*([0-9a-f]{1,16})$/m.exec(status)?.[1];
  return effective !== undefined && ((BigInt(`0x${effective}`) >> CAP_NET_RAW) & 1n) === 1n;
}
