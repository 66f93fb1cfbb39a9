import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { PassThrough, type Writable } from "node:stream";
import { onTestFinished } from "vitest";
import {
  TransferEvent,
  type S3Access,
  type TransferJob,
  type TransferLimits,
} from "../../../src/protocol/triggers/transfer.ts";
import { transfer } from "../../../src/transfer/main.ts";
import { compileCache } from "../compile-cache.ts";
import { BUNDLE, FLAGS } from "../machine/programs.ts";
import { waitFor } from "../wait-for.ts";

export const LIMITS: TransferLimits = {
  maxBytes: 1e12,
  reserveRatio: 0.0001,
  minBytesPerSecond: 1,
  maxMs: 600_000,
  connectMs: 30_000,
  stallMs: 60_000,
  maxRedirects: 5,
  concurrency: 4,
};

export interface S3JobOptions {
  readonly kind: "s3-download" | "s3-upload" | "s3-abort";
  readonly root: string;
  readonly file: string;
  readonly bucket: string;
  readonly key: string;
  readonly access: S3Access;
  readonly id?: string;
  readonly limits?: Partial<TransferLimits>;
  readonly resume?: TransferJob["resume"];
}

/** A job for a transfer of an object. */
export function s3Job(options: S3JobOptions): TransferJob {
  const { kind, root, file, bucket, key, access, id = randomUUID(), limits = {}, resume } = options;
  return {
    kind,
    id,
    root,
    parts: file.split("/"),
    bucket,
    key,
    access,
    policy: { allow: [] },
    limits: { ...LIMITS, ...limits },
    proxies: { noProxy: [] },
    ...(resume === undefined ? {} : { resume }),
  };
}

/** Writes a credentials file below `dir`, for its owner only by default. */
export function credentialsFile(dir: string, content: object, mode = 0o600): string {
  const path = join(dir, `credentials-${randomUUID()}.json`);
  mkdirSync(dir, { recursive: true });
  writeFileSync(path, JSON.stringify(content), { mode });
  return path;
}

/** A running transfer. */
export interface SomeTransfer {
  readonly events: readonly TransferEvent[];
  /** Returns all output so far. */
  readonly output: () => string;
  cancel(): void;
  /** Closes its input, as a dying agent does. */
  leave(): void;
  /** The last event, once it has ended. */
  readonly ended: Promise<TransferEvent | undefined>;
  /** Waits for an event. */
  event<K extends TransferEvent["is"]>(
    is: K,
    fits?: (event: Extract<TransferEvent, { is: K }>) => boolean,
  ): Promise<Extract<TransferEvent, { is: K }>>;
}

/** A `holdfast transfer` as a process of its own. */
export interface RunningTransfer extends SomeTransfer {
  readonly pid: number;
  kill(): Promise<void>;
}

/** Starts one; it ends with the test at the latest. */
export function startTransfer(job: TransferJob, env: Readonly<Record<string, string>> = {}): RunningTransfer {
  const child = spawn(process.execPath, [...FLAGS, BUNDLE, "transfer"], {
    env: { ...compileCache(), ...env },
    stdio: "pipe",
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const closed = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const { add, take, ...running } = conducted(job, child.stdin);
  createInterface({ input: child.stdout }).on("line", take);
  child.stderr.on("data", (text) => add(String(text)));
  return {
    ...running,
    pid: child.pid ?? 0,
    ended: closed.then(() => running.events.at(-1)),
    async kill() {
      child.kill("SIGKILL");
      await closed;
    },
  };
}

/**
 * Runs one in this process, for what depends only on its job: a program of its own takes half a second of processor time. It ends with the
 * test at the latest.
 */
export function transferHere(job: TransferJob): SomeTransfer {
  const input = new PassThrough();
  const { add: _, take, ...running } = conducted(job, input);
  const over = transfer(input, take);
  onTestFinished(async () => {
    input.end();
    await over;
  });
  return { ...running, ended: over.then(() => running.events.at(-1)) };
}

/** Gives a transfer its job and its orders, and records its output. */
function conducted(job: TransferJob, input: Writable) {
  const events: TransferEvent[] = [];
  let output = "";
  const say = (line: object): void => void input.write(`${JSON.stringify(line)}\n`);
  const event: SomeTransfer["event"] = (is, fits = () => true) =>
    waitFor(`the event ${is}; it said: ${output}`, () =>
      events.find(
        (found): found is Extract<TransferEvent, { is: typeof is }> => found.is === is && fits(found as never),
      ),
    );
  input.on("error", () => undefined);
  say(job);
  return {
    events,
    output: () => output,
    add: (text: string): void => void (output += text),
    take: (line: string): void => {
      output += `${line}\n`;
      const reported = TransferEvent.parse(JSON.parse(line));
      events.push(reported);
      if (reported.is === "whole") say({ is: "publish" });
    },
    cancel: () => say({ is: "cancel" }),
    leave: () => void input.end(),
    event,
  };
}
