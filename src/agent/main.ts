import { AgentError, InputError, toError } from "../errors.ts";
import { systemClock } from "../host/clock.ts";
import { collectGarbage } from "../host/engine-flags.ts";
import { hostFiles } from "../host/files.ts";
import { trimMemory } from "../host/libc.ts";
import { rootLogger, standardOutput } from "../host/log.ts";
import { writePidFile } from "../host/pid-file.ts";
import { hostReader } from "../host/reader.ts";
import { serviceManager } from "../host/service-manager.ts";
import { startWatchdog } from "../host/watchdog.ts";
import { buildInfo } from "../lib/build-info.ts";
import { startAgent } from "./agent.ts";
import { readSettings } from "./settings.ts";

/** Once the first session has done its work, and once all that follows a start is over: the first report, the first samples. */
const TRIM_AFTER_MS = [10_000, 70_000];

/** Runs `holdfast agent` until it is told to stop; resolves to the exit status. */
export async function run(argv: readonly string[]): Promise<number> {
  process.umask(0o077);
  const files = hostFiles();
  try {
    const settings = await readSettings(argv, files);
    const { log, memory } = rootLogger({
      level: settings.logLevel,
      destination: standardOutput(settings.isJournal === true),
    });
    const clock = systemClock();
    const agent = await startAgent({ settings, clock, files, reader: hostReader(), log, memory, random: Math.random });
    const pidFile = await writePidFile(settings.runDir, "agent");
    const { supervision } = settings;
    const manager = serviceManager(supervision);
    manager.ready(agent.pulse.line());
    const endWatchdog =
      supervision.watchdogMs === undefined
        ? undefined
        : startWatchdog({
            clock,
            log,
            limitMs: supervision.watchdogMs,
            check: () => agent.pulse.check(),
            feed: () => manager.alive(agent.pulse.line()),
          });
    log.info({ version: buildInfo.version, build: buildInfo.build, stateDir: settings.stateDir }, "agent started");
    // Starting leaves 8 MB unused but resident, and what comes after it 2 more.
    for (const ms of TRIM_AFTER_MS) {
      clock.after(ms, () => {
        collectGarbage();
        trimMemory();
      });
    }
    await untilTold((signal) => {
      if (signal === "SIGHUP") agent.wake();
    });
    endWatchdog?.();
    manager.stopping();
    await agent.close();
    pidFile.remove();
    log.info("agent stopped");
    return 0;
  } catch (thrown) {
    const error = toError(thrown);
    process.stderr.write(`holdfast agent: ${error.message}\n`);
    return error instanceof InputError && error.code === "usage" ? 2 : error instanceof AgentError ? 1 : 70;
  }
}

/** Resolves at SIGTERM or SIGINT; SIGHUP is passed on. */
function untilTold(onSignal: (signal: NodeJS.Signals) => void): Promise<void> {
  return new Promise((resolve) => {
    const stop = (): void => resolve();
    process.once("SIGTERM", stop).once("SIGINT", stop).on("SIGHUP", onSignal);
  });
}
