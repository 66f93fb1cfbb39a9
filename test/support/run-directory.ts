import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statfsSync,
  writeFileSync,
} from "node:fs";
import { freemem, tmpdir } from "node:os";
import { basename, join } from "node:path";
import { unescaped } from "../../src/host/data-store/remove.ts";
import { UNDER_UNITS } from "./machine/real-units.ts";

const MEMORY = "/dev/shm";
/** Tests that run at the same time hold some GB at most, mostly releases and engines' images. */
const ENOUGH_BYTES = 8 * 2 ** 30;
/** The kernel gives the process namespace of the machine this number (PROC_PID_INIT_INO). */
const INITIAL_NAMESPACE = "pid:[4026531836]";
const UNMOUNT_MS = 10_000;

/**
 * Makes a directory for the temporary files of this run, and removes it with them. It lies in memory if there is room: what is tested
 * syncs its files all the time, for which tests on a disk wait longer than they compute. Under units `TMPDIR` is set by their machine.
 */
export function setup(): (() => void) | undefined {
  if (UNDER_UNITS || isOurs(tmpdir())) return undefined;
  const dir = madeInMemory() ?? made(tmpdir());
  // For everybody, as /tmp is: some programs run as other users.
  chmodSync(dir, 0o1777);
  process.env["TMPDIR"] = dir;
  return () => removeTree(dir);
}

/** Reports whether a directory is the one of this run; every project whose setup needs it makes it, the first one does. */
const isOurs = (dir: string): boolean => basename(dir).startsWith(`hf${process.pid}.`);

function hasRoom(): boolean {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    return Math.min(bavail * bsize, freemem()) > ENOUGH_BYTES;
  } catch {
    return false;
  }
}

/** Makes it in memory. Undefined without enough room, or if nothing can be written or run there (`noexec`). */
function madeInMemory(): string | undefined {
  if (!hasRoom()) return undefined;
  try {
    const dir = made(MEMORY);
    const program = join(dir, "program");
    writeFileSync(program, "#!/bin/sh\n", { mode: 0o755 });
    const { status } = spawnSync(program);
    rmSync(program);
    if (status === 0) return dir;
    rmSync(dir, { recursive: true });
  } catch {
    // Not ours to write into.
  }
  return undefined;
}

/** Names its process, so that the next run finds what a killed one left. */
function made(parent: string): string {
  sweep(parent);
  return mkdtempSync(join(parent, `hf${process.pid}.`));
}

/** Removes the directories of runs whose process is dead. In a process namespace of our own, those of others look dead. */
export function sweep(parent: string): void {
  if (readlinkSync("/proc/self/ns/pid") !== INITIAL_NAMESPACE) return;
  for (const name of readdirSync(parent)) {
    const [, pid] = /^hf(\d+)\.\w{6}$/.exec(name) ?? [];
    if (pid === undefined || existsSync(`/proc/${pid}`)) continue;
    try {
      removeTree(join(parent, name));
    } catch {
      // Another user's, or in use.
    }
  }
}

/** Removes a directory without what is mounted in it, which may be a folder of the machine. Keeps it if that cannot be unmounted. */
function removeTree(dir: string): void {
  for (const path of mountsBelow(dir).toReversed()) {
    spawnSync("umount", ["--lazy", "--", path], { stdio: "ignore", timeout: UNMOUNT_MS });
  }
  const [left] = mountsBelow(dir);
  if (left !== undefined) throw new Error(`${dir} is kept: ${left} cannot be unmounted`);
  rmSync(dir, { recursive: true, force: true });
}

/** Returns the mount points below a directory, in the order in which they were mounted. */
function mountsBelow(dir: string): readonly string[] {
  const points = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  return points.map((line) => unescaped(line.split(" ")[4] ?? "")).filter((point) => point.startsWith(`${dir}/`));
}
