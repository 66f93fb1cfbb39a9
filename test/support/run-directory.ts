import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { freemem, tmpdir } from "node:os";
import { join } from "node:path";
import { UNDER_UNITS } from "./machine/real-units.ts";

const MEMORY = "/dev/shm";
/** Tests that run at the same time hold some GB at most, mostly releases and engines' images. */
const ENOUGH_BYTES = 8 * 2 ** 30;

/**
 * Makes a directory for the temporary files of this run, and removes it with them. It lies in memory if there is room: what is tested
 * syncs its files all the time, for which tests on a disk wait longer than they compute. Under units `TMPDIR` is set by their machine.
 */
export function setup(): (() => void) | undefined {
  if (UNDER_UNITS) return undefined;
  const dir = (hasRoom() ? made(MEMORY) : undefined) ?? mkdtempSync(join(tmpdir(), "hf"));
  // For everybody, as /tmp is: some programs run as other users.
  chmodSync(dir, 0o1777);
  process.env["TMPDIR"] = dir;
  return () => rmSync(dir, { recursive: true, force: true });
}

function hasRoom(): boolean {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    return Math.min(bavail * bsize, freemem()) > ENOUGH_BYTES;
  } catch {
    return false;
  }
}

/** Names its process, so that the next run finds what a killed one left in memory. Undefined if nothing can be run there (`noexec`). */
function made(parent: string): string | undefined {
  for (const name of readdirSync(parent)) {
    const [, pid] = /^hf(\d+)\.\w{6}$/.exec(name) ?? [];
    if (pid === undefined || existsSync(`/proc/${pid}`)) continue;
    try {
      rmSync(join(parent, name), { recursive: true, force: true });
    } catch {
      // The killed run left something mounted in it.
    }
  }
  const dir = mkdtempSync(join(parent, `hf${process.pid}.`));
  const program = join(dir, "program");
  writeFileSync(program, "#!/bin/sh\n", { mode: 0o755 });
  const { status } = spawnSync(program);
  rmSync(program);
  if (status === 0) return dir;
  rmSync(dir, { recursive: true });
  return undefined;
}
