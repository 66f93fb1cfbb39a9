import { chmodSync, lstatSync, statSync, unlinkSync } from "node:fs";
import { chmod, mkdir } from "node:fs/promises";
import { connect, type Server } from "node:net";
import { AgentError, errnoOf, HostError, InputError, toError } from "../../errors.ts";

/** State of a socket's path: no file, a socket without a server, or a socket with one. */
export type SocketState = "absent" | "stale" | "live";

/**
 * Reports by connecting whether a Unix socket is served.
 * @throws {HostError} `not-a-socket` for any other kind of file, `access-denied`, `socket-failed`.
 */
export async function probeSocket(path: string): Promise<SocketState> {
  let kind;
  try {
    kind = lstatSync(path, { throwIfNoEntry: false });
  } catch (error) {
    throw socketError(path, toError(error));
  }
  if (kind === undefined) return "absent";
  if (!kind.isSocket()) {
    throw new HostError("not-a-socket", `${path} is not a socket: remove it or choose another run directory`, {
      details: { path },
    });
  }
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve("live");
    });
    socket.once("error", (error) => {
      switch (errnoOf(error)) {
        case "ECONNREFUSED":
          return resolve("stale");
        case "ENOENT":
          return resolve("absent");
        case "EAGAIN": // its queue of waiting connections is full
          return resolve("live");
        default:
          return reject(socketError(path, error));
      }
    });
  });
}

/**
 * Listens on a Unix socket with exactly this mode; replaces a stale socket.
 * @throws {HostError} `socket-in-use` when another process answers there, or as `probeSocket`.
 */
export async function listenOnSocket(server: Server, path: string, mode: number): Promise<void> {
  const state = await probeSocket(path);
  if (state === "live") {
    throw new HostError("socket-in-use", `another process answers on ${path}`, { details: { path } });
  }
  if (state === "stale") unlinkSync(path);
  await new Promise<void>((resolve, reject) => {
    const onError = (error: Error): void => reject(socketError(path, error));
    server.once("error", onError);
    // listen() binds before it returns, so the umask protects the socket until its mode is set.
    const umask = process.umask(0o177);
    try {
      server.listen(path, () => {
        server.off("error", onError);
        resolve();
      });
    } finally {
      process.umask(umask);
    }
  });
  chmodSync(path, mode);
}

/**
 * Creates the directory for sockets and pid files with mode 0750; keeps an existing one if only its owner and group may
 * write to it.
 * @throws {InputError} `unsafe-directory`; {HostError} `directory-failed`.
 */
export async function makeRunDirectory(path: string): Promise<void> {
  try {
    const created = await mkdir(path, { recursive: true, mode: 0o750 });
    if (created !== undefined) await chmod(path, 0o750); // the umask may have taken the group's part
    checkRunDirectory(path);
  } catch (error) {
    if (error instanceof AgentError) throw error;
    throw new HostError("directory-failed", `cannot make ${path}: ${toError(error).message}`, { cause: error });
  }
}

/**
 * Recreates a removed run directory in an existing parent; keeps an existing one.
 * @throws as `makeRunDirectory`.
 */
export async function remakeRunDirectory(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: 0o750 });
    await chmod(path, 0o750);
  } catch (error) {
    if (errnoOf(error) !== "EEXIST") {
      throw new HostError("directory-failed", `cannot make ${path} again: ${toError(error).message}`, { cause: error });
    }
  }
  checkRunDirectory(path);
}

/**
 * Listens again at a path from which the socket was removed. Connections stay open.
 * @throws as `listenOnSocket`.
 */
export async function listenAgain(server: Server, path: string, mode: number): Promise<void> {
  // Closing removes the file at the path, which may already be another process's socket.
  if ((await probeSocket(path)) === "live") {
    throw new HostError("socket-in-use", `another process answers on ${path}`, { details: { path } });
  }
  server.close();
  await listenOnSocket(server, path, mode);
}

/**
 * Checks that an existing directory is safe for sockets and pid files.
 * @throws {InputError} `unsafe-directory`; {HostError} `directory-failed` when it cannot be read.
 */
export function checkRunDirectory(path: string): void {
  let found;
  let entry;
  try {
    found = statSync(path, { throwIfNoEntry: false });
    entry = found === undefined ? undefined : lstatSync(path, { throwIfNoEntry: false });
  } catch (error) {
    throw new HostError("directory-failed", `cannot use ${path}: ${toError(error).message}`, { cause: error });
  }
  if (found === undefined || entry === undefined) return;
  const owners = new Set([process.geteuid?.() ?? found.uid, 0]);
  const isOpen = (found.mode & 0o002) !== 0;
  if (!isOpen && owners.has(found.uid) && owners.has(entry.uid)) return;
  const why = isOpen ? "is writable by every user" : "belongs to another user";
  throw new InputError("unsafe-directory", `${path} ${why}: choose another run directory with --run`, {
    details: { path },
  });
}

/** Identifies a directory by device and inode, also against a later one at the same path; undefined if there is none. */
export function directoryMark(path: string): string | undefined {
  const found = statSync(path, { throwIfNoEntry: false });
  return found?.isDirectory() === true ? `${found.dev}:${found.ino}` : undefined;
}

function socketError(path: string, error: Error): HostError {
  const code = errnoOf(error) === "EACCES" ? "access-denied" : "socket-failed";
  return new HostError(code, `cannot use ${path}: ${error.message}`, { cause: error, details: { path } });
}
