import { HostError } from "../../errors.ts";
import type { Exec } from "./exec.ts";

export interface PowerOptions {
  /** Whether a package installed this program under systemd, so that it may restart itself and the machine. */
  readonly isManaged: boolean;
  /** The agent's own unit. */
  readonly unit: string;
}

/** Restarts this program or the machine. Both end this process soon after they resolve. */
export interface Power {
  readonly isManaged: boolean;
  /** @throws {HostError} `not-supported` outside a managed install, `exec-failed` when systemd refuses. */
  restartService(): Promise<void>;
  /** @throws {HostError} `not-supported` outside a managed install, `exec-failed` when systemd refuses. */
  reboot(): Promise<void>;
}

const DEADLINE_MS = 30_000;

/** Power through systemctl(1). */
export function hostPower(exec: Exec, { isManaged, unit }: PowerOptions): Power {
  const systemctl = async (verb: string, ...args: readonly string[]): Promise<void> => {
    if (!isManaged) {
      throw new HostError("not-supported", `systemctl ${verb}: this is not a managed install`);
    }
    const options = { signal: new AbortController().signal, deadlineMs: DEADLINE_MS, maxOutputBytes: 16_384 };
    const { exitCode, stderr } = await exec.run("systemctl", [verb, ...args], options);
    if (exitCode !== 0) {
      throw new HostError("exec-failed", `systemctl ${verb}: ${stderr.trim() || `exit status ${exitCode}`}`, {
        details: { tool: "systemctl", exitCode },
      });
    }
  };
  return {
    isManaged,
    restartService: () => systemctl("restart", "--no-block", "--", unit),
    reboot: () => systemctl("reboot"),
  };
}
