import { HostError, InputError } from "../../errors.ts";
import { UPGRADE_PATHS, type UpgradeRequest } from "../../protocol/documents/release.ts";
import type { Exec } from "./exec.ts";
import type { Files } from "../files/files.ts";

export interface UpgradeUnitOptions {
  readonly exec: Exec;
  readonly files: Pick<Files, "writeAtomic" | "remove">;
  /** Whether a package installed this program under systemd. */
  readonly isManaged: boolean;
  /** Where the request is left. */
  readonly requestPath: string;
}

/** The program that upgrades, in its unit. */
export interface UpgradeUnit {
  readonly isManaged: boolean;
  /** Whether it is at work, or about to be. @throws {HostError} `exec-failed`, `tool-missing`. */
  isAtWork(): Promise<boolean>;
  /** Leaves the request and starts it, without waiting for what becomes of it. @throws {HostError} `exec-failed`; nothing is left then. */
  start(request: UpgradeRequest): Promise<void>;
}

const DEADLINE_MS = 30_000;
const MODE = 0o600;
/** Running, or with a job that waits to run it. */
const AT_WORK = /^(?:ActiveState=(?:active|activating|reloading|refreshing|deactivating)|Job=[1-9]\d*)$/m;

/** Refuses whoever may not ask for it. @throws {InputError} `access-denied`. */
export function requireRoot(what: string): void {
  if (process.geteuid?.() !== 0)
    throw new InputError("access-denied", `only root may do this: run '${what}' with sudo`);
}

/** The upgrade's unit through systemctl(1). */
export function upgradeUnit({ exec, files, isManaged, requestPath }: UpgradeUnitOptions): UpgradeUnit {
  const { unit } = UPGRADE_PATHS;
  const systemctl = async (...args: readonly string[]): Promise<string> => {
    const options = { signal: new AbortController().signal, deadlineMs: DEADLINE_MS, maxOutputBytes: 16_384 };
    const { exitCode, stdout, stderr } = await exec.run("systemctl", args, options);
    if (exitCode === 0) return stdout;
    const why = stderr.trim() || `exit status ${exitCode}`;
    throw new HostError("exec-failed", `${unit} could not be started: ${why}`, {
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
        // Nobody takes it now; left behind it would be taken at a time when nobody asked.
        await files.remove(requestPath).catch(() => undefined);
        throw error;
      }
    },
  };
}
