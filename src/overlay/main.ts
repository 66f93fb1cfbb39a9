import { networkInterfaces } from "node:os";
import { AgentError, InputError, toError } from "../errors.ts";
import { systemClock } from "../host/clock.ts";
import { compileAll, makeRoom, preferSpeed } from "../host/process/engine-flags.ts";
import { hostFiles } from "../host/files/files.ts";
import { rootLogger, standardOutput } from "../host/log.ts";
import { writePidFile } from "../host/process/pid-file.ts";
import { hostReader } from "../host/reader.ts";
import { buildInfo } from "../lib/build-info.ts";
import { GAVE_WAY_STATUS, MAX_DRAIN_MS } from "../protocol/overlay/overlay.ts";
import { askMachine } from "./dial/name-cache.ts";
import { startOverlay, type Overlay } from "./overlay.ts";
import { isLogInJournal, isUnit, readOptions } from "./settings.ts";
import { descriptorLimit } from "./limits/socket-budget.ts";

/**
 * Runs `holdfast overlay` until it has drained, gets a second signal, or, outside systemd, its state directory is
 * removed. Resolves to the exit status.
 */
export async function run(argv: readonly string[]): Promise<number> {
  process.umask(0o077);
  let overlay: Overlay | undefined;
  let isStopping = false;
  // A signal during start-up ends the process when the start is complete.
  const stop = (): void => {
    if (overlay === undefined || isStopping) overlay?.close();
    else void overlay.drain(MAX_DRAIN_MS);
    isStopping = true;
  };
  process.on("SIGTERM", stop).on("SIGINT", stop);
  const { log } = rootLogger({ level: "info", destination: standardOutput(isLogInJournal()) });
  // The overlay outlives the terminal that started it.
  process.on("SIGHUP", () => log.info("SIGHUP is ignored"));
  try {
    const { stateDir, runDir, isSuccessor } = readOptions(argv);
    overlay = await startOverlay({
      stateDir,
      runDir,
      isSuccessor,
      endsWithState: !isUnit(),
      clock: systemClock(),
      files: hostFiles(),
      log,
      askName: askMachine,
      localAddresses,
      descriptorLimit: descriptorLimit(hostReader()),
      onMesh: compileAll,
      onFirstFlow: preferSpeed,
      makeRoom,
    });
    const pidFile = await writePidFile(runDir, "overlay");
    log.info({ version: buildInfo.version, stateDir, runDir }, "overlay started");
    if (isStopping) overlay.close();
    await overlay.ended;
    pidFile.remove();
    log.info("overlay stopped");
    return overlay.wasReplaced ? GAVE_WAY_STATUS : 0;
  } catch (thrown) {
    const error = toError(thrown);
    process.stderr.write(`holdfast overlay: ${error.message}\n`);
    return error instanceof InputError && error.code === "usage" ? 2 : error instanceof AgentError ? 1 : 70;
  }
}

/** Returns the machine's addresses; none if the system denies the query, and then only its listeners' addresses are known. */
function localAddresses(): readonly string[] {
  try {
    return Object.values(networkInterfaces()).flatMap((link) => link?.map(({ address }) => address) ?? []);
  } catch {
    return [];
  }
}
