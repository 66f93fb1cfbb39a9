import { spawn } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { join } from "node:path";
import { HostError, toError } from "../../errors.ts";

/** An overlay that was started here; it lives on without whoever started it. */
export interface OverlayProcess {
  readonly pid: number;
  /** How it ended, once it has. */
  readonly ended: Promise<string>;
}

/** Each line goes to the end, since a successor writes there too. */
const BEGUN_ANEW = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_APPEND;

/** Starts an overlay program for good. */
export type StartOverlay = () => OverlayProcess;

/**
 * Starts `holdfast overlay` as this program was started, in a session of its own, its output in `STATE/overlay.log`, begun anew.
 * @throws {HostError} `overlay-failed`.
 */
export function startOverlayProcess(stateDir: string, runDir: string): OverlayProcess {
  const [node, entry = ""] = process.argv;
  let output: number | undefined;
  try {
    output = openSync(join(stateDir, "overlay.log"), BEGUN_ANEW, 0o600);
    const child = spawn(
      node ?? process.execPath,
      [...process.execArgv, entry, "overlay", "--state", stateDir, "--run", runDir],
      { detached: true, stdio: ["ignore", output, output], cwd: "/" },
    );
    const ended = new Promise<string>((resolve) => {
      child
        .once("error", (error) => resolve(error.message))
        .once("exit", (status, signal) => resolve(signal === null ? `exit status ${status}` : signal));
    });
    child.unref();
    if (child.pid === undefined) throw new HostError("overlay-failed", `cannot start ${node} ${entry}`);
    return { pid: child.pid, ended };
  } catch (error) {
    if (error instanceof HostError) throw error;
    throw new HostError("overlay-failed", `cannot start the overlay: ${toError(error).message}`, { cause: error });
  } finally {
    if (output !== undefined) closeSync(output);
  }
}
