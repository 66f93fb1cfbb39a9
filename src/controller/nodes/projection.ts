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

/**
 * Parses `projection[]=field` and `projection[N][M]=segment`; undefined without any. Unknown fields and dotted paths select nothing.
 * `config` and `shadow` need two or more segments.
 * @throws {InputError} `too-large` for a flat `config` or `shadow`; `invalid-query` for a malformed or oversized projection
 */
export function parseProjection(query: URLSearchParams): Projection | undefined {
  const flat: string[] = [];
  const nested = new Map<string, { at: number; segment: string }[]>();
  for (const [key, value] of query) {
    if (key !== "projection" && !key.startsWith("projection[")) continue;
    const parts = KEY.exec(key);
    if (parts === null) throw invalid(`${key.slice(0, 64)}: use projection[]=<field> or projection[N][M]=<segment>`);
    if (value.length > MAX_SEGMENT_LENGTH) throw invalid(`${key}: longer than ${MAX_SEGMENT_LENGTH} characters`);
    const [, entry, position] = parts;
    if (position === undefined) {
      flat.push(value);
    } else {
      const segments = nested.get(entry ?? "") ?? [];
      segments.push({ at: position === "" ? segments.length : Number(position), segment: value });
      nested.set(entry ?? "", segments);
    }
    if (flat.length + nested.size > MAX_ENTRIES) throw invalid(`projection: more than ${MAX_ENTRIES} entries`);
  }
  if (flat.length === 0 && nested.size === 0) return undefined;
  return branchesOf(flat, [...nested.values()]);
}

function branchesOf(flat: readonly string[], nested: readonly { at: number; segment: string }[][]): Projection {
  const fields = new Map<string, MutableBranch>();
  for (const field of flat) {
    if (LARGE.has(field)) {
      throw new InputError(
        "too-large",
        `projection[]=${field} is too large; ask for parts: projection[N][M]=<segment>`,
      );
    }
    const [first = ""] = field.split(".", 1);
    if (REQUESTABLE.has(field)) open(fields, field).isWhole = true;
    else if (LARGE.has(first)) open(fields, first);
  }
  for (const entry of nested) {
    if (entry.length > MAX_SEGMENTS) throw invalid(`projection: more than ${MAX_SEGMENTS} segments in one entry`);
    const [field = "", ...path] = entry.sort((a, b) => a.at - b.at).map(({ segment }) => segment);
    if (!REQUESTABLE.has(field)) continue;
    let branch = open(fields, field);
    for (const segment of path) branch = open(branch.members, segment);
    if (path.length > 0 || !LARGE.has(field)) branch.isWhole = true;
  }
  return fields;
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
