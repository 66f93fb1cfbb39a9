import { dirname } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { InputError } from "../errors.ts";
import { hostFiles, type Files } from "../host/files/files.ts";
import { describeIssues } from "../protocol/channel/envelope.ts";
import { parseStrictJson } from "../lib/formats/strict-json.ts";
import { JsonObject } from "../protocol/values/values.ts";
import { AgentFile } from "./settings.ts";

const LIMITS = { maxBytes: 256 * 1024, maxDepth: 16 };
// The address of a proxy may contain a password.
const MODE = 0o600;

/** Reads the local settings unmodified; empty without a file. @throws {InputError} `bad-settings` without its content. */
export async function readLocalSettings(path: string, files: Files = hostFiles()): Promise<JsonObject> {
  const text = await files.read(path);
  return text === undefined ? {} : parsed(path, text);
}

function parsed(path: string, text: string): JsonObject {
  let value: unknown;
  try {
    value = parseStrictJson(text, LIMITS);
  } catch (error) {
    const code = error instanceof InputError ? error.code : "invalid-json";
    throw new InputError("bad-settings", `${path} cannot be read (${code}): mend it or move it away`);
  }
  const object = JsonObject.safeParse(value);
  if (!object.success) throw new InputError("bad-settings", `${path} holds no object`);
  return object.data;
}

/**
 * Replaces members of the local settings, null removing one; the previous copy is kept beside the file. Members that this version does not
 * know stay, unless they are among the changes. A dry run only validates.
 * @returns the names of the members that change
 * @throws {InputError} `bad-settings` for what the agent would reject, naming each field.
 */
export async function changeLocalSettings(
  path: string,
  changes: JsonObject,
  { isDry = false, files = hostFiles() }: { readonly isDry?: boolean; readonly files?: Files } = {},
): Promise<readonly string[]> {
  const text = await files.read(path);
  const before = text === undefined ? {} : parsed(path, text);
  const after: JsonObject = { ...before };
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined) delete after[name];
    else after[name] = value;
  }
  refuse(after, new Set(Object.keys(changes)));
  const names = Object.keys(changes).filter((name) => !isDeepStrictEqual(before[name], after[name]));
  if (names.length === 0 || isDry) return names;
  await files.makeDirectory(dirname(path), 0o755);
  if (text !== undefined) await files.writeAtomic(`${path}.previous`, text, MODE);
  await files.writeAtomic(path, `${JSON.stringify(after, undefined, 2)}\n`, MODE);
  return names;
}

function refuse(settings: JsonObject, changed: ReadonlySet<string>): void {
  const { error } = AgentFile.safeParse(settings);
  if (error === undefined) return;
  const [unknown, others] = [
    error.issues.filter(({ code, path }) => code === "unrecognized_keys" && path.length === 0),
    error.issues.filter(({ code, path }) => code !== "unrecognized_keys" || path.length > 0),
  ];
  // Members of a newer version are kept.
  const stray = unknown.flatMap((issue) => (issue.code === "unrecognized_keys" ? issue.keys : []));
  const asked = stray.filter((name) => changed.has(name)).map((name) => `${name}: is no setting`);
  const lines = [...asked, ...describeIssues(new z.ZodError(others))];
  if (lines.length > 0) throw new InputError("bad-settings", lines.join("; "));
}
