import { HostError } from "../../../errors.ts";
import { asObject, listOf } from "../../../lib/formats/json-shape.ts";
import type { Exec } from "../../process/exec.ts";

const BOUNDS = { deadlineMs: 10_000, maxOutputBytes: 64 * 1024 * 1024 };
const ABSENT = /No such file or directory/u;

/** Reads the hit count of each named translation. @throws {HostError} `tool-missing`, `exec-failed`. */
export type ReadNatCounters = (signal: AbortSignal) => Promise<ReadonlyMap<string, number>>;

/** Reads the counters of the table `inet holdfast` by nft(8); none if the table does not exist. */
export function natCounters(exec: Exec): ReadNatCounters {
  return async (signal) => {
    const listed = await exec.run("nft", ["-j", "list", "table", "inet", "holdfast"], { signal, ...BOUNDS });
    if (listed.exitCode === 0 && !listed.truncated) return parseNatCounters(listed.stdout);
    if (ABSENT.test(listed.stderr)) return new Map();
    const reason = listed.truncated
      ? "its list is too long"
      : (listed.stderr.trim().split("\n")[0] ?? "").slice(0, 512);
    throw new HostError("exec-failed", `nft: ${reason}`, { details: { tool: "nft" } });
  };
}

/**
 * Returns the first packets of flows by comment, from `nft -j list table` (libnftables-json(5)): of map and set elements, and of
 * rules. Counters of one comment are added within a map or chain. Among several maps or chains the highest counts, because they
 * see the same flows.
 */
export function parseNatCounters(text: string): ReadonlyMap<string, number> {
  const highest = new Map<string, number>();
  const inChains = new Map<string, Map<string, number>>();
  for (const object of listOf(field(parse(text), "nftables"))) {
    for (const kind of ["map", "set"]) {
      const counts = new Map<string, number>();
      for (const entry of listOf(field(field(object, kind), "elem"))) {
        const element = field(Array.isArray(entry) ? entry[0] : entry, "elem");
        count(counts, field(element, "comment"), field(field(element, "counter"), "packets"));
      }
      raise(highest, counts);
    }
    const rule = field(object, "rule");
    const chain = field(rule, "chain");
    if (typeof chain !== "string") continue;
    const counts = inChains.get(chain) ?? new Map<string, number>();
    inChains.set(chain, counts);
    for (const statement of listOf(field(rule, "expr"))) {
      count(counts, field(rule, "comment"), field(field(statement, "counter"), "packets"));
    }
  }
  for (const counts of inChains.values()) raise(highest, counts);
  return highest;
}

function count(counts: Map<string, number>, name: unknown, packets: unknown): void {
  if (typeof name !== "string" || typeof packets !== "number" || !Number.isSafeInteger(packets)) return;
  counts.set(name, (counts.get(name) ?? 0) + packets);
}

function raise(highest: Map<string, number>, counts: ReadonlyMap<string, number>): void {
  for (const [name, packets] of counts) highest.set(name, Math.max(highest.get(name) ?? 0, packets));
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new HostError("exec-failed", "nft: the listing is not JSON", { cause: error, details: { tool: "nft" } });
  }
}

function field(value: unknown, name: string): unknown {
  return asObject(value)?.[name];
}
