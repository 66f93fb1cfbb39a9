import { fstatSync } from "node:fs";
import { sdNotify } from "./libc.ts";

/** Settings that a service manager passed to this process in its environment. */
export interface Supervision {
  /** Address of `sd_notify(3)` messages. */
  readonly notifySocket: string | undefined;
  /** Watchdog interval in milliseconds; undefined without a watchdog. */
  readonly watchdogMs: number | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Reads the settings as sd_notify(3) and sd_watchdog_enabled(3) do. Ignores a watchdog meant for another process. */
export function supervisionOf(env: Environment, pid: number): Supervision {
  const notifySocket = env["NOTIFY_SOCKET"] === "" ? undefined : env["NOTIFY_SOCKET"];
  const text = env["WATCHDOG_USEC"] ?? "";
  const isOurs = (env["WATCHDOG_PID"] ?? String(pid)) === String(pid);
  const ms = /^\d{1,15}$/.test(text) ? Math.floor(Number(text) / 1000) : 0;
  return { notifySocket, watchdogMs: notifySocket !== undefined && isOurs && ms > 0 ? ms : undefined };
}

/** Reports whether standard output goes to the journal, by JOURNAL_STREAM of systemd.exec(5). */
export function writesToJournal(env: Environment): boolean {
  const { dev, ino } = fstatSync(process.stdout.fd);
  return env["JOURNAL_STREAM"] === `${dev}:${ino}`;
}

/**
 * Notifies the service manager that runs this process; does nothing without one. A message that cannot be sent is dropped; the
 * next one replaces it.
 */
export interface ServiceManager {
  /** Reports that the service is ready. */
  ready(status: string): void;
  stopping(): void;
  /** Sends a watchdog keep-alive with a status line. */
  alive(status: string): void;
}

export function serviceManager({ notifySocket }: Pick<Supervision, "notifySocket">): ServiceManager {
  const send = (...lines: readonly string[]): void => {
    if (notifySocket !== undefined) sdNotify(notifySocket, lines.join("\n"));
  };
  return {
    ready: (status) => send("READY=1", statusLine(status)),
    stopping: () => send("STOPPING=1", statusLine("Stopping")),
    alive: (status) => send("WATCHDOG=1", statusLine(status)),
  };
}

const MAX_STATUS = 200;

/** Formats a status as one line; a line break would start another assignment. */
const statusLine = (text: string): string => `STATUS=${text.replaceAll(/\s+/g, " ").slice(0, MAX_STATUS)}`;
