import { isDeepStrictEqual } from "node:util";
import { EXEC_LIMITS, partFields, type PartName } from "../../protocol/sections/exec/fields.ts";
import { ExecReader, isUnset, partName, partsOf } from "../../protocol/sections/exec/reader.ts";
import { isObject } from "../../protocol/sections/common/forms.ts";
import type { ConfigIssue } from "../../protocol/sections/common/issue.ts";
import { execOf } from "../../protocol/sections/exec/read.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import { withoutUnset } from "../config/unset.ts";

/** The `exec` section of a node, or an empty one. */
export type ExecBody = JsonObject;

const PART_NAMES = Object.keys(partFields) as PartName[];
/** Fields that only the control plane writes. */
const READ_ONLY: ReadonlySet<string> = new Set(["nodeUid", "namespace", "version"]);

/** Returns the containers of a section, record and parts together. */
export const containersOf = (section: ExecBody): readonly JsonObject[] => objects(section["commands"]);

/** Returns the container whose trigger event has this name. */
export function containerNamed(section: ExecBody, name: string): JsonObject | undefined {
  return containersOf(section).find((one) => one["name"] === name);
}

/** Returns the stop timeout of a container in seconds; 30 if unset or invalid. */
export function stopSecondsOf(container: JsonObject): number {
  const seconds = Number(container["stopTime"] ?? 30);
  return Number.isFinite(seconds) && seconds > 0 ? seconds : 30;
}

export const volumesOf = (section: ExecBody): readonly JsonObject[] => objects(section["volumes"]);

/** Finds a container by its id, ignoring case (RFC 9562 §4). */
export function containerOf(section: ExecBody, id: string): JsonObject | undefined {
  return containersOf(section).find((one) => sameId(one["id"], id));
}

/** Returns a part of a container; an empty list or object if it is unset. */
export function partOf(container: JsonObject, name: PartName): unknown {
  const value = partsOf(container).get(name)?.value;
  if (!isUnset(value)) return value;
  return LISTS.has(name) ? [] : {};
}

/** Returns the record of a container, without its parts. */
export function recordOf(container: JsonObject): JsonObject {
  const isRecord = (key: string): boolean => partName(key) === undefined && key.toLowerCase() !== "config";
  return Object.fromEntries(Object.entries(container).filter(([key]) => isRecord(key)));
}

/** Returns the parts of a container under their API names. */
export function partsBody(container: JsonObject): JsonObject {
  return Object.fromEntries([...partsOf(container)].map(([name, { value }]) => [name, value]));
}

/** Returns a record from a client with its parts beside the fields, without parts that are not set, read-only fields and an empty id. */
export function tidyRecord(raw: unknown): unknown {
  if (!isObject(raw)) return raw;
  const isKept = ([key, value]: readonly [string, unknown]): boolean =>
    !READ_ONLY.has(key) && !(key === "id" && (value === null || value === ""));
  return { ...Object.fromEntries(Object.entries(recordOf(raw)).filter(isKept)), ...setParts(raw) };
}

/** Returns the parts from a client, without those that are not set and derived values. */
export const tidyParts = (raw: unknown): unknown => (isObject(raw) ? setParts(raw) : raw);

/** Returns a container as nodes read it: without fields that are null or empty, except values of variables, which may be empty. */
export function withoutUnsetFields(container: unknown): unknown {
  if (!isObject(container)) return container;
  const { variables, ...rest } = container;
  return Object.assign({}, withoutUnset(rest), variables === undefined ? {} : { variables });
}

function setParts(raw: JsonObject): JsonObject {
  const parts = [...partsOf(raw)].filter(([, { value }]) => !isUnset(value));
  return Object.fromEntries(parts.map(([name, { value }]) => [name, name === "mounts" ? ownMounts(value) : value]));
}

/** Returns the section with a container added or replaced by id; `version` increases with each change of it. */
export function withContainer(section: ExecBody, container: JsonObject): ExecBody {
  const stored = containersOf(section);
  const before = stored.find((one) => sameId(one["id"], container["id"]));
  const isSame = before !== undefined && isDeepStrictEqual({ ...container, version: before["version"] }, before);
  const counted = typeof before?.["version"] === "number" ? before["version"] : -1;
  const next = { ...container, version: isSame ? counted : counted + 1 };
  const commands = before === undefined ? [...stored, next] : stored.map((one) => (one === before ? next : one));
  return { ...section, commands };
}

/** Returns the section without a container. */
export function withoutContainer(section: ExecBody, id: string): ExecBody {
  return { ...section, commands: containersOf(section).filter((one) => !sameId(one["id"], id)) };
}

/** Returns the definitions of the volumes that a container mounts. */
export function mountedVolumes(section: ExecBody, container: JsonObject): readonly JsonObject[] {
  const sources = new Set(mountsOf(container).flatMap((mount) => (isVolume(mount) ? [mount["source"]] : [])));
  return volumesOf(section).filter(({ name }) => sources.has(name));
}

/** Returns the mounts of a container; each volume mount has an `encrypted` flag. */
export function shownMounts(section: ExecBody, container: JsonObject): readonly JsonObject[] {
  const encrypted = new Map(volumesOf(section).map((volume) => [volume["name"], volume["encrypted"] === true]));
  return mountsOf(container).map((mount) => {
    const flag = isVolume(mount) ? encrypted.get(mount["source"]) : undefined;
    return flag === undefined ? mount : Object.assign({}, mount, { encrypted: flag });
  });
}

/** Reports whether a list is below its limit. */
export const hasRoom = (section: ExecBody, list: "commands" | "volumes"): boolean =>
  objects(section[list]).length < EXEC_LIMITS[list];

/** Returns one line for each contradiction within a container and each conflict with another one. */
export function judgeContainer(section: ExecBody, container: JsonObject): readonly string[] {
  // With an id that sorts last, the container is reported as the colliding one.
  const others = containersOf(section).filter((one) => !sameId(one["id"], container["id"]));
  const found = conflictsIn({ ...section, commands: [...others, { ...container, id: LAST_ID }] }).filter(
    ({ id }) => id === LAST_ID,
  );
  const prefix = `exec.commands.${others.length}.`;
  return found.map(({ message, other }) => {
    const line = message.slice(prefix.length);
    return other === undefined || line.includes(other) ? line : `${line}: ${other}`;
  });
}

/** Returns the first conflict of a volume with the others. */
export function judgeVolume(section: ExecBody, volume: JsonObject): ConfigIssue | undefined {
  const volumes = [...volumesOf(section), volume];
  const path = `exec.volumes.${volumes.length - 1}.`;
  return conflictsIn({ volumes }).find((issue) => issue.path.startsWith(path) || issue.other === volume["name"]);
}

/** Returns the contradictions within the limits of all containers. */
export function judgeLimits(limits: JsonObject): readonly string[] {
  return conflictsIn({ limits }).map(({ message }) => message.slice("exec.limits.".length));
}

/** Returns the security-relevant settings of a container for the audit trail. */
export function auditNote(container: JsonObject): string {
  const capabilities = partOf(container, "capabilities");
  const added: readonly unknown[] =
    isObject(capabilities) && Array.isArray(capabilities["addCaps"]) ? capabilities["addCaps"] : [];
  const remarks = [
    ...(container["privileged"] === true ? ["privileged"] : []),
    ...(added.length === 0 ? [] : [`with ${added.map(String).join(", ")}`]),
    ...(container["saveOutput"] === true ? ["output saved"] : []),
  ];
  return remarks.length === 0 ? "" : ` (${remarks.join("; ")})`;
}

function conflictsIn(section: ExecBody): readonly ConfigIssue[] {
  const reader = new ExecReader();
  execOf(reader, section);
  return reader.conflicts;
}

function ownMounts(value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  return value.map((mount: unknown) => {
    if (!isObject(mount)) return mount;
    const { encrypted: _mirrored, ...own } = mount;
    return own;
  });
}

const objects = (list: unknown): readonly JsonObject[] => (Array.isArray(list) ? list.filter(isObject) : []);
const mountsOf = (container: JsonObject): readonly JsonObject[] => objects(partOf(container, "mounts"));
const isVolume = ({ mountType }: JsonObject): boolean => String(mountType).toLowerCase() === "volume";
const sameId = (a: unknown, b: unknown): boolean =>
  typeof a === "string" && typeof b === "string" && a.toLowerCase() === b.toLowerCase();
const LAST_ID = "z".repeat(36);
const LISTS: ReadonlySet<string> = new Set(
  PART_NAMES.filter((name) => ["interfaces", "mounts", "portMappings", "variables", "virtualNetworks"].includes(name)),
);
