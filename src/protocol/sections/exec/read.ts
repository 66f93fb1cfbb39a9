import { z } from "zod";
import { shellWords } from "../../../lib/text/shell-words.ts";
import { triggerEvents } from "../../values/trigger-events.ts";
import type { JsonObject } from "../../values/values.ts";
import type { ContainerSpec, ExecConfig, ExecType, VolumeSpec } from "./config.ts";
import { Claims, readExposure } from "./exposure.ts";
import { EXEC_LIMITS, NOT_WORDS, recordFields, VolumeItem } from "./fields.ts";
import { readLimits, readLogging, readNodeLimits } from "./limits.ts";
import { readCapabilities, readHealthCheck, readMounts, readVariables, readVrf } from "./parts.ts";
import { ExecReader, isUnset, partsOf, sortedBy, tidied } from "./reader.ts";
import { readSchedule } from "./schedule.ts";
import { isObject, isPresent, type RawItem } from "../common/forms.ts";
import type { ConfigIssue } from "../common/issue.ts";
import type { Place } from "../common/section-reader.ts";

export interface ReadExec {
  readonly config: ExecConfig;
  /** Items that are not applied. */
  readonly rejected: readonly ConfigIssue[];
  /** Values that are applied otherwise than written, and warnings. */
  readonly notices: readonly ConfigIssue[];
  /** The whole section is invalid: the previous state stays. */
  readonly isUnusable?: true;
}

const SECTION: Place = { path: "exec", id: "" };
const NOTHING: ExecConfig = { containers: [], volumes: [], limits: {} };
const ContainerRecord = z.object(recordFields);
const NUMERIC: ReadonlySet<string> = new Set(["stopTime"]);
/** Optional fields: if one is invalid, it is dropped and the container runs, because its absence grants nothing. */
const SOFT: ReadonlySet<string> = new Set([
  "description",
  "hostname",
  "privileged",
  "useInit",
  "stopTime",
  "requireConnectivity",
  "saveOutput",
  "dns",
]);
const TYPES: ReadonlyMap<string, ExecType> = new Map([
  ["service", "service"],
  ["recurring", "recurring"],
  ["ondemand", "onDemand"],
]);
const ID = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;
const DEFAULT_STOP_SECONDS = 30;

/**
 * Brings the section `exec` to one form, item by item: what cannot be used is rejected and the rest goes on. The order of what is
 * written does not matter, but for variables of one name. Pure, and never throws.
 */
export function readExec(raw: unknown): ReadExec {
  const reader = new ExecReader();
  const { config, isUnusable } = execOf(reader, raw);
  const { rejected, notices } = reader;
  return { config, rejected, notices, ...(isUnusable ? { isUnusable } : {}) };
}

/** Reads the section into a reader, which then has what the API refuses too. */
export function execOf(
  reader: ExecReader,
  raw: unknown,
): { readonly config: ExecConfig; readonly isUnusable: boolean } {
  if (!isPresent(raw)) return { config: NOTHING, isUnusable: false };
  if (!isObject(raw)) {
    reader.reject("E_ENUM", SECTION, "", "must be an object");
    return { config: NOTHING, isUnusable: true };
  }
  const wrong = ["commands", "volumes"].filter((name) => !isUnset(raw[name]) && !Array.isArray(raw[name]));
  for (const name of wrong) reader.reject("E_ENUM", SECTION, name, "must be an array");
  if (wrong.length > 0) return { config: NOTHING, isUnusable: true };
  const commands = listed(reader, raw, "commands");
  const volumes = listed(reader, raw, "volumes");
  const read = readContainers(reader, commands.items);
  const stored = readVolumes(reader, volumes.items);
  const isPartial = !commands.isWhole || !volumes.isWhole || read.isPartial || stored.isPartial;
  const config: ExecConfig = {
    containers: read.containers,
    volumes: stored.volumes,
    limits: nodeLimits(reader, raw["limits"]),
    ...(read.left.length === 0 ? {} : { left: read.left }),
    ...(stored.left.length === 0 ? {} : { leftVolumes: stored.left }),
    ...(isPartial ? { isPartial } : {}),
  };
  return { config, isUnusable: false };
}

function listed(reader: ExecReader, raw: JsonObject, name: "commands" | "volumes") {
  return reader.items({ ...SECTION, index: 0, fields: raw }, { key: name, value: raw[name] }, EXEC_LIMITS[name]);
}

function nodeLimits(reader: ExecReader, value: unknown): ExecConfig["limits"] {
  if (isUnset(value)) return {};
  const at = { path: "exec.limits", id: "" };
  if (isObject(value)) return readNodeLimits(reader, { ...at, index: 0, fields: value });
  reader.reject("E_ENUM", at, "", "must be an object");
  return {};
}

/** Sorts by id; of equal ids the one with the smaller text comes first. */
function readContainers(reader: ExecReader, items: readonly RawItem[]) {
  const named = items.flatMap((item) => {
    const { id, name } = item.fields;
    if (typeof id === "string" && ID.test(id)) return [{ ...item, id }];
    const place = { ...item, id: typeof name === "string" ? name.slice(0, 64) : "" };
    if (isPresent(id)) reader.reject("E_NAME_FORMAT", place, "id", "must be a UUID");
    else reader.reject("E_REQUIRED", place, "id", "is required");
    return [];
  });
  const containers: ContainerSpec[] = [];
  const left: string[] = [];
  const ids = new Map<string, string>();
  const claims = new Claims();
  for (const item of sortedBy(named, ({ id, fields }) => JSON.stringify([id.toLowerCase(), id, fields]))) {
    const { id, path, fields } = item;
    const first = ids.get(id.toLowerCase());
    if (first !== undefined) {
      reader.conflict("E_NAME_DUPLICATE", item, "id", `is the id of ${first} already`);
      continue;
    }
    ids.set(id.toLowerCase(), path);
    const container = readContainer(reader, item, claims);
    if (container !== undefined) containers.push(container);
    else if (fields["enabled"] !== false) left.push(id);
  }
  return { containers: withOwnHostnames(reader, containers), left, isPartial: named.length < items.length };
}

/** Ignores host names that are the name of another container: the engine would resolve that name to both. */
function withOwnHostnames(reader: ExecReader, containers: readonly ContainerSpec[]): readonly ContainerSpec[] {
  const byName = new Map(containers.map((one) => [one.name.toLowerCase(), one]));
  return containers.map((one) => {
    const { id, path, hostname } = one;
    const other = hostname === undefined ? undefined : byName.get(hostname.toLowerCase());
    if (other === undefined || other.id === id) return one;
    const text = `${hostname} is the name of another container, which its siblings reach by it`;
    reader.collide("E_NAME_DUPLICATE", { path, id }, "hostname", text, other.id);
    return { ...one, hostname: undefined };
  });
}

function readContainer(reader: ExecReader, at: RawItem, claims: Claims): ContainerSpec | undefined {
  const { id, path, fields } = at;
  const { enabled, execType } = fields;
  const tidy = tidied(fields, { numeric: NUMERIC });
  if (typeof execType === "string") tidy["execType"] = TYPES.get(execType.trim().toLowerCase()) ?? execType;
  if (isPresent(enabled) && enabled !== "" && typeof enabled !== "boolean") {
    reader.reject("E_ENUM", at, "enabled", "must be true or false; taken as false");
    tidy["enabled"] = false;
  }
  const record = reader.judge(at, ContainerRecord, tidy, SOFT);
  const command = record === undefined ? undefined : readCommand(reader, at, record.command);
  const schedule = record === undefined ? undefined : scheduleOf(reader, at, record.execType, record.schedule);
  const parts = partsOf(fields);
  const capabilities = readCapabilities(reader, at, parts);
  const mounts = readMounts(reader, at, parts);
  const variables = readVariables(reader, at, parts);
  const routing = readVrf(reader, at, parts);
  const healthCheck = readHealthCheck(reader, at, parts);
  const resources = readLimits(reader, at, parts);
  const logging = readLogging(reader, at, parts);
  const exposure = readExposure(reader, at, parts);
  if (record === undefined || command === undefined || schedule === undefined) return undefined;
  if (capabilities === undefined || mounts === undefined || variables === undefined || routing === undefined)
    return undefined;
  const owner = { id, name: record.name, enabled: record.enabled ?? true };
  if (!isFree(reader, at, owner, record.ip, claims)) return undefined;
  const { image, hostname, user, dns, ip } = record;
  return {
    id,
    path,
    name: record.name,
    enabled: owner.enabled,
    execType: record.execType,
    image: { repository: image.repository, tag: image.tag },
    command: command.words,
    hostname,
    user,
    privileged: record.privileged ?? false,
    useInit: record.useInit ?? false,
    stopTimeSeconds: Number(record.stopTime ?? DEFAULT_STOP_SECONDS),
    requireConnectivity: record.requireConnectivity ?? false,
    saveOutput: record.saveOutput ?? false,
    schedule: schedule.value,
    dns,
    ip,
    isExtended: parts.size > 0,
    capabilities,
    healthCheck,
    limits: resources.limits,
    ulimits: resources.ulimits,
    logging,
    mounts,
    variables,
    vrf: routing.vrf,
    ...claims.settle(reader, owner, exposure),
  };
}

function readCommand(
  reader: ExecReader,
  at: RawItem,
  text: string | undefined,
): { readonly words: readonly string[] | undefined } | undefined {
  if (text === undefined || text.trim() === "") return { words: undefined };
  const split = shellWords(text);
  if (split !== undefined && split.words.length > 0) return { words: split.words };
  reader.conflict("E_RANGE", at, "command", NOT_WORDS);
  return undefined;
}

function scheduleOf(
  reader: ExecReader,
  at: RawItem,
  type: ExecType,
  text: string | undefined,
): { readonly value: ContainerSpec["schedule"] } | undefined {
  if (type !== "recurring") return { value: undefined };
  const value = text === undefined ? undefined : readSchedule(text);
  if (value !== undefined) return { value };
  const wanted = "rate(<n> minutes|hours|days) or five cron fields";
  if (text === undefined) reader.conflict("E_REQUIRED", at, "schedule", `is required of a recurring one: ${wanted}`);
  else reader.conflict("E_RANGE", at, "schedule", `must be ${wanted}`);
  return undefined;
}

const EVENTS: ReadonlySet<string> = new Set(triggerEvents);

/** Claims the exclusive values of a container: its name, regardless of case (RFC 4343), and its pinned address. */
function isFree(
  reader: ExecReader,
  at: RawItem,
  owner: { readonly id: string; readonly name: string; readonly enabled: boolean },
  ip: string | undefined,
  claims: Claims,
): boolean {
  const name = owner.name.toLowerCase();
  if (EVENTS.has(name)) {
    reader.conflict("E_NAME_FORMAT", at, "name", `${owner.name} is a trigger event of the node already`);
    return false;
  }
  const namesake = claims.take(`name ${name}`, owner);
  if (namesake !== undefined) {
    reader.conflict("E_NAME_DUPLICATE", at, "name", `${owner.name} is the container ${namesake.id}`, namesake.id);
    return false;
  }
  const other = ip === undefined || !owner.enabled ? undefined : claims.take(`ip ${ip}`, owner);
  if (other === undefined) return true;
  reader.conflict("E_NAME_DUPLICATE", at, "ip", `${ip} is pinned by the container ${other.name}`, other.id);
  return false;
}

function readVolumes(reader: ExecReader, items: readonly RawItem[]) {
  const volumes: VolumeSpec[] = [];
  const left: string[] = [];
  const first = new Map<string, string>();
  let isPartial = false;
  for (const item of sortedBy(items, ({ fields }) => JSON.stringify([fields["name"], fields]))) {
    const { name, location } = item.fields;
    const at = { ...item, id: typeof name === "string" ? name.slice(0, 64) : "" };
    const tidy = tidied(item.fields, {});
    if (typeof location === "string" && location.startsWith("/")) {
      tidy["location"] = location.replace(/^\/+/, "");
      reader.note("E_NAME_FORMAT", at, "location", "is a directory of the data store; the slash before it is ignored");
    }
    const judged = reader.judge(at, VolumeItem, tidy);
    if (judged === undefined) {
      if (VolumeItem.shape.name.safeParse(name).success) left.push(at.id);
      else isPartial = true;
      continue;
    }
    const volume = {
      path: at.path,
      name: judged.name,
      encrypted: judged.encrypted ?? false,
      location: judged.location?.split("/").filter(Boolean).join("/"),
    };
    const places = [`name ${volume.name}`, `location ${volume.location ?? `volumes/${volume.name}`}`];
    const taken = places.find((place) => first.has(place));
    if (taken !== undefined) {
      const [field = ""] = taken.split(" ");
      reader.conflict("E_NAME_DUPLICATE", at, field, `is that of ${first.get(taken)} already`, first.get(taken));
      if (field !== "name") left.push(volume.name);
      continue;
    }
    for (const place of places) first.set(place, volume.name);
    volumes.push(volume);
  }
  return { volumes, left, isPartial };
}
