// Transfers of this bench: `holdfast transfer` as the agent starts it, and the commands that it is compared with.
import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { setPriority } from "node:os";
import { text } from "node:stream/consumers";
import { TransferEvent, type TransferJob } from "../../../src/protocol/triggers/transfer.ts";
import { BUNDLE, FLAGS } from "../programs.ts";

/** Duration of a command, and the processor time of it and all its children. */
export interface Cost {
  readonly cpuSeconds: number;
  readonly seconds: number;
}

/** The kind of a job and what belongs to it. */
export type Work =
  | { readonly kind: "http-download"; readonly uri: string; readonly algo?: "SHA-256" }
  | {
      readonly kind: "s3-download" | "s3-upload";
      readonly bucket: string;
      readonly key: string;
      readonly access: Extract<TransferJob, { readonly kind: "s3-upload" }>["access"];
    };

/** A job for the file of that name, with the limits that an agent without settings sets. */
export function jobOf(root: string, name: string, work: Work): TransferJob {
  return {
    id: randomUUID(),
    root,
    parts: [name],
    policy: { allow: ["127.0.0.0/8"] },
    limits: {
      maxBytes: Number.MAX_SAFE_INTEGER,
      reserveRatio: 0,
      minBytesPerSecond: 1024,
      maxMs: 3_600_000,
      connectMs: 30_000,
      stallMs: 60_000,
      maxRedirects: 5,
      concurrency: 10,
    },
    proxies: { noProxy: [] },
    ...work,
  };
}

const NICENESS = 10;
/** Returns the input of a transfer: its job, and, here at once, the permission to publish the complete file. */
const inputFor = (job: TransferJob): string => `${JSON.stringify(job)}\n{"is":"publish"}\n`;
const COMMAND = [process.execPath, ...FLAGS, BUNDLE, "transfer"];

/** Carries out a job. @throws {Error} when it does not end well */
export async function transfer(job: TransferJob, env: Readonly<Record<string, string>> = {}): Promise<Cost> {
  const { cost, said } = await timed(COMMAND, env, inputFor(job));
  requireDone(said);
  return cost;
}

/** Carries out a job and gives the most memory that its process has had, in bytes (VmHWM of proc_pid_status(5)). */
export async function peakOf(job: TransferJob): Promise<number> {
  const [file = "", ...args] = COMMAND;
  const child = spawn(file, args, { env: {}, stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.write(inputFor(job));
  let peak = 0;
  // It only grows, and the end of a process is looked at closely enough.
  const timer = setInterval(() => (peak = Math.max(peak, highWater(child))), 5);
  try {
    requireDone(await text(child.stdout));
  } finally {
    clearInterval(timer);
  }
  return peak;
}

function highWater({ pid = 0 }: ChildProcess): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}

function requireDone(said: string): void {
  const last = said.trim().split("\n").at(-1) ?? "";
  const event = TransferEvent.safeParse(last === "" ? undefined : JSON.parse(last));
  if (!event.success || event.data.is !== "done") throw new Error(`the transfer ended with ${last}`);
}

/** Runs a command line of the shell. @throws {Error} when it fails */
export async function command(line: string, env: Readonly<Record<string, string>> = {}): Promise<Cost> {
  return (await timed(["bash", "--norc", "-o", "pipefail", "-c", line], env, "")).cost;
}

/**
 * The shell counts what a process and its children took to the millisecond; it would take a socket as its input for somebody who logs in.
 * Everything runs at the niceness of a transfer.
 */
async function timed(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  input: string,
): Promise<{ readonly cost: Cost; readonly said: string }> {
  const line = `TIMEFORMAT='%U %S %R'; { time "$@" 2>&4; } 4>&2 2>&3`;
  const child = spawn("bash", ["--norc", "-c", line, "bash", ...args], {
    env: { PATH: process.env["PATH"] ?? "", ...env },
    stdio: ["pipe", "pipe", "inherit", "pipe"],
  });
  const { stdin, stdout } = child;
  const times = child.stdio[3];
  if (stdin === null || stdout === null || times === undefined || times === null || !("read" in times)) {
    throw new Error("a command without pipes");
  }
  setPriority(child.pid ?? 0, NICENESS);
  stdin.on("error", () => undefined);
  // The end of its input would tell a transfer that nobody waits for it.
  stdin.write(input);
  const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
  const [said, spent, status] = await Promise.all([text(stdout), text(times), ended]);
  stdin.destroy();
  if (status !== 0) throw new Error(`${args.join(" ")} ended with ${status}`);
  const [user = Number.NaN, system = Number.NaN, seconds = Number.NaN] = spent.trim().split(" ").map(Number);
  return { cost: { cpuSeconds: user + system, seconds }, said };
}
