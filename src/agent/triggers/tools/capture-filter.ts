import { HostError, InputError } from "../../../errors.ts";
import type { Exec } from "../../../host/process/exec.ts";

const COMPILE = { deadlineMs: 10_000, maxOutputBytes: 256 * 1024 };

/** A filter of tcpdump(8), passed as one argument so that no word is an option. */
export function filterArguments(filter: string): string[] {
  return filter === "" ? [] : ["--", filter];
}

/**
 * Compiles a filter to check it before a capture.
 * @throws {InputError} `invalid-body` with tcpdump's message about the filter; {HostError} `exec-failed`, if tcpdump fails otherwise.
 */
export async function checkFilter(
  exec: Exec,
  event: string,
  { iface, filter }: { readonly iface: string; readonly filter: string },
  signal: AbortSignal,
): Promise<void> {
  if (filter === "") return;
  const tried = await exec.run("tcpdump", ["-d", "-n", "-i", iface, ...filterArguments(filter)], {
    signal,
    ...COMPILE,
  });
  // A filter is valid even if its compiled program is too long to show.
  if (tried.exitCode === 0 || tried.truncated) return;
  const said = tried.stderr
    .trim()
    .replace(/^tcpdump: /u, "")
    .slice(0, 512);
  if (/No such device|permission/iu.test(said)) throw new HostError("exec-failed", `tcpdump: ${said}`);
  throw new InputError("invalid-body", `${event}: filter: ${said}`, { details: { field: "filter" } });
}

/** Returns the error of a tcpdump that cannot change its user; undefined for any other message. */
export function cannotChangeUser(said: string): HostError | undefined {
  if (!said.includes("Couldn't change to")) return undefined;
  return new HostError(
    "exec-failed",
    "tcpdump could not drop its privileges: the agent lacks CAP_SETUID and CAP_SETGID",
    { details: { tool: "tcpdump" } },
  );
}
