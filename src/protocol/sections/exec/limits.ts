import type { ContainerSpec, ResourceLimits, Ulimit } from "./config.ts";
import {
  ContainerLimits,
  EXEC_LIMITS,
  Logging,
  MEGABYTE,
  MIN_MEMORY_MB,
  NodeLimits,
  UlimitItem,
  ulimitTypes,
  type PartName,
} from "./fields.ts";
import { sortedBy, tidied, type ExecReader, type RawPart } from "./reader.ts";
import type { RawItem } from "../common/forms.ts";
import { defined } from "../../../lib/defined.ts";

const RATES = ["ioRbps", "ioWbps", "ioRiops", "ioWiops"] as const;
const FIELDS = ["cpuMax", "memMax", "memHigh", ...RATES] as const;
const NUMERIC: ReadonlySet<string> = new Set([...FIELDS, "legacyMemMax", "legacyMemHigh"]);
const SOFT: ReadonlySet<string> = new Set(FIELDS);
/** Minimum with which programs start reliably. */
const TINY = { bytes: 64 * 1024, operations: 10 } as const;
const MAX_CPU = 100;

/** The limits of a container: memory in megabytes, the processor in percent of the machine. Each field counts by itself. */
export function readLimits(
  reader: ExecReader,
  at: RawItem,
  parts: ReadonlyMap<PartName, RawPart>,
): { readonly limits: ResourceLimits; readonly ulimits: readonly Ulimit[] } {
  const place = reader.object(at, parts, "limits");
  if (place === undefined || place === "wrong") return { limits: {}, ulimits: [] };
  const { limits: list, ...fields } = place.fields;
  const tidy = tidied(fields, { numeric: NUMERIC });
  for (const [legacy, field] of [
    ["legacyMemMax", "memMax"],
    ["legacyMemHigh", "memHigh"],
  ] as const) {
    tidy[field] ??= tidy[legacy];
    if (tidy[field] === undefined) delete tidy[field];
  }
  dropZeros(reader, place, tidy);
  const { cpuMax } = tidy;
  if (typeof cpuMax === "number" && cpuMax > MAX_CPU) {
    reader.note("E_RANGE", place, "cpuMax", `${cpuMax} is more than the whole machine; taken as ${MAX_CPU}`);
    tidy["cpuMax"] = MAX_CPU;
  }
  for (const name of ["memMax", "memHigh"]) raise(reader, place, tidy, name, MIN_MEMORY_MB, "megabytes");
  const judged = reader.judge(place, ContainerLimits, tidy, SOFT) ?? {};
  return {
    limits: limitsOf(reader, place, judged, (megabytes) => Math.round(megabytes * MEGABYTE)),
    ulimits: readUlimits(reader, place, { key: "limits", value: list }),
  };
}

/** The caps for all containers together: memory in bytes or megabytes, the processor in percent of one core. */
export function readNodeLimits(reader: ExecReader, at: RawItem): ResourceLimits {
  const tidy = tidied(at.fields, { numeric: NUMERIC });
  dropZeros(reader, at, tidy);
  for (const name of ["memMax", "memHigh"]) raise(reader, at, tidy, name, MIN_MEMORY_MB, "megabytes");
  const judged = reader.judge(at, NodeLimits, tidy, SOFT) ?? {};
  return limitsOf(reader, at, judged, (size) => Math.round(size < MEGABYTE ? size * MEGABYTE : size));
}

/** Returns the log limits: size and number of files. */
export function readLogging(
  reader: ExecReader,
  at: RawItem,
  parts: ReadonlyMap<PartName, RawPart>,
): ContainerSpec["logging"] {
  const place = reader.object(at, parts, "logging");
  const fallback = { maxFileSizeMb: 10, numFiles: 3 };
  if (place === undefined || place === "wrong") return fallback;
  const names = ["maxFileSize", "maxLogFileSize", "numFiles"];
  const tidy = tidied(place.fields, { numeric: new Set(names) });
  const judged = reader.judge(place, Logging, tidy, new Set(names)) ?? {};
  return {
    maxFileSizeMb: judged.maxFileSize ?? judged.maxLogFileSize ?? fallback.maxFileSizeMb,
    numFiles: judged.numFiles ?? fallback.numFiles,
  };
}

/** Drops limits of zero, which mean none, and negative ones. */
function dropZeros(reader: ExecReader, at: RawItem, tidy: Record<string, unknown>): void {
  for (const name of FIELDS) {
    const { [name]: value } = tidy;
    if (typeof value !== "number" || value > 0) continue;
    if (value < 0) reader.note("E_RANGE", at, name, `${value} is no limit; the default holds`);
    delete tidy[name];
  }
}

function raise(
  reader: ExecReader,
  at: RawItem,
  tidy: Record<string, unknown>,
  name: string,
  least: number,
  unit: string,
): void {
  const { [name]: value } = tidy;
  if (typeof value !== "number" || value >= least) return;
  reader.note("E_RANGE", at, name, `${value} ${unit} are too few to run in; taken as ${least}`);
  tidy[name] = least;
}

type Judged = { readonly [F in (typeof FIELDS)[number]]?: number | undefined };

function limitsOf(reader: ExecReader, at: RawItem, judged: Judged, toBytes: (size: number) => number): ResourceLimits {
  const { cpuMax, memMax, memHigh } = judged;
  const memMaxBytes = memMax === undefined ? undefined : toBytes(memMax);
  const wanted = memHigh === undefined ? undefined : toBytes(memHigh);
  let memHighBytes = wanted;
  if (memMaxBytes !== undefined && wanted !== undefined && wanted > memMaxBytes) {
    reader.tolerate("E_RANGE", at, "memHigh", "must not be above memMax", "taken as memMax");
    memHighBytes = memMaxBytes;
  }
  const rates = RATES.flatMap((name) => {
    const { [name]: rate } = judged;
    if (rate === undefined) return [];
    const [least, unit] = name.endsWith("iops") ? [TINY.operations, "operations"] : [TINY.bytes, "bytes"];
    if (rate < least) reader.note("E_RANGE", at, name, `${rate} ${unit} a second hardly let a program start`);
    return [[name, rate] as const];
  });
  return {
    ...defined({ cpuMax, memMaxBytes, memHighBytes }),
    ...Object.fromEntries(rates),
  };
}

function readUlimits(reader: ExecReader, at: RawItem, part: RawPart): readonly Ulimit[] {
  const known: ReadonlySet<unknown> = new Set(ulimitTypes);
  const { items } = reader.items(at, part, EXEC_LIMITS.ulimits);
  const found = items.flatMap((item) => {
    const tidy = tidied(item.fields, { numeric: new Set(["soft", "hard"]), lowerCase: new Set(["type"]) });
    if (typeof tidy["type"] === "string" && !known.has(tidy["type"])) {
      reader.note("E_UNSUPPORTED", item, "type", `there is no limit ${tidy["type"].slice(0, 64)}; ignored`);
      return [];
    }
    const judged = reader.judge(item, UlimitItem, tidy);
    return judged === undefined ? [] : [{ item, ulimit: clamped(reader, item, judged) }];
  });
  const first = new Map<string, string>();
  return sortedBy(found, ({ ulimit: { type, soft, hard } }) => JSON.stringify([type, hard, soft])).flatMap(
    ({ item, ulimit }) => {
      const other = first.get(ulimit.type);
      first.set(ulimit.type, other ?? item.path);
      if (other === undefined) return [ulimit];
      reader.conflict("E_NAME_DUPLICATE", item, "type", `${ulimit.type} is in ${other} already`);
      return [];
    },
  );
}

/** Limits the soft limit to the hard one; −1 is unlimited. */
function clamped(reader: ExecReader, at: RawItem, { type, soft, hard }: Ulimit): Ulimit {
  const isAbove = hard !== -1 && (soft === -1 || soft > hard);
  if (isAbove) reader.tolerate("E_RANGE", at, "soft", "must not be above hard", `taken as ${hard}`);
  return { type, soft: isAbove ? hard : soft, hard };
}
