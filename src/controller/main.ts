import type { Logger } from "pino";
import { AgentError, InputError, toError } from "../errors.ts";
import { systemClock } from "../host/clock.ts";
import { scratchDirectory } from "../host/files/scratch.ts";
import { rootLogger, standardOutput } from "../host/log.ts";
import { writePidFile, type PidFile } from "../host/process/pid-file.ts";
import { serviceManager } from "../host/process/service-manager.ts";
import { makeRunDirectory } from "../host/net/unix-socket.ts";
import { startWatchdog } from "../host/process/watchdog.ts";
import { buildInfo } from "../lib/build-info.ts";
import { startController, type Controller } from "./controller.ts";
import { readOptions } from "./options.ts";
import { isTask } from "./maintenance/tasks.ts";
import { isLogInJournal, readSupervision } from "./settings.ts";

/** Runs `holdfast controller` until SIGTERM or SIGINT, or one of its tasks; resolves to the exit status. */
export async function run(argv: readonly string[]): Promise<number> {
  process.umask(0o077);
  const [task, ...rest] = argv;
  if (isTask(task)) return (await import("./maintenance/main.ts")).runTask(task, rest);
  try {
    const { log } = rootLogger({ level: "info", destination: standardOutput(isLogInJournal()) });
    await using stack = new AsyncDisposableStack();
    const { runDir, ...options } = await placed(readOptions(argv), stack);
    let end = (): void => undefined;
    let fault: Error | undefined;
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const onTakenOver = (error: Error): void => {
      fault = error;
      end();
    };
    const controller = await startController({ ...options, log, onTakenOver });
    const pidFile = await writePid(runDir).catch(async (error: unknown) => {
      await controller.close();
      throw error;
    });
    log.info(
      { version: buildInfo.version, url: controller.url, adminKey: controller.adminKeyPath },
      "controller started",
    );
    const supervision = readSupervision();
    const manager = serviceManager(supervision);
    const line = `Serving ${controller.url}`;
    manager.ready(line);
    const stopWatchdog = watch(supervision.watchdogMs, log, controller, () => manager.alive(line));
    process.once("SIGTERM", end).once("SIGINT", end);
    await ended;
    stopWatchdog?.();
    manager.stopping();
    await controller.close();
    pidFile.remove();
    if (fault !== undefined) throw fault;
    log.info("controller stopped");
    return 0;
  } catch (thrown) {
    const error = toError(thrown);
    process.stderr.write(`holdfast controller: ${error.message}\n`);
    const isUsage = error instanceof InputError && (error.code === "usage" || error.code === "invalid-settings");
    return isUsage ? 2 : error instanceof AgentError ? 1 : 70;
  }
}

/** Gives a mock a directory of its own, which `stack` removes. */
async function placed<T extends ReturnType<typeof readOptions>>(options: T, stack: AsyncDisposableStack): Promise<T> {
  if (options.isMock !== true) return options;
  const directory = await scratchDirectory("holdfast-mock-", stack);
  const { dataDir, runDir } = options;
  return { ...options, dataDir: directory, runDir: runDir === dataDir ? directory : runDir };
}

function watch(
  limitMs: number | undefined,
  log: Logger,
  controller: Controller,
  feed: () => void,
): (() => void) | undefined {
  if (limitMs === undefined) return undefined;
  return startWatchdog({ clock: systemClock(), log, limitMs, check: () => controller.check(), feed });
}

async function writePid(runDir: string): Promise<PidFile> {
  await makeRunDirectory(runDir);
  return writePidFile(runDir, "controller");
}
