import { InputError } from "../../errors.ts";
import type { PublicNode } from "./public-node.ts";

/** Requested fields of a node, each with the paths below it; undefined means everything but `config` and `shadow`. */
export type Projection = ReadonlyMap<string, Branch>;

/** A requested value: the whole value, or only its named members. */
export type Branch = { readonly isWhole: boolean; readonly members: ReadonlyMap<string, Branch> };

interface MutableBranch {
  isWhole: boolean;
  readonly members: Map<string, MutableBranch>;
}

const BASE_SET = ["uid", "state", "type", "tags", "tgTags", "tgrn", "keys"] as const;
const LARGE: ReadonlySet<string> = new Set(["config", "shadow"]);
const REQUESTABLE: ReadonlySet<string> = new Set([
  "name",
  "fqdn",
  "online",
  "cluster",
  "lastip",
  "lock",
  "last_connect",
  "created_at",
  "device",
  "location",
  "heartbeat",
  "lifecycleState",
  "disconnectTime",
  "orderID",
  ...LARGE,
]);
const MAX_ENTRIES = 128;
const MAX_SEGMENTS = 16;
const MAX_SEGMENT_LENGTH = 256;
const KEY = /^projection(?:\[(\d{0,4})\](?:\[(\d{0,4})\])?)?$/;

/** A requested path; one without an index follows the entries before it. */
interface Entry {
  readonly index: number;
  readonly isIndexed: boolean;
  /** Undefined for a flat field. */
  readonly segments: { readonly at: number; readonly segment: string }[] | undefined;
  readonly field: string;
}

/**
 * Parses `projection[]=field`, `projection[N]=field` and `projection[N][M]=segment`, in the order of N, then M; undefined without any.
 * Unknown fields and dotted paths select nothing. Whole `config` and `shadow` are only given to `projection[N]` on a limited list.
 * @throws {InputError} `invalid-query` for a malformed or oversized projection, or for a flat `config` or `shadow`
 */
export function parseProjection(query: URLSearchParams, isLimited: boolean): Projection | undefined {
  const entries: Entry[] = [];
  const nested = new Map<string, NonNullable<Entry["segments"]>>();
  for (const [key, value] of query) {
    if (key !== "projection" && !key.startsWith("projection[")) continue;
    const parts = KEY.exec(key);
    if (parts === null) {
      throw invalid(`projection: ${key.slice(0, 64)}: use projection[N]=<field> or projection[N][M]=<segment>`);
    }
    if (value.length > MAX_SEGMENT_LENGTH) throw invalid(`projection: longer than ${MAX_SEGMENT_LENGTH} characters`);
    const [, number = "", position] = parts;
    const index = number === "" ? entries.length : Number(number);
    if (position === undefined) {
      entries.push({ index, isIndexed: number !== "", segments: undefined, field: value });
    } else {
      let segments = nested.get(number);
      if (segments === undefined) {
        segments = [];
        nested.set(number, segments);
        entries.push({ index, isIndexed: true, segments, field: "" });
      }
      segments.push({ at: position === "" ? segments.length : Number(position), segment: value });
      if (segments.length > MAX_SEGMENTS) throw invalid(`projection: more than ${MAX_SEGMENTS} segments in one entry`);
    }
    if (entries.length > MAX_ENTRIES) throw invalid(`projection: more than ${MAX_ENTRIES} entries`);
  }
  if (entries.length === 0) return undefined;
  const fields = new Map<string, MutableBranch>();
  for (const entry of entries.sort((a, b) => a.index - b.index)) add(fields, entry, isLimited);
  return fields;
}

function add(fields: Map<string, MutableBranch>, { segments, field, isIndexed }: Entry, isLimited: boolean): void {
  if (segments === undefined) {
    const [first = ""] = field.split(".", 1);
    if (LARGE.has(field) && !(isIndexed && isLimited)) {
      throw invalid(`projection: ${field} is too large; ask for its parts by projection[N][M]=<segment>`);
    }
    if (REQUESTABLE.has(field)) open(fields, field).isWhole = true;
    else if (LARGE.has(first)) open(fields, first);
    return;
  }
  const [name = "", ...path] = segments.sort((a, b) => a.at - b.at).map(({ segment }) => segment);
  if (!REQUESTABLE.has(name)) return;
  let branch = open(fields, name);
  for (const segment of path) branch = open(branch.members, segment);
  if (path.length > 0 || !LARGE.has(name)) branch.isWhole = true;
}

function open(branches: Map<string, MutableBranch>, name: string): MutableBranch {
  const known = branches.get(name);
  if (known !== undefined) return known;
  const branch: MutableBranch = { isWhole: false, members: new Map() };
  branches.set(name, branch);
  return branch;
}

/** Returns the base fields of a node and the projected ones; missing fields are omitted. */
export function projectNode(node: PublicNode, projection: Projection): Record<string, unknown> {
  const base = BASE_SET.map((field): [string, unknown] => [field, node[field]]);
  return Object.fromEntries([...base, ...membersOf(node, projection)]);
}

function membersOf(value: object, branches: ReadonlyMap<string, Branch>): [string, unknown][] {
  const own = new Map<string, unknown>(Object.entries(value));
  return [...branches]
    .filter(([name]) => own.has(name))
    .flatMap(([name, branch]): [string, unknown][] => {
      const inner = own.get(name);
      if (branch.isWhole) return [[name, inner]];
      if (typeof inner !== "object" || inner === null || Array.isArray(inner)) return [];
      return [[name, Object.fromEntries(membersOf(inner, branch.members))]];
    });
}

const invalid = (line: string): InputError => new InputError("invalid-query", line);
