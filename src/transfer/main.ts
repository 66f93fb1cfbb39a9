import type { Readable } from "node:stream";
import { AgentError, SessionError, toError } from "../errors.ts";
import { systemClock } from "../host/clock.ts";
import { openStore } from "../host/data-store/open-store.ts";
import { guardedConnector } from "../host/net/guarded-connect.ts";
import type { AddressPolicy, TransferEvent, TransferJob } from "../protocol/triggers/transfer.ts";
import { failureOf } from "./attempts.ts";
import { openChannel } from "./channel.ts";
import type { TransferDeps } from "./deps.ts";

/** Runs `holdfast transfer` with the job from standard input. Resolves to the exit status. */
export async function run(): Promise<number> {
  process.umask(0o077);
  return transfer(process.stdin, (line) => void process.stdout.write(`${line}\n`));
}

/** Runs one transfer. Resolves to the exit status: 0 if the result was reported, a failure included. */
export async function transfer(input: Readable, print: (line: string) => void): Promise<number> {
  const channel = openChannel({ input, print });
  try {
    const job = await channel.job;
    const store = openStore(job.root);
    try {
      const clock = systemClock();
      const { http, https, noProxy } = job.proxies;
      const connector = guardedConnector({
        clock,
        policy: policyOf(job),
        proxies: {
          noProxy,
          ...(http === undefined ? {} : { http: new URL(http) }),
          ...(https === undefined ? {} : { https: new URL(https) }),
        },
        connectMs: job.limits.connectMs,
      });
      const deps = {
        clock,
        store,
        connector,
        emit: channel.emit,
        mayPublish: channel.mayPublish,
        random: () => Math.random(),
      };
      channel.emit(await carryOut(job, deps, channel.signal));
    } finally {
      store.close();
    }
  } catch (thrown) {
    const error = toError(thrown);
    if (!(error instanceof SessionError && error.code === "left")) channel.emit(failureOf(error));
    return error instanceof AgentError ? 0 : 70;
  } finally {
    // Waiting for orders would keep the process alive.
    input.destroy();
  }
  return 0;
}

/**
 * Allows private addresses for an object store, which the machine's owner configured; remote requests cannot name its address.
 * Metadata services of clouds stay forbidden.
 */
function policyOf(job: TransferJob): AddressPolicy {
  const isConfigured = "access" in job && job.access.endpoint !== undefined;
  return isConfigured ? { allow: ["0.0.0.0/0", "::/0"], proxyNames: ["*"] } : job.policy;
}

/** Loads only the modules that the kind of the job needs. */
async function carryOut(job: TransferJob, deps: TransferDeps, signal: AbortSignal): Promise<TransferEvent> {
  switch (job.kind) {
    case "http-download":
      return (await import("./http-download.ts")).httpDownload(job, deps, signal);
    case "http-upload":
      return (await import("./http-upload.ts")).httpUpload(job, deps, signal);
    case "s3-download":
      return (await import("./s3-transfer.ts")).s3Download(job, deps, signal);
    case "s3-upload":
      return (await import("./s3-transfer.ts")).s3Upload(job, deps, signal);
    case "s3-abort":
      return (await import("./s3-transfer.ts")).s3Abort(job, deps, signal);
  }
}
