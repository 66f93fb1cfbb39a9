import { HostError, InputError } from "../../errors.ts";
import { UPGRADE_PATHS, type UpgradeRequest } from "../../protocol/documents/release.ts";
import type { Exec } from "./exec.ts";
import type { Files } from "../files/files.ts";

export interface UpgradeUnitOptions {
  readonly exec: Exec;
  readonly files: Pick<Files, "writeAtomic" | "remove">;
  /** Whether a package installed this program under systemd. */
  readonly isManaged: boolean;
  /** Path of the file that passes the request. */
  readonly requestPath: string;
}

/** The systemd unit of the upgrade program. */
export interface UpgradeUnit {
  readonly isManaged: boolean;
  /** Reports whether the unit is running or queued. @throws {HostError} `exec-failed`, `tool-missing`. */
  isAtWork(): Promise<boolean>;
  /**
   * Writes the request and starts the unit without waiting for the result. Removes the request on failure. @throws {HostError}
   * `exec-failed`.
   */
  start(request: UpgradeRequest): Promise<void>;
}

const DEADLINE_MS = 30_000;
const MODE = 0o600;
/** Matches a running unit, or one with a queued job. */
const AT_WORK = /^(?:ActiveState=(?:active|activating|reloading|refreshing|deactivating)|Job=[1-9]\d*)$/m;

/** Refuses users other than root. @throws {InputError} `access-denied`. */
export function requireRoot(what: string): void {
  if (process.geteuid?.() !== 0)
    throw new InputError("access-denied", `only root may do this: run '${what}' with sudo`);
}

/** Returns the upgrade's unit through systemctl(1). */
export function upgradeUnit({ exec, files, isManaged, requestPath }: UpgradeUnitOptions): UpgradeUnit {
  const { unit } = UPGRADE_PATHS;
  const systemctl = async (...args: readonly string[]): Promise<string> => {
    const options = { signal: new AbortController().signal, deadlineMs: DEADLINE_MS, maxOutputBytes: 16_384 };
    const { exitCode, stdout, stderr } = await exec.run("systemctl", args, options);
    if (exitCode === 0) return stdout;
    const why = stderr.trim() || `exit status ${exitCode}`;
    throw new HostError("exec-failed", `systemctl ${args[0] ?? ""} failed for ${unit}: ${why}`, {
      details: { tool: "systemctl", exitCode },
    });
  };
  return {
    isManaged,
    isAtWork: async () => AT_WORK.test(await systemctl("show", "--property=ActiveState,Job", "--", unit)),
    async start(request) {
      await files.writeAtomic(requestPath, `${JSON.stringify(request)}\n`, MODE);
      try {
        await systemctl("start", "--no-block", "--", unit);
      } catch (error) {
        // The unit did not start; a later start must not execute an old request.
        await files.remove(requestPath).catch(() => undefined);
        throw error;
      }
    },
  };
}
