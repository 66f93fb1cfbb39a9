import { spawn, type ChildProcess } from "node:child_process";
import { randomInt } from "node:crypto";
import { accessSync, constants, fchmodSync, fchownSync, fstatSync, readSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { serialQueue } from "../../lib/async/serial-queue.ts";
import { IMAGE_HEAD_BYTES, imageFormat } from "../../lib/formats/image-format.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import type { ImageInfo } from "../../protocol/triggers/data-store.ts";
import { deathTie, type CommandLine } from "../process/death-tie.ts";
import { SEARCH_PATH } from "../process/exec.ts";
import { privilegedCommand } from "../process/privileged-exec.ts";
import { signalGroup } from "../process/process-tree.ts";

/**
 * Describes a virtual machine image by an open descriptor. Never rejects because of the content; without the tool it returns only
 * the size.
 */
export type ReadImageInfo = (fd: number, signal: AbortSignal) => Promise<ImageInfo>;

export interface ImageInfoOptions {
  /** Whether systemd runs this program. */
  readonly isManaged: boolean;
  readonly searchPath?: string;
}

const QemuImgInfo = z.object({ format: z.string().max(32), "virtual-size": z.number().nonnegative() });
const TOOL = "qemu-img";
const PERMISSIONS = 0o7777;
const DEADLINE_MS = 10_000;
const MAX_OUTPUT_BYTES = 256 * 1024;
const LIMITS = ["--as=2147483648", "--cpu=5", "--nofile=16", "--fsize=0", "--core=0"];
/** Range of group ids; no distribution assigns ids this high. */
const UNUSED_GROUPS = [0x7000_0000, 0x7fff_0000] as const;
/** User id that owns nothing on any distribution. */
const NOBODY = "65534";
/** `info` alone opens no backing file. */
const QUERY = ["info", "--output=json", "--force-share"];
const IMAGE = "/proc/self/fd/0";

/**
 * Runs qemu-img(1), which parses untrusted files: as nobody, without capabilities, with limits on memory and time, and with only
 * the descriptor. The tool must reopen the descriptor (proc(5)), so the file is readable to it meanwhile; its directory stays
 * inaccessible. The format is passed explicitly, and images whose content is in other files are skipped, because format probing
 * would open those files. In a managed install systemd starts the tool, because this program's unit may not change its user.
 */
export function hostImageInfo({ isManaged, searchPath = SEARCH_PATH }: ImageInfoOptions): ReadImageInfo {
  const tied = deathTie(SEARCH_PATH);
  const started = (command: CommandLine): CommandLine =>
    tied(isManaged ? privilegedCommand(command, DEADLINE_MS) : command);
  // Serialized: each run reverts the permission that it granted, and two runs on one file would interfere.
  const serially = serialQueue();
  return async (fd, signal) => {
    const { size: bytes } = fstatSync(fd);
    const tool = findTool(searchPath);
    if (tool === undefined) return { bytes };
    const format = imageFormat(headOf(fd));
    if (format === undefined) return { bytes };
    const query = [tool, ...QUERY, `--format=${format}`, IMAGE];
    const text = await serially(() => ask(query, fd, started, signal));
    const info = QemuImgInfo.safeParse(parsed(text));
    return info.success ? { bytes, format: info.data.format, virtualBytes: info.data["virtual-size"] } : { bytes };
  };
}

async function ask(
  query: readonly string[],
  fd: number,
  started: (command: CommandLine) => CommandLine,
  signal: AbortSignal,
): Promise<string> {
  const isRoot = process.geteuid?.() === 0;
  const bounded = ["prlimit", ...LIMITS, "--", ...query];
  const { group, close } = isRoot ? grantRead(fd) : { group: NOBODY, close: () => undefined };
  const drop = ["--reuid", NOBODY, "--regid", group, "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"];
  const args = [...(isRoot ? drop : []), "--no-new-privs", "--", ...bounded];
  const command = started({ file: "setpriv", args });
  try {
    const child = spawn(command.file, [...command.args], {
      env: { LC_ALL: "C", PATH: SEARCH_PATH },
      cwd: "/",
      detached: true,
      stdio: [fd, "pipe", "ignore"],
    });
    return await outputOf(child, signal);
  } finally {
    close();
  }
}

/**
 * Lets the tool read a file: through an unused group if the file belongs only to this user. A file with another owner or group
 * keeps them, because they may be using it, and becomes readable to everyone. Returns the group and a function that reverts the
 * change.
 */
function grantRead(fd: number): { readonly group: string; readonly close: () => void } {
  const { mode, uid, gid } = fstatSync(fd);
  if ((mode & constants.S_IROTH) !== 0) return { group: NOBODY, close: () => undefined };
  const close = (): void => {
    fchownSync(fd, uid, gid);
    // The mode is set last, because changing the owner clears mode bits, chown(2).
    fchmodSync(fd, mode & PERMISSIONS);
  };
  const group = randomInt(...UNUSED_GROUPS);
  if (uid === 0 && gid === 0 && (mode & constants.S_IRWXG) === 0 && isGiven(fd, group)) {
    fchmodSync(fd, (mode & PERMISSIONS) | constants.S_IRGRP);
    return { group: String(group), close };
  }
  fchmodSync(fd, (mode & PERMISSIONS) | constants.S_IROTH);
  return { group: NOBODY, close: () => fchmodSync(fd, mode & PERMISSIONS) };
}

/** Reports whether the group was set; a user namespace does not map all groups, user_namespaces(7). */
function isGiven(fd: number, group: number): boolean {
  try {
    fchownSync(fd, 0, group);
    return true;
  } catch {
    return false;
  }
}

function headOf(fd: number): Buffer {
  const head = Buffer.alloc(IMAGE_HEAD_BYTES);
  return head.subarray(0, readSync(fd, head, 0, head.length, 0));
}

function findTool(searchPath: string): string | undefined {
  return searchPath
    .split(":")
    .map((directory) => join(directory, TOOL))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

/** Returns the tool's output; empty if it fails, times out or prints too much. */
function outputOf(child: ChildProcess, signal: AbortSignal): Promise<string> {
  return new Promise((resolve) => {
    let output = "";
    const kill = (): void => {
      if (child.pid !== undefined) signalGroup(child.pid, "SIGKILL");
    };
    const within = AbortSignal.any([signal, AbortSignal.timeout(DEADLINE_MS)]);
    within.addEventListener("abort", kill, { once: true });
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      if (output.length > MAX_OUTPUT_BYTES) kill();
    });
    const end = (text: string): void => {
      within.removeEventListener("abort", kill);
      resolve(text);
    };
    child.once("error", () => end("")).once("close", (status) => end(status === 0 ? output : ""));
  });
}

function parsed(text: string): unknown {
  try {
    return parseStrictJson(text, { maxBytes: MAX_OUTPUT_BYTES, maxDepth: 16 });
  } catch {
    return undefined;
  }
}
