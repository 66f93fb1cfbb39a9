import { InputError } from "../../errors.ts";
import { isField, publicField, type FieldName } from "./public-node.ts";
import type { ListedNode, Part } from "./records.ts";

/** Requested fields of a node, each with the paths below it; undefined means everything but `config` and `shadow`. */
export type Projection = ReadonlyMap<string, Branch>;

/** A requested value: the whole value, or only its named members. */
export type Branch = { readonly isWhole: boolean; readonly members: ReadonlyMap<string, Branch> };

interface MutableBranch {
  isWhole: boolean;
  readonly members: Map<string, MutableBranch>;
}

const BASE_SET = ["uid", "state", "type", "tags", "tgTags", "tgrn", "keys"] as const satisfies readonly FieldName[];
const PARTS = ["config", "heartbeat", "inheritedTags", "location", "shadow"] as const satisfies readonly Part[];
/** Parts that are shown without a projection. */
const SMALL: ReadonlySet<Part> = new Set(["details", "heartbeat", "inheritedTags", "location"]);
/** Fields that are shown without the details of a node. */
const WITHOUT_DETAILS: ReadonlySet<string> = new Set([
  "keys",
  "name",
  "fqdn",
  "online",
  "inheritedTags",
  "device",
  "config",
]);
const LARGE: ReadonlySet<string> = new Set(["config", "shadow"]);
const REQUESTABLE: ReadonlySet<string> = new Set([
  "keys",
  "name",
  "fqdn",
  "online",
  "cluster",
  "inheritedTags",
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

/** Returns the parts of nodes that a list with this projection shows, and those that its filter of tags needs. */
export function partsOf(projection: Projection | undefined, isTagged: boolean): ReadonlySet<Part> {
  if (projection === undefined) return SMALL;
  const parts = new Set<Part>(PARTS.filter((part) => projection.has(part) || (isTagged && part === "inheritedTags")));
  if ([...projection.keys()].some((name) => !WITHOUT_DETAILS.has(name))) parts.add("details");
  return parts;
}

/** Returns the base fields of a node and the projected ones; missing fields are omitted. Paths below `keys` leave out the other keys. */
export function projectNode(record: ListedNode, projection: Projection): Record<string, unknown> {
  const shown: Record<string, unknown> = {};
  for (const field of BASE_SET) if (!projection.has(field)) shown[field] = publicField(record, field);
  for (const [name, branch] of projection) {
    const value = isField(name) ? publicField(record, name) : undefined;
    const part = value === undefined || branch.isWhole ? value : membersOf(value, branch.members);
    if (part !== undefined) shown[name] = part;
  }
  return shown;
}

/** Returns the named members of an object; undefined for any other value. */
function membersOf(value: unknown, branches: ReadonlyMap<string, Branch>): Record<string, unknown> | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const own = new Map<string, unknown>(Object.entries(value));
  return Object.fromEntries(
    [...branches].flatMap(([name, branch]): [string, unknown][] => {
      if (!own.has(name)) return [];
      const inner = own.get(name);
      const part = branch.isWhole ? inner : membersOf(inner, branch.members);
      return part === undefined ? [] : [[name, part]];
    }),
  );
}

const invalid = (line: string): InputError => new InputError("invalid-query", line);
