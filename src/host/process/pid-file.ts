import { unlinkSync } from "node:fs";
import { join } from "node:path";
import { errnoOf } from "../../errors.ts";
import { hostFiles } from "../files/files.ts";
import { readRegularFile, readRegularFileSync } from "../files/regular-file.ts";

const MAX_BYTES = 64;

/** A pid file of this process. */
export interface PidFile {
  readonly path: string;
  /** Removes the file if it still names this process; may be called from an `exit` handler and more than once. */
  remove(): void;
}

/** Writes this process's id to `RUN/<program>.pid`, replacing any earlier file. */
export async function writePidFile(runDir: string, program: string): Promise<PidFile> {
  const path = pidPath(runDir, program);
  await hostFiles().writeAtomic(path, `${process.pid}\n`, 0o644);
  return {
    path,
    remove() {
      try {
        if (Number(readRegularFileSync(path, MAX_BYTES).toString()) === process.pid) unlinkSync(path);
      } catch (error) {
        if (errnoOf(error) !== "ENOENT") throw error;
      }
    },
  };
}

/** Returns the process id in `RUN/<program>.pid`, if a process with that id is alive. */
export async function readPidFile(runDir: string, program: string): Promise<number | undefined> {
  let text: string;
  try {
    text = (await readRegularFile(pidPath(runDir, program), MAX_BYTES)).toString();
  } catch {
    return undefined; // missing or not readable by this user
  }
  const pid = /^[1-9]\d{0,9}\s*$/.test(text) ? Number(text) : undefined;
  return pid !== undefined && isAlive(pid) ? pid : undefined;
}

function pidPath(runDir: string, program: string): string {
  return join(runDir, `${program}.pid`);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return errnoOf(error) === "EPERM";
  }
}
