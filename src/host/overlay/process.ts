import { backoff } from "../../lib/async/backoff.ts";
import { spawn } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { join } from "node:path";
import type { Logger } from "pino";
import { HostError, toError } from "../../errors.ts";
import { OVERLAY_SOCKET } from "../../protocol/overlay/overlay.ts";
import type { Clock } from "../clock.ts";
import type { Files } from "../files/files.ts";
import { probeSocket } from "../net/unix-socket.ts";

/** A started overlay process; it outlives this process. */
export interface OverlayProcess {
  readonly pid: number;
  /** Resolves when it has ended, to the exit status or signal. */
  readonly ended: Promise<string>;
}

/** Truncates first, then appends, since a successor writes to the same file. */
const BEGUN_ANEW = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_APPEND;

/** Starts a detached overlay process. */
export type StartOverlay = () => OverlayProcess;

/**
 * Starts `holdfast overlay` with this program's runtime and arguments, in a session of its own. Its output replaces
 * `STATE/overlay.log`.
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

export interface OverlayLauncherOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly files: Pick<Files, "makeDirectory">;
  readonly stateDir: string;
  readonly runDir: string;
}

/** Interval at which the socket of a starting overlay is polled. */
export const CONNECT_EVERY_MS = 20;
const CONNECT_WITHIN_MS = 10_000;
/** An overlay that ran for so long counts as successfully started. */
const PROVEN_MS = 60_000;
/** Delays from the second failed start on. */
const RESTART = { firstMs: 500, maxMs: 60_000 };

/** Starts overlays, with exponential backoff after failures. */
export class OverlayLauncher {
  readonly #options: OverlayLauncherOptions;
  #failedStarts = 0;
  #startedAt = -Infinity;

  constructor(options: OverlayLauncherOptions) {
    this.#options = options;
  }

  /**
   * Starts an overlay and waits until its socket answers.
   * @throws {HostError} `overlay-failed`, also while the backoff lasts.
   */
  async start(start: StartOverlay, signal: AbortSignal): Promise<void> {
    const { clock, files, stateDir, runDir, log } = this.#options;
    const waitMs = this.#startedAt + waitBefore(this.#failedStarts) - clock.elapsed();
    if (waitMs > 0) {
      const text = `the overlay exited ${this.#failedStarts} times soon after its start; next start in ${Math.ceil(waitMs / 1000)} s`;
      throw new HostError("overlay-failed", text);
    }
    await files.makeDirectory(stateDir, 0o700);
    const startedAt = clock.elapsed();
    this.#startedAt = startedAt;
    this.#failedStarts += 1;
    const started = start();
    log.info({ pid: started.pid, runDir }, "overlay started");
    let end: string | undefined;
    void started.ended.then((how) => {
      end = how;
      if (clock.elapsed() - startedAt >= PROVEN_MS) this.#failedStarts = 0;
      log.warn({ pid: started.pid, end: how }, "the overlay exited");
    });
    const deadline = clock.elapsed() + CONNECT_WITHIN_MS;
    for (;;) {
      await clock.sleep(CONNECT_EVERY_MS, signal);
      if (end !== undefined) throw new HostError("overlay-failed", `the overlay exited at its start: ${end}`);
      if ((await probeSocket(join(runDir, OVERLAY_SOCKET))) === "live") return;
      if (clock.elapsed() > deadline)
        throw new HostError("overlay-failed", "the overlay does not answer on its socket");
    }
  }
}

function waitBefore(failedStarts: number): number {
  return failedStarts <= 1 ? 0 : backoff(failedStarts - 1, RESTART);
}
