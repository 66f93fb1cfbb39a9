import { AgentError, InputError, toError } from "../errors.ts";
import { systemClock } from "../host/clock.ts";
import { collectGarbage } from "../host/process/engine-flags.ts";
import { hostFiles } from "../host/files/files.ts";
import { trimMemory } from "../host/process/libc.ts";
import { rootLogger, standardOutput } from "../host/log.ts";
import { writePidFile } from "../host/process/pid-file.ts";
import { hostReader } from "../host/reader.ts";
import { serviceManager } from "../host/process/service-manager.ts";
import { startWatchdog } from "../host/process/watchdog.ts";
import { buildInfo } from "../lib/build-info.ts";
import type { Agent, AgentOptions } from "./wiring/options.ts";
import { startAgent } from "./wiring/agent.ts";
import { readResetOrder, withLeftNetwork } from "./reset/order.ts";
import { keepMemoryLow, ownUsage } from "./telemetry/metrics/resting-memory.ts";
import { readSettings, type AgentSettings } from "./settings.ts";

/** Runs `holdfast agent` until it is stopped; resolves to the exit status. After a reset a new agent starts in the same process. */
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
    const reader = hostReader();
    const parts = { clock, files, reader, log, memory, random: Math.random };
    const { supervision } = settings;
    const manager = serviceManager(supervision);
    let onReset = (): void => undefined;
    const ordered = (): Promise<"reset"> =>
      new Promise((resolve) => {
        onReset = () => resolve("reset");
      });
    const all = { ...parts, onReset: () => onReset() };
    let again = ordered();
    let agent: Agent | undefined = await begin(argv, all, settings);
    const pidFile = await writePidFile(settings.runDir, "agent");
    const line = (): string => agent?.pulse.line() ?? "Resetting";
    manager.ready(line());
    const endWatchdog =
      supervision.watchdogMs === undefined
        ? undefined
        : startWatchdog({
            clock,
            log,
            limitMs: supervision.watchdogMs,
            check: () => agent?.pulse.check(),
            feed: () => manager.alive(line()),
          });
    log.info({ version: buildInfo.version, build: buildInfo.build, stateDir: settings.stateDir }, "agent started");
    const endTrimming = keepMemoryLow({
      clock,
      usage: () => ownUsage(reader),
      giveBack() {
        collectGarbage();
        trimMemory(reader);
      },
    });
    const stopped = untilSignal((signal) => {
      if (signal === "SIGHUP") agent?.wake();
    });
    while ((await Promise.race([stopped, again])) === "reset") {
      const previous = agent;
      agent = undefined;
      await previous?.close();
      again = ordered();
      agent = await begin(argv, all);
      log.info({ stateDir: settings.stateDir }, "agent started anew");
    }
    endWatchdog?.();
    endTrimming();
    manager.stopping();
    await agent?.close();
    pidFile.remove();
    log.info("agent stopped");
    return 0;
  } catch (thrown) {
    const error = toError(thrown);
    process.stderr.write(`holdfast agent: ${error.message}\n`);
    return error instanceof InputError && error.code === "usage" ? 2 : error instanceof AgentError ? 1 : 70;
  }
}

/** Starts an agent. An ordered or interrupted reset is performed first. */
async function begin(
  argv: readonly string[],
  parts: Omit<AgentOptions, "settings">,
  given?: AgentSettings,
): Promise<Agent> {
  const { files } = parts;
  const settings = given ?? (await readSettings(argv, files));
  const isDue = (await readResetOrder(files, settings.stateDir)) !== undefined;
  const done = isDue ? await (await import("./wiring/reset.ts")).completeReset({ ...parts, settings }) : undefined;
  const found = (done?.left ?? []).map((what) => ({ code: "reset-incomplete", message: `the reset left ${what}` }));
  return startAgent({ ...parts, settings: await withLeftNetwork(settings, files), found });
}

/** Resolves at SIGTERM or SIGINT; passes SIGHUP on. */
function untilSignal(onSignal: (signal: NodeJS.Signals) => void): Promise<"stopped"> {
  return new Promise((resolve) => {
    const stop = (): void => resolve("stopped");
    process.once("SIGTERM", stop).once("SIGINT", stop).on("SIGHUP", onSignal);
  });
}
