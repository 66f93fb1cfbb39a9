import { natTracker } from "../../../protocol/sections/network/nat-tracker.ts";
import type { Nat } from "../../../protocol/sections/network/config.ts";
import { byContext, nameIn, type Chain, type NamedSet } from "./firewall-text.ts";
import type { Context } from "./context.ts";

/** From so many on, translations of one block have a map of their own: kernels are slow at joined keys that share a part. */
const MANY = 8;
/** From so many blocks of one length on, their networks are a hash of their own: nft and the kernel make it in two thirds of the time. */
const MANY_ALIKE = 64;
const ANY = "0.0.0.0/0";

interface Entry {
  readonly source: string;
  readonly dest: string;
  /** What the address becomes; absent: that of the interface. */
  readonly to?: string;
  /** What its hits are found by. */
  readonly tracker: string;
}

export interface CompiledNats {
  readonly sets: readonly NamedSet[];
  readonly chains: readonly Chain[];
}

/** What was made of a list of translations before: thousands of them take their time, and a pass asks several times. */
export type NatMemo = WeakMap<readonly Nat[], { readonly table: number; readonly compiled: CompiledNats }>;

/**
 * The translations of all contexts: of destinations when a packet comes in, of sources when it leaves. Of those that overlap the first in
 * the document is taken; the others are in maps of their own that are asked in turn. Each counts its flows.
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

/** The translations of one context, which are the same as long as its list and its table are. */
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

/** A line for each map or set, those of earlier entries first. */
function linesOf(entries: readonly Entry[], what: "dnat" | "snat", name: string, sets: NamedSet[]): readonly string[] {
  const lines: string[] = [];
  // The packet that leaves has its new destination already; the old one is what the document means.
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
        // A map whose keys are all addresses has none: the line itself says it.
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

/** What entries are looked up by. */
interface Keys {
  readonly type: string;
  readonly isInterval: boolean;
  readonly expression: string;
  readonly keyOf: (entry: Entry) => string;
}

/** By the blocks of a field; with a length by their networks, which all have it. */
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

/** Entries that do not overlap: those of a length that many have, each length by itself, and the others. */
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

/** A tracker has no sign in it that nft would take for anything. */
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

/** Entries whose matches do not overlap, each group of them later than what it overlaps with. */
function groupsOf(entries: readonly Entry[]): readonly (readonly Entry[])[] {
  // Seldom does anything overlap, and comparing each with each is slow.
  if (areApart(entries, "dest") || areApart(entries, "source")) return [entries];
  // First and last source, first and last destination, group. With thousands of entries this is where the time goes.
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

/** Whether no two blocks of the field have an address in common. */
function areApart(entries: readonly Entry[], field: "source" | "dest"): boolean {
  // A number for each, the first address before the size: numbers are sorted without asking, where pairs are compared one by one.
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

/** More than there are sizes of a block. */
const SIZES = 64;

/** The first and the last address of an IPv4 block, as numbers. */
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
