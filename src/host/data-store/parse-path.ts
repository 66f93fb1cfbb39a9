import { InputError } from "../../errors.ts";
import { safeJson } from "../../lib/text/terminal-text.ts";
import { isOwnName } from "../../protocol/triggers/transfer.ts";

/** Directories that every store has and that cannot be removed. */
export const IMAGES = "images";
export const VOLUMES = "volumes";

const MAX_NAME_BYTES = 255; // NAME_MAX, limits.h(0p)
const MAX_NAMES = 32;
const LONE_SURROGATE = /\p{Cs}/u;
const CONTROL = /\p{Cc}/u;

/**
 * Splits a path into names from the root; empty for the root itself. Ignores empty names and `.`. Decodes nothing: a `%2e` is
 * three characters of a name.
 * @throws {InputError} `bad-path` for a name that the store does not allow, including Holdfast's own; `forbidden-path` for the
 *   agent's own entries beside the volumes.
 */
export function parsePath(path: string): readonly string[] {
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  const wrong = wrongWith(names);
  if (wrong !== undefined) throw new InputError("bad-path", `${shown(path)} is not a path in the data store: ${wrong}`);
  if (isAgents(names)) throw new InputError("forbidden-path", `${shown(path)} belongs to the agent`);
  return names;
}

/**
 * Splits the path of a new entry; its names must not contain control characters.
 * @throws {InputError} as `parsePath` does, and `bad-path`.
 */
export function parseNewPath(path: string): readonly string[] {
  const names = parsePath(path);
  if (!names.some((name) => CONTROL.test(name))) return names;
  throw new InputError("bad-path", `${shown(path)} is not a valid path for a new entry: a name has control characters`);
}

/** Reports whether a directory entry is hidden from users: Holdfast's own, or one of the agent's beside the volumes. */
export function isHidden(directory: readonly (string | Buffer)[], name: string): boolean {
  return isOwnName(name) || (directory.length === 1 && directory[0] === VOLUMES && name.startsWith("."));
}

/** Formats a path for people: on one line, without terminal control sequences. */
export const shown = (path: string): string => safeJson(path.length > 200 ? `${path.slice(0, 200)}…` : path);

function wrongWith(names: readonly string[]): string | undefined {
  if (names.includes("..")) return "it contains the name ..";
  if (names.some((name) => name.includes("\0"))) return "it contains a NUL byte";
  // Encoding would replace it by U+FFFD and so change the name.
  if (names.some((name) => LONE_SURROGATE.test(name))) return "it is not Unicode text";
  if (names.some((name) => Buffer.byteLength(name) > MAX_NAME_BYTES)) {
    return `a name is longer than ${MAX_NAME_BYTES} bytes`;
  }
  if (names.length > MAX_NAMES) return `it is deeper than ${MAX_NAMES} names`;
  return names.some(isOwnName) ? "the name is reserved for Holdfast" : undefined;
}

function isAgents([first, second]: readonly string[]): boolean {
  return first !== undefined && second !== undefined && isHidden([first], second);
}
