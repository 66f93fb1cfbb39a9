import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";
import {
  TransferEvent,
  type S3Access,
  type TransferJob,
  type TransferLimits,
} from "../../../src/protocol/triggers/transfer.ts";
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

/** A `holdfast transfer` as a process of its own. */
export interface RunningTransfer {
  readonly pid: number;
  readonly events: readonly TransferEvent[];
  /** Returns all output so far. */
  readonly output: () => string;
  cancel(): void;
  /** Closes its input, as a dying agent does. */
  leave(): void;
  kill(): Promise<void>;
  /** The last event, once the process has exited. */
  readonly ended: Promise<TransferEvent | undefined>;
  /** Waits for an event. */
  event<K extends TransferEvent["is"]>(
    is: K,
    fits?: (event: Extract<TransferEvent, { is: K }>) => boolean,
  ): Promise<Extract<TransferEvent, { is: K }>>;
}

/** Starts one; it ends with the test at the latest. */
export function startTransfer(job: TransferJob, env: Readonly<Record<string, string>> = {}): RunningTransfer {
  const child = spawn(process.execPath, [...FLAGS, BUNDLE, "transfer"], {
    env: { ...compileCache(), ...env },
    stdio: "pipe",
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const events: TransferEvent[] = [];
  let output = "";
  const lines = createInterface({ input: child.stdout });
  lines.on("line", (line) => {
    output += `${line}\n`;
    const event = TransferEvent.parse(JSON.parse(line));
    events.push(event);
    if (event.is === "whole") child.stdin.write('{"is":"publish"}\n');
  });
  child.stderr.on("data", (text) => (output += String(text)));
  child.stdin.on("error", () => undefined);
  child.stdin.write(`${JSON.stringify(job)}\n`);
  const closed = new Promise<void>((resolve) => child.once("close", () => resolve()));
  return {
    pid: child.pid ?? 0,
    events,
    output: () => output,
    cancel: () => void child.stdin.write(`${JSON.stringify({ is: "cancel" })}\n`),
    leave: () => void child.stdin.end(),
    async kill() {
      child.kill("SIGKILL");
      await closed;
    },
    ended: closed.then(() => events.at(-1)),
    event: (is, fits = () => true) =>
      waitFor(`the event ${is}; it said: ${output}`, () =>
        events.find(
          (event): event is Extract<TransferEvent, { is: typeof is }> => event.is === is && fits(event as never),
        ),
      ),
  };
}
