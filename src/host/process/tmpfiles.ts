import { HostError } from "../../errors.ts";
import type { Exec } from "./exec.ts";
import { privilegedExec } from "./privileged-exec.ts";

/** The tmpfiles.d(5) rules for the directories of a managed install. */
const RULES = "/usr/lib/tmpfiles.d/holdfast.conf";
const BOUNDS = { deadlineMs: 30_000, maxOutputBytes: 16_384 };

/** Makes a directory of a managed install again, with the owner and mode that the package sets. @throws {HostError} `directory-failed`. */
export async function makeManagedDirectory(exec: Pick<Exec, "run">, path: string): Promise<void> {
  const options = { ...BOUNDS, signal: AbortSignal.timeout(BOUNDS.deadlineMs) };
  const args = ["--create", `--prefix=${path}`, RULES];
  const { exitCode, stderr } = await privilegedExec(exec, true).run("systemd-tmpfiles", args, options);
  if (exitCode === 0) return;
  const reason = stderr.trim().slice(0, 300) || `exit status ${exitCode}`;
  throw new HostError("directory-failed", `cannot make ${path} again: systemd-tmpfiles: ${reason}`);
}
