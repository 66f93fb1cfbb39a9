import { spawn, type ChildProcess } from "node:child_process";
import { createReadStream } from "node:fs";
import { chmod, lstat, mkdir, open, readdir } from "node:fs/promises";
import { join } from "node:path";
import type { Readable, Transform } from "node:stream";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { AgentError, errnoOf, HostError, InputError, toError } from "../../errors.ts";
import { TarFilter, type TarMember } from "../../lib/formats/tar-filter.ts";
import type { Architecture } from "../../protocol/documents/release.ts";
import { SEARCH_PATH } from "../process/exec.ts";

/** Compression of an archive, by its name's suffix. */
export type Packing = "tar" | "gzip" | "xz" | "zstd";

const ENDS: readonly (readonly [RegExp, Packing])[] = [
  [/\.tar$/, "tar"],
  [/\.(?:tar\.gz|tgz)$/, "gzip"],
  [/\.tar\.xz$/, "xz"],
  [/\.tar\.zst$/, "zstd"],
];

/** Returns the compression of an archive. @throws {InputError} `unknown-packing` */
export function packingOf(name: string): Packing {
  const found = ENDS.find(([end]) => end.test(name));
  if (found !== undefined) return found[1];
  throw new InputError("unknown-packing", `${name} does not end in .tar, .tar.gz, .tar.xz or .tar.zst`);
}

export interface Unpacking {
  readonly archive: string;
  readonly packing: Packing;
  /** A newly created directory for the content. */
  readonly into: string;
  readonly version: string;
  readonly unpackedSize: number;
  readonly architecture: Architecture;
}

const MAX_MEMBERS = 2000;
/** Memory limit of unpacking: the highest level of xz needs 65 MiB. */
const XZ_MEMORY = "128MiB";
const REQUIRED = ["node", "holdfast.mjs", "version"];

/**
 * Unpacks a version's archive with tar(1), which receives only members that `TarFilter` accepts, and then verifies the tree. Modes
 * are set, and everything is synced to disk on return.
 * @throws {InputError} codes of the tar filter, `archive-damaged`, `archive-incomplete`, `archive-version`,
 *   `archive-architecture`, `tree-differs`; {HostError} `tool-missing`, `unpack-failed`
 */
export async function unpackVersion(unpacking: Unpacking, signal: AbortSignal): Promise<void> {
  const filter = new TarFilter({ maxBytes: unpacking.unpackedSize, maxMembers: MAX_MEMBERS });
  await mkdir(unpacking.into, { mode: 0o755 });
  await pour(unpacking, filter, signal);
  const { members } = filter;
  for (const name of REQUIRED) {
    if (members.some(({ path, kind, size }) => path === name && kind === "file" && size > 0)) continue;
    throw new InputError("archive-incomplete", `the package does not contain ${name}`);
  }
  await checkTree(unpacking.into, members, signal);
  await checkContent(unpacking);
}

/** Pipes the archive through the filter to tar(1). */
async function pour(unpacking: Unpacking, filter: TarFilter, signal: AbortSignal): Promise<void> {
  const options = ["--extract", "--file=-", `--directory=${unpacking.into}`, "--no-same-owner", "--keep-old-files"];
  const tar = started("tar", [...options, "--no-same-permissions", "--no-xattrs", "--no-acls", "--no-selinux"], signal);
  const source = decompressed(unpacking, signal);
  try {
    for await (const piece of source.stream as AsyncIterable<Buffer>) {
      for (const passed of filter.pass(piece)) await tar.write(passed);
    }
    await source.finished();
    filter.end();
    await tar.finished();
  } catch (error) {
    source.stream.destroy();
    tar.kill();
    signal.throwIfAborted();
    throw error instanceof AgentError ? error : damaged(error);
  } finally {
    source.kill();
    await tar.gone;
  }
}

interface Source {
  readonly stream: Readable;
  /** Rejects if the stream did not end cleanly. */
  finished(): Promise<void>;
  kill(): void;
}

function decompressed({ archive, packing }: Unpacking, signal: AbortSignal): Source {
  const raw = createReadStream(archive, { highWaterMark: 256 * 1024 });
  if (packing === "tar") return { stream: raw, finished: async () => undefined, kill: () => void raw.destroy() };
  if (packing === "xz") {
    raw.destroy();
    const args = ["--decompress", "--stdout", "--no-warn", `--memlimit-decompress=${XZ_MEMORY}`, "--", archive];
    const xz = started("xz", args, signal);
    if (xz.stdout === null) throw new HostError("unpack-failed", "xz has no output");
    const finished = async (): Promise<void> => {
      await xz.finished().catch((error: unknown) => {
        throw error instanceof HostError && error.code === "unpack-failed" ? damaged(error) : error;
      });
    };
    return { stream: xz.stdout, finished, kill: () => xz.kill() };
  }
  const unpacker: Transform & { readonly bytesWritten: number } =
    packing === "gzip" ? createGunzip() : createZstdDecompress();
  raw.on("error", (error) => unpacker.destroy(error));
  raw.pipe(unpacker);
  const finished = async (): Promise<void> => {
    const { size } = await lstat(archive);
    // gzip ignores data after the end of its stream.
    if (unpacker.bytesWritten === size) return;
    throw new InputError("archive-trailing-data", "the package has data after its end");
  };
  return {
    stream: unpacker,
    finished,
    kill: () => {
      raw.destroy();
      unpacker.destroy();
    },
  };
}

interface Tool {
  readonly stdout: Readable | null;
  write(bytes: Buffer): Promise<void>;
  /** Closes the tool's input and waits for a successful exit. @throws {HostError} `unpack-failed` */
  finished(): Promise<void>;
  kill(): void;
  readonly gone: Promise<unknown>;
}

/** Starts a tool between pipes; it exits by itself if its input closes. */
function started(file: string, args: readonly string[], signal: AbortSignal): Tool {
  const child: ChildProcess = spawn(file, args, {
    env: { LC_ALL: "C", TZ: "UTC", PATH: SEARCH_PATH },
    cwd: "/",
    stdio: ["pipe", "pipe", "pipe"],
    signal,
    killSignal: "SIGKILL",
  });
  let said = "";
  let failure: Error | undefined;
  child.stderr?.on("data", (bytes: Buffer) => (said = `${said}${bytes.toString()}`.slice(0, 2048)));
  const gone = new Promise<number | null>((resolve) => {
    child.once("error", (error) => {
      failure = error;
      resolve(null);
    });
    child.once("close", resolve);
  });
  // The exit status reports input that the tool did not read.
  child.stdin?.on("error", () => undefined);
  const finished = async (): Promise<void> => {
    child.stdin?.end();
    const code = await gone;
    signal.throwIfAborted();
    if (code === 0) return;
    if (failure !== undefined && errnoOf(failure) === "ENOENT") {
      throw new HostError("tool-missing", `${file} is not installed`, { cause: failure });
    }
    const isFull = said.includes("No space left");
    const why = said.trim().split("\n").at(0) ?? failure?.message ?? `exit status ${code}`;
    throw new HostError(isFull ? "disk-full" : "unpack-failed", `${file}: ${why}`, { cause: failure });
  };
  return {
    stdout: child.stdout,
    write(bytes) {
      const { stdin } = child;
      if (stdin === null || stdin.destroyed || failure !== undefined) return finished();
      if (stdin.write(bytes)) return Promise.resolve();
      // The tool may exit before reading the padding of the last record; that is fine if it succeeds.
      return new Promise((resolve) => {
        const go = (): void => {
          for (const event of ["drain", "close", "error"]) stdin.off(event, go);
          resolve();
        };
        for (const event of ["drain", "close", "error"]) stdin.once(event, go);
      });
    },
    finished,
    kill: () => void child.kill("SIGKILL"),
    gone,
  };
}

/** Verifies that the tree consists of exactly the members, sets their modes and syncs them to disk. */
async function checkTree(root: string, members: readonly TarMember[], signal: AbortSignal): Promise<void> {
  const expected = new Map(members.map((member) => [member.path, member]));
  const seen = new Set<string>();
  const visit = async (path: string): Promise<void> => {
    signal.throwIfAborted();
    const at = join(root, path);
    const stat = await lstat(at);
    const member = expected.get(path);
    const differs = (why: string): InputError => new InputError("tree-differs", `unpacked, ${path || "."} ${why}`);
    if (process.getuid?.() === 0 && (stat.uid !== 0 || stat.gid !== 0)) throw differs("is not owned by root");
    if (stat.isDirectory()) {
      if (member?.kind === "file") throw differs("is a directory");
      for (const name of await readdir(at)) await visit(path === "" ? name : `${path}/${name}`);
      await settle(at, 0o755);
      seen.add(path);
      return;
    }
    if (!stat.isFile() || stat.nlink !== 1) throw differs("is no plain file");
    if (member === undefined || member.size !== stat.size) throw differs("is not what the package has");
    await settle(at, member.isExecutable ? 0o755 : 0o644);
    seen.add(path);
  };
  await visit("");
  const missing = members.find(({ path }) => !seen.has(path));
  if (missing !== undefined) throw new InputError("tree-differs", `unpacked, ${missing.path} is missing`);
}

/** Sets the mode durably. */
async function settle(path: string, mode: number): Promise<void> {
  await chmod(path, mode);
  const file = await open(path, "r");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Machine codes of an ELF header (elf(5), `e_machine`). */
const MACHINES: Readonly<Record<Architecture, number>> = { amd64: 62, arm64: 183 };

async function checkContent({ into, version, architecture }: Unpacking): Promise<void> {
  const said = (await firstBytes(join(into, "version"), 256)).toString("utf8").replace(/\n$/, "");
  if (said !== version) {
    throw new InputError(
      "archive-version",
      `the package contains version ${JSON.stringify(said)} instead of ${version}`,
    );
  }
  const head = await firstBytes(join(into, "node"), 20);
  if (head.toString("latin1", 0, 4) !== "\x7fELF") return;
  if (head.readUInt16LE(18) !== MACHINES[architecture]) {
    throw new InputError("archive-architecture", `the package's node binary is not for ${architecture}`);
  }
}

async function firstBytes(path: string, count: number): Promise<Buffer> {
  const file = await open(path, "r");
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(count), 0, count, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

function damaged(cause: unknown): InputError {
  return new InputError("archive-damaged", `the package cannot be unpacked: ${toError(cause).message}`, { cause });
}
