import { fstatSync } from "node:fs";
import { sdNotify } from "./libc.ts";

/** What a service manager asked of this process, out of its environment. */
export interface Supervision {
  /** Where `sd_notify(3)` messages go. */
  readonly notifySocket: string | undefined;
  /** How long it waits for a sign of life; undefined when it waits for none. */
  readonly watchdogMs: number | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Reads it as sd_notify(3) and sd_watchdog_enabled(3) do. A watchdog that is meant for another process is none. */
export function supervisionOf(env: Environment, pid: number): Supervision {
  const notifySocket = env["NOTIFY_SOCKET"] === "" ? undefined : env["NOTIFY_SOCKET"];
  const text = env["WATCHDOG_USEC"] ?? "";
  const isOurs = (env["WATCHDOG_PID"] ?? String(pid)) === String(pid);
  const ms = /^\d{1,15}$/.test(text) ? Math.floor(Number(text) / 1000) : 0;
  return { notifySocket, watchdogMs: notifySocket !== undefined && isOurs && ms > 0 ? ms : undefined };
}

/** Whether what this process writes goes to the journal, as systemd.exec(5) says of JOURNAL_STREAM. */
export function writesToJournal(env: Environment): boolean {
  const { dev, ino } = fstatSync(process.stdout.fd);
  return env["JOURNAL_STREAM"] === `${dev}:${ino}`;
}

/** The service manager that runs this process; without one nothing is told. What cannot be sent is lost: the next word says more. */
export interface ServiceManager {
  /** It serves. */
  ready(status: string): void;
  stopping(): void;
  /** It lives, and stands like this. */
  alive(status: string): void;
}

export function serviceManager({ notifySocket }: Pick<Supervision, "notifySocket">): ServiceManager {
  const tell = (...lines: readonly string[]): void => {
    if (notifySocket !== undefined) sdNotify(notifySocket, lines.join("\n"));
  };
  return {
    ready: (status) => tell("READY=1", statusLine(status)),
    stopping: () => tell("STOPPING=1", statusLine("Stopping")),
    alive: (status) => tell("WATCHDOG=1", statusLine(status)),
  };
}

const MAX_STATUS = 200;

/** One line: what follows another would be an assignment of its own. */
const statusLine = (text: string): string => `STATUS=${text.replaceAll(/\s+/g, " ").slice(0, MAX_STATUS)}`;
