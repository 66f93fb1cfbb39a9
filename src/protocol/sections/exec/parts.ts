import { shellWords } from "../../../lib/text/shell-words.ts";
import type { ContainerSpec, HealthCheck, Mount } from "./config.ts";
import {
  capabilities,
  Capabilities,
  ContainerHealthCheck,
  EXEC_LIMITS,
  MountItem,
  VariableItem,
  Vrf,
  type PartName,
} from "./fields.ts";
import { isUnset, sortedBy, tidied, type ExecReader, type RawPart } from "./reader.ts";
import { isPresent, type RawItem } from "../common/forms.ts";
import { DEFAULT_VRF } from "../network/fields.ts";

type Parts = ReadonlyMap<PartName, RawPart>;

/** The capabilities by name; undefined when the container must not run, since what it may do is not known. */
export function readCapabilities(
  reader: ExecReader,
  at: RawItem,
  parts: Parts,
): ContainerSpec["capabilities"] | undefined {
  const place = reader.object(at, parts, "capabilities");
  if (place === undefined) return { add: [], drop: [] };
  if (place === "wrong") return undefined;
  const add = names(reader, place, "addCaps", false);
  const drop = names(reader, place, "dropCaps", true);
  if (add === undefined || drop === undefined) return undefined;
  return reader.judge(place, Capabilities, { addCaps: add, dropCaps: drop }) === undefined ? undefined : { add, drop };
}

function names(reader: ExecReader, at: RawItem, field: string, mayBeAll: boolean): readonly string[] | undefined {
  const { [field]: list } = at.fields;
  if (isUnset(list)) return [];
  if (!Array.isArray(list) || !list.every((name) => typeof name === "string")) {
    reader.reject("E_ENUM", at, field, "must be a list of names");
    return undefined;
  }
  const found = new Set<string>();
  for (const [index, text] of list.entries()) {
    const name = text.trim().toUpperCase().replace(/^CAP_/, "");
    if (name === "ALL" && !mayBeAll) {
      reader.reject("E_UNSUPPORTED", at, `${field}.${index}`, "ALL is never given; name the capabilities");
      return undefined;
    }
    if (capabilities.has(name) || name === "ALL") found.add(name);
    else reader.note("E_UNSUPPORTED", at, `${field}.${index}`, `there is no capability ${name.slice(0, 64)}; ignored`);
  }
  return [...found].sort();
}

/** Returns the health check; undefined if there is none or it is invalid. */
export function readHealthCheck(reader: ExecReader, at: RawItem, parts: Parts): HealthCheck | undefined {
  const place = reader.object(at, parts, "healthCheck");
  if (place === undefined || place === "wrong") return undefined;
  const times = ["interval", "timeout", "startPeriod", "retries"];
  const tidy = tidied(place.fields, { numeric: new Set(times) });
  const judged = reader.judge(place, ContainerHealthCheck, tidy, new Set(times));
  if (judged === undefined) return undefined;
  const { command, interval = 30, timeout = 30, startPeriod = 0, retries = 3 } = judged;
  const split = shellWords(command);
  if (split === undefined) return undefined;
  for (const [name, value] of Object.entries({ interval, timeout, retries })) {
    if (value < 1) reader.note("E_RANGE", place, name, `${value} is too little; taken as 1`);
  }
  return {
    test: split.needsShell ? ["CMD-SHELL", command] : ["CMD", ...split.words],
    intervalSeconds: Math.max(1, interval),
    timeoutSeconds: Math.max(1, timeout),
    startPeriodSeconds: startPeriod,
    retries: Math.max(1, retries),
  };
}

/** Returns the mounts; undefined if the container must not run, since it would write outside its volume. */
export function readMounts(reader: ExecReader, at: RawItem, parts: Parts): readonly Mount[] | undefined {
  const { items, isWhole } = reader.items(at, parts.get("mounts"), EXEC_LIMITS.mounts);
  const found = items.flatMap((item) => {
    const judged = reader.judge(item, MountItem, tidied(item.fields, { lowerCase: new Set(["mountType"]) }));
    if (judged === undefined) return [];
    const { mountType, source, dest } = judged;
    const mount: Mount =
      mountType === "bind"
        ? { kind: "bind", source: cleanPath(source), dest: cleanPath(dest) }
        : { kind: "volume", source, dest: cleanPath(dest) };
    return [{ item, mount }];
  });
  if (!isWhole || found.length < items.length) return undefined;
  const first = new Map<string, string>();
  const mounts = sortedBy(found, ({ mount: { dest, kind, source } }) => JSON.stringify([dest, kind, source]));
  for (const { item, mount } of mounts) {
    const other = first.get(mount.dest);
    first.set(mount.dest, item.path);
    if (other === undefined) continue;
    reader.conflict("E_NAME_DUPLICATE", item, "dest", `${mount.dest} is in ${other} already`);
    return undefined;
  }
  return mounts.map(({ mount }) => mount);
}

/** A path as one spells it once: no doubled slashes, no dots. */
const cleanPath = (path: string): string =>
  `/${path
    .split("/")
    .filter((part) => part !== "" && part !== ".")
    .join("/")}`;

/** Reads the environment; of two variables with one name the later counts. Undefined if one is invalid, so that the container must not run. */
export function readVariables(reader: ExecReader, at: RawItem, parts: Parts): ContainerSpec["variables"] | undefined {
  const { items, isWhole } = reader.items(at, parts.get("variables"), EXEC_LIMITS.variables);
  const values = new Map<string, string>();
  let isReadable = isWhole;
  for (const item of items) {
    const { name, value } = item.fields;
    const text = typeof value === "number" || typeof value === "boolean" ? String(value) : value;
    const judged = reader.judge(item, VariableItem, { name, value: isPresent(text) ? text : "" });
    isReadable &&= judged !== undefined;
    if (judged === undefined) continue;
    if (values.has(judged.name)) {
      reader.tolerate("E_NAME_DUPLICATE", item, "name", `${judged.name} is there already`, "the last one counts");
    }
    values.set(judged.name, judged.value);
  }
  const sorted = sortedBy([...values], ([name]) => name);
  return isReadable ? sorted.map(([name, value]) => ({ name, value })) : undefined;
}

/** The VRF, `vrf` undefined for the machine's own routing; undefined when the container must not run in another than was meant. */
export function readVrf(
  reader: ExecReader,
  at: RawItem,
  parts: Parts,
): { readonly vrf: string | undefined } | undefined {
  const place = reader.object(at, parts, "vrf");
  if (place === undefined) return { vrf: undefined };
  if (place === "wrong") return undefined;
  if (isUnset(place.fields["name"])) return { vrf: undefined };
  const judged = reader.judge(place, Vrf, tidied(place.fields, {}));
  if (judged === undefined) return undefined;
  return { vrf: judged.name === DEFAULT_VRF ? undefined : judged.name };
}
