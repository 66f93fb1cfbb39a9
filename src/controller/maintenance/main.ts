import { AgentError, InputError, toError } from "../../errors.ts";
import { systemClock } from "../../host/clock.ts";
import { sizeText } from "../../lib/text/size-text.ts";
import { backup } from "./backup.ts";
import { placeText } from "./places.ts";
import { migrate, restore } from "./restore.ts";
import { readOrder, type Task } from "./tasks.ts";

const INTERRUPTED = 130;

/** Runs a task of `holdfast controller`; SIGTERM and SIGINT cancel it. Resolves to the exit status. */
export async function runTask(task: Task, argv: readonly string[]): Promise<number> {
  const ended = new AbortController();
  const end = (): void => ended.abort();
  process.once("SIGTERM", end).once("SIGINT", end);
  try {
    process.stdout.write(`${await run(task, argv, ended.signal)}\n`);
    return 0;
  } catch (thrown) {
    if (ended.signal.aborted) return INTERRUPTED;
    const error = toError(thrown);
    process.stderr.write(`holdfast controller ${task}: ${error.message}\n`);
    const isUsage = error instanceof InputError && (error.code === "usage" || error.code === "invalid-settings");
    return isUsage ? 2 : error instanceof AgentError ? 1 : 70;
  }
}

async function run(task: Task, argv: readonly string[], signal: AbortSignal): Promise<string> {
  const order = readOrder(task, argv);
  const deps = { clock: systemClock(), signal };
  switch (order.task) {
    case "backup":
      return `wrote ${order.file} (${sizeText(await backup(order.file, order.place, deps))}); it holds private keys`;
    case "restore":
      await restore(order.file, order.place, order, deps);
      return `restored ${placeText(order.place)}; nodes follow it once the controller runs`;
    case "migrate":
      await migrate(order.from, order.to, order, deps);
      return `migrated ${placeText(order.from)} to ${placeText(order.to)}; start the controller with that store`;
  }
}
