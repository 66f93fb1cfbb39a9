import { spawn, type ChildProcessByStdio } from "node:child_process";
import { constants, setPriority } from "node:os";
import type { Readable, Writable } from "node:stream";
import { HostError, toError } from "../../errors.ts";
import { linesOf } from "../../lib/text/lines.ts";
import { TransferEvent, type TransferJob, type TransferOrder } from "../../protocol/triggers/transfer.ts";
import type { Clock } from "../clock.ts";
import { deathTie } from "./death-tie.ts";
import { SEARCH_PATH } from "./exec.ts";
import { signalGroup } from "./process-tree.ts";
import { defined } from "../../lib/defined.ts";

/** A transfer that runs in a process of its own. */
export interface TransferProcess {
  readonly pid: number;
  /** Asks it to stop and remove its partial data; kills it after 5 s. */
  cancel(): void;
  /** Lets it publish the data that it reported as complete. */
  publish(): void;
  /** Asks it to stop but keep its partial data, so that another transfer can continue; kills it after 2 s. */
  leave(): void;
  /** The result for people, and the end of its standard error. Never rejects. */
  readonly ended: Promise<{ readonly how: string; readonly said: string }>;
}

/** Starts a transfer; its events come in order and before `ended`. @throws {HostError} `transfer-failed`. */
export type StartTransfer = (job: TransferJob, onEvent: (event: TransferEvent) => void) => TransferProcess;

export interface TransferProcessOptions {
  readonly clock: Clock;
  /** File of certificate authorities that are trusted in addition to the runtime's own. */
  readonly caFile?: string | undefined;
  /** Replaces this program's own command line. */
  readonly command?: readonly [file: string, ...args: string[]];
}

/** The verb that runs one transfer. */
export const TRANSFER_VERB = "transfer";
const NICENESS = 10;
const MAX_LINE_BYTES = 64 * 1024;
const MAX_SAID = 4096;
const CANCEL_MS = 5000;
const LEAVE_MS = 2000;
/** Time for a transfer to exit after its result, in milliseconds. */
const RESULT_MS = 5000;

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

/**
 * Starts transfers as this program in process groups of their own, with niceness 10; they die with this process. The job goes
 * through standard input, because other users can read a process's arguments and environment.
 */
export function hostTransfers({ clock, caFile, command }: TransferProcessOptions): StartTransfer {
  const tied = deathTie(SEARCH_PATH);
  const [runtime = process.execPath, entry = ""] = process.argv;
  const [program, ...args] = command ?? [runtime, ...process.execArgv, entry, TRANSFER_VERB];
  return (job, onEvent) => {
    const line = tied({ file: program, args });
    const env = {
      LC_ALL: "C",
      TZ: "UTC",
      PATH: SEARCH_PATH,
      ...defined({ NODE_EXTRA_CA_CERTS: caFile }),
    };
    let child: Child;
    try {
      child = spawn(line.file, [...line.args], { env, cwd: "/", detached: true, stdio: ["pipe", "pipe", "pipe"] });
    } catch (error) {
      throw new HostError("transfer-failed", `cannot start a transfer: ${toError(error).message}`, { cause: error });
    }
    return attend(child, { clock, job, onEvent });
  };
}

interface Attending {
  readonly clock: Clock;
  readonly job: TransferJob;
  readonly onEvent: (event: TransferEvent) => void;
}

function attend(child: Child, { clock, job, onEvent }: Attending): TransferProcess {
  const { pid = 0 } = child;
  const timers: (() => void)[] = [];
  const killAfter = (ms: number): void => void timers.push(clock.after(ms, () => signalGroup(pid, "SIGKILL")));
  if (pid !== 0) lowerPriority(pid);
  // It may exit before it has read everything; its exit status says more.
  child.stdin.on("error", () => undefined);
  child.stdin.write(`${JSON.stringify(job)}\n`);
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (said = (said + text).slice(-MAX_SAID)));
  const exit = new Promise<string>((resolve) => {
    child
      .once("error", (error) => resolve(error.message))
      .once("exit", (status, signal) => resolve(signal === null ? `exit status ${status}` : signal));
  });
  const listen = async (): Promise<string | undefined> => {
    try {
      for await (const line of linesOf(child.stdout, MAX_LINE_BYTES)) {
        const event = TransferEvent.parse(JSON.parse(Buffer.from(line).toString("utf8")));
        onEvent(event);
        if (event.is === "done" || event.is === "failed") killAfter(RESULT_MS);
      }
      return undefined;
    } catch {
      // A process with invalid output is killed.
      if (pid !== 0) signalGroup(pid, "SIGKILL");
      return "the output of the transfer process is not valid";
    }
  };
  const ended = (async () => {
    const [wrong, how] = await Promise.all([pid === 0 ? undefined : listen(), exit]);
    for (const cancel of timers.splice(0)) cancel();
    child.stdin.destroy();
    return { how: wrong ?? how, said: said.trim() };
  })();
  const say = (order: TransferOrder): void => {
    if (child.stdin.writable) child.stdin.write(`${JSON.stringify(order)}\n`);
  };
  return {
    pid,
    cancel() {
      say({ is: "cancel" });
      killAfter(CANCEL_MS);
    },
    publish: () => say({ is: "publish" }),
    leave() {
      child.stdin.end();
      killAfter(LEAVE_MS);
    },
    ended,
  };
}

/** Lowers the priority before the process starts more threads, because each thread has its own niceness: setpriority(2). */
function lowerPriority(pid: number): void {
  try {
    setPriority(pid, Math.min(NICENESS, constants.priority.PRIORITY_LOW));
  } catch {
    // The process has already exited.
  }
}
