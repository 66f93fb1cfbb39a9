import { AgentError, errnoOf, HostError, InputError, toError } from "../../errors.ts";

/** Errno values caused by the request, with their error codes and reasons. */
const ASKED_WRONG: Readonly<Record<string, readonly [code: string, why: string]>> = {
  ENOENT: ["not-found", "no such file or directory"],
  ENOTDIR: ["not-a-directory", "a parent in the path is not a directory"],
  ELOOP: ["forbidden-path", "it is a link, and links are not followed"],
  EEXIST: ["exists", "it already exists"],
  EISDIR: ["not-a-file", "it is a directory"],
  ENAMETOOLONG: ["bad-path", "a name is too long for this file system"],
  EINVAL: ["bad-path", "this file system does not accept the name"],
  EILSEQ: ["bad-path", "this file system does not accept the name"],
  EACCES: ["forbidden-path", "it belongs to another user, and the agent lacks permission"],
  EPERM: ["forbidden-path", "the system does not permit it"],
  EBUSY: ["in-use", "the system uses it"],
  ETXTBSY: ["in-use", "it is being executed"],
  ENOTEMPTY: ["in-use", "another process keeps adding entries to it"],
};

const MACHINE: Readonly<Record<string, readonly [code: string, why: string]>> = {
  ENOSPC: ["disk-full", "no space is left on the disk"],
  EDQUOT: ["disk-full", "the disk quota is exhausted"],
  EROFS: ["read-only", "the file system is read-only"],
  EUCLEAN: ["storage-failed", "the file system is damaged (EUCLEAN)"],
  EIO: ["storage-failed", "the disk has an error (EIO)"],
};

/**
 * Converts a failed call to an error for its requester. `doing` describes the attempt, such as `open "a/b"`. Returns errors that
 * already have a code, and aborts, unchanged.
 */
export function storeFailure(error: unknown, doing: string): Error {
  const name = errnoOf(error) ?? "";
  if (error instanceof AgentError || !SYSTEM.test(name)) return toError(error);
  const errno = UNNAMED[name] ?? name;
  const options = { cause: error, details: { errno } };
  const asked = ASKED_WRONG[errno];
  if (asked !== undefined) return new InputError(asked[0], `cannot ${doing}: ${asked[1]}`, options);
  const [code, why] = MACHINE[errno] ?? ["storage-failed", `the system reports ${errno}`];
  return new HostError(code, `cannot ${doing}: ${why}`, options);
}

/** Matches errno names of the system; Node's own codes contain an underscore. */
const SYSTEM = /^(E[A-Z0-9]+$|Unknown system error )/;
/** Errno values that Node does not name, errno(3). */
const UNNAMED: Readonly<Record<string, string>> = {
  "Unknown system error -116": "ESTALE",
  "Unknown system error -117": "EUCLEAN",
  "Unknown system error -122": "EDQUOT",
};
