import { natTracker } from "../../../protocol/sections/network/nat-tracker.ts";
import type { Nat } from "../../../protocol/sections/network/config.ts";
import { byContext, nameIn, type Chain, type NamedSet } from "./firewall-text.ts";
import type { Context } from "./contexts.ts";

/** From this number on, translations of one block get their own map: kernels are slow at concatenated keys that share a part. */
const MANY = 8;
/** From this number on, blocks of one prefix length get a hash set: nft and the kernel load it in two thirds of the time. */
const MANY_ALIKE = 64;
const ANY = "0.0.0.0/0";

interface Entry {
  readonly source: string;
  readonly dest: string;
  /** Translated address; absent for masquerading. */
  readonly to?: string;
  /** Key under which hits are counted. */
  readonly tracker: string;
}

export interface CompiledNats {
  readonly sets: readonly NamedSet[];
  readonly chains: readonly Chain[];
}

/** Cache of compiled translations: thousands take time, and a pass compiles several times. */
export type NatMemo = WeakMap<readonly Nat[], { readonly table: number; readonly compiled: CompiledNats }>;

/**
 * Compiles the translations of all contexts: of destinations on input, of sources on output. Of overlapping ones the first in the document
 * applies; the others are in maps that are consulted later. Each counts its flows.
 */
export function compileNats(contexts: readonly Context[], memo: NatMemo = new WeakMap()): CompiledNats {
  const own = contexts.filter(({ routing }) => routing.nats.length > 0).map((context) => natsOf(context, memo));
  const sets = own.flatMap((one) => one.sets);
  const chains = own.flatMap((one) => one.chains);
  const used = new Set(chains.filter(({ lines }) => lines.length > 0).map(({ name }) => name));
  const chainOf =
    (what: string) =>
    (context: Context): string | undefined =>
      used.has(nameIn(context, what)) ? nameIn(context, what) : undefined;
  const base = [
    {
      name: "to_dest",
      hook: "nat hook prerouting priority dstnat",
      lines: byContext("iifname", contexts, "jump", chainOf("dnat")),
    },
    {
      name: "to_source",
      hook: "nat hook postrouting priority srcnat",
      lines: byContext("oifname", contexts, "jump", chainOf("snat")),
    },
  ];
  return { sets, chains: [...chains, ...base] };
}

/** Compiles the translations of one context, cached by list and table. */
function natsOf(context: Context, memo: NatMemo): CompiledNats {
  const { table, vrf, routing } = context;
  const { nats } = routing;
  const known = memo.get(nats);
  if (known?.table === table) return known.compiled;
  const entry = (nat: Nat, to: string | undefined, at: number): Entry => entryOf(nat, to, natTracker(nat, vrf, at));
  const dnat = nats.flatMap((nat, at) => (nat.toDest === undefined ? [] : [entry(nat, nat.toDest, at)]));
  const snat = nats.flatMap((nat, at) =>
    nat.toSource === undefined && !nat.masquerade ? [] : [entry(nat, nat.toSource, at)],
  );
  const sets: NamedSet[] = [];
  const compiled = {
    sets,
    chains: [
      { name: nameIn(context, "dnat"), lines: linesOf(dnat, "dnat", nameIn(context, "dnat"), sets) },
      { name: nameIn(context, "snat"), lines: linesOf(snat, "snat", nameIn(context, "snat"), sets) },
    ],
  };
  memo.set(nats, { table, compiled });
  return compiled;
}

function entryOf({ source = ANY, dest = ANY }: Nat, to: string | undefined, tracker: string): Entry {
  return to === undefined ? { source, dest, tracker } : { source, dest, to, tracker };
}

/** Adds a map or set for each group of entries, and returns its lines in the order of the entries. */
function linesOf(entries: readonly Entry[], what: "dnat" | "snat", name: string, sets: NamedSet[]): readonly string[] {
  const lines: string[] = [];
  // A leaving packet has its translated destination; the document means the original one.
  const dest = what === "dnat" ? "ip daddr" : "ct original ip daddr";
  const add = (keys: Keys, match: string, group: readonly Entry[]): void => {
    const { type, isInterval, expression, keyOf } = keys;
    const element = (one: Entry): string => `${keyOf(one)} ${comment(one)}`;
    for (const isMasquerade of [false, true]) {
      const some = group.filter(({ to }) => (to === undefined) === isMasquerade);
      if (some.length === 0) continue;
      const set = `${name}_${sets.length}`;
      if (isMasquerade) {
        sets.push({ kind: "set", name: set, type, isInterval, elements: some.map(element) });
        lines.push(`${match}${expression} @${set} masquerade`);
      } else {
        const elements = some.map((one) => `${element(one)} : ${one.to}`);
        sets.push({ kind: "map", name: set, type: `${type} : interval ipv4_addr`, isInterval, elements });
        lines.push(`${match}${what} ip prefix to ${expression} map @${set}`);
      }
    }
  };
  for (const group of groupsOf(entries)) {
    const rest = new Set(group);
    for (const [field, other] of [
      ["source", "dest"],
      ["dest", "source"],
    ] as const) {
      for (const [block, same] of grouped(rest, field)) {
        const isAny = block === ANY;
        if (!isAny && same.length < MANY) continue;
        // Entries that match any address on both sides need no map; each has its own line.
        const whole = isAny ? same.filter((entry) => entry[other] !== ANY) : same;
        if (whole.length === 0) continue;
        for (const entry of whole) rest.delete(entry);
        const expressions = { source: "ip saddr", dest };
        const match = isAny ? "" : `${expressions[field]} ${block} `;
        for (const { length, alike } of byLength(whole, other)) {
          add(keysOf(expressions[other], other, length), match, alike);
        }
      }
    }
    const all = [...rest].filter((entry) => entry.source === ANY && entry.dest === ANY);
    for (const one of all) {
      const verdict = one.to === undefined ? "masquerade" : `${what} ip to ${one.to.replace(/\/32$/, "")}`;
      lines.push(`counter ${verdict} ${comment(one)}`);
    }
    const joined = [...rest].filter((entry) => !all.includes(entry));
    const keyOf = (entry: Entry): string => `${entry.source} . ${entry.dest}`;
    const expression = `ip saddr . ${dest}`;
    add({ type: "ipv4_addr . ipv4_addr", isInterval: true, expression, keyOf }, "", joined);
  }
  return lines;
}

/** Key of a map or set. */
interface Keys {
  readonly type: string;
  readonly isInterval: boolean;
  readonly expression: string;
  readonly keyOf: (entry: Entry) => string;
}

/** Builds keys of a field: blocks, or networks if all have the same prefix length. */
function keysOf(expression: string, field: "source" | "dest", length: number | undefined): Keys {
  const type = "ipv4_addr";
  if (length === undefined) return { type, isInterval: true, expression, keyOf: (entry) => entry[field] };
  return {
    type,
    isInterval: false,
    expression: length === 32 ? expression : `${expression} and ${maskOf(length)}`,
    keyOf: (entry) => networkOf(entry[field]),
  };
}

/** Groups entries without overlaps by prefix length, if many share one, and puts the others in one group. */
function byLength(
  entries: readonly Entry[],
  field: "source" | "dest",
): readonly { readonly length?: number; readonly alike: readonly Entry[] }[] {
  const lengths = new Map<number, Entry[]>();
  for (const entry of entries) {
    const length = lengthOf(entry[field]);
    const alike = lengths.get(length);
    if (alike === undefined) lengths.set(length, [entry]);
    else alike.push(entry);
  }
  const many = [...lengths].filter(([, alike]) => alike.length >= MANY_ALIKE);
  const rest = entries.filter((entry) => (lengths.get(lengthOf(entry[field]))?.length ?? 0) < MANY_ALIKE);
  return [...many.map(([length, alike]) => ({ length, alike })), ...(rest.length === 0 ? [] : [{ alike: rest }])];
}

function networkOf(block: string): string {
  const slash = block.indexOf("/");
  return slash < 0 ? block : block.slice(0, slash);
}

function lengthOf(block: string): number {
  const slash = block.indexOf("/");
  return slash < 0 ? 32 : Number(block.slice(slash + 1));
}

function maskOf(length: number): string {
  const mask = length === 0 ? 0 : -1 << (32 - length);
  return [24, 16, 8, 0].map((shift) => (mask >>> shift) & 255).join(".");
}

/** Trackers contain no characters that are special to nft. */
const comment = ({ tracker }: Entry): string => `comment "${tracker}"`;

function grouped(entries: Iterable<Entry>, field: "source" | "dest"): ReadonlyMap<string, readonly Entry[]> {
  const groups = new Map<string, Entry[]>();
  for (const entry of entries) {
    const group = groups.get(entry[field]);
    if (group === undefined) groups.set(entry[field], [entry]);
    else group.push(entry);
  }
  return groups;
}

/** Groups entries so that none overlaps within a group, and each comes after those it overlaps with. */
function groupsOf(entries: readonly Entry[]): readonly (readonly Entry[])[] {
  // Overlaps are rare, and comparing all pairs is slow.
  if (areApart(entries, "dest") || areApart(entries, "source")) return [entries];
  // First and last source, first and last destination, group. Fast code: with thousands of entries the time is spent here.
  const seen = new Float64Array(entries.length * FIELDS);
  const groups: Entry[][] = [];
  for (const [index, entry] of entries.entries()) {
    const [from, to] = rangeOf(entry.source);
    const [low, high] = rangeOf(entry.dest);
    const end = index * FIELDS;
    let group = 0;
    for (let at = 0; at < end; at += FIELDS) {
      const isApart =
        (seen[at + 3] ?? 0) < low || high < (seen[at + 2] ?? 0) || (seen[at + 1] ?? 0) < from || to < (seen[at] ?? 0);
      if (!isApart && (seen[at + 4] ?? 0) >= group) group = (seen[at + 4] ?? 0) + 1;
    }
    seen.set([from, to, low, high, group], end);
    (groups[group] ??= []).push(entry);
  }
  return groups;
}

const FIELDS = 5;

/** Reports whether no two blocks of the field overlap. */
function areApart(entries: readonly Entry[], field: "source" | "dest"): boolean {
  // One number per block, first address before size: numbers sort without a comparison callback.
  const blocks = new Float64Array(entries.length);
  for (const [index, entry] of entries.entries()) {
    blocks[index] = firstOf(entry[field]) * SIZES + 32 - lengthOf(entry[field]);
  }
  let last = -1;
  for (const block of blocks.sort()) {
    const first = Math.floor(block / SIZES);
    if (first <= last) return false;
    last = first + 2 ** (block % SIZES) - 1;
  }
  return true;
}

/** More than the number of prefix lengths. */
const SIZES = 64;

/** Returns the first and last address of an IPv4 block as numbers. */
function rangeOf(block: string): readonly [number, number] {
  const first = firstOf(block);
  return [first, first + 2 ** (32 - lengthOf(block)) - 1];
}

const [DOT, SLASH, ZERO] = [46, 47, 48];

function firstOf(block: string): number {
  let value = 0;
  let byte = 0;
  for (let at = 0; at < block.length; at += 1) {
    const code = block.charCodeAt(at);
    if (code === SLASH) break;
    if (code === DOT) {
      value = value * 256 + byte;
      byte = 0;
    } else byte = byte * 10 + code - ZERO;
  }
  return value * 256 + byte;
}
