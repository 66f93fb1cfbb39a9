import { AgentError, SessionError, toError } from "../errors.ts";
import { systemClock } from "../host/clock.ts";
import { openStore } from "../host/data-store/open-store.ts";
import { guardedConnector } from "../host/guarded-connect.ts";
import type { TransferEvent, TransferJob } from "../protocol/transfer.ts";
import { failureOf } from "./attempts.ts";
import { openChannel } from "./channel.ts";
import type { TransferDeps } from "./http-download.ts";

/** Runs `holdfast transfer`: the transfer that its input names. Resolves to the exit status: 0 when the end was told, whatever it is. */
export async function run(): Promise<number> {
  process.umask(0o077);
  const input = process.stdin;
  const channel = openChannel({ input, print: (line) => void process.stdout.write(`${line}\n`) });
  try {
    const job = await channel.job;
    const store = openStore(job.root);
    try {
      const clock = systemClock();
      const { http, https, noProxy } = job.proxies;
      const connector = guardedConnector({
        clock,
        policy: job.policy,
        proxies: {
          noProxy,
          ...(http === undefined ? {} : { http: new URL(http) }),
          ...(https === undefined ? {} : { https: new URL(https) }),
        },
        connectMs: job.limits.connectMs,
      });
      const deps = { clock, store, connector, emit: channel.emit, random: () => Math.random() };
      channel.emit(await carryOut(job, deps, channel.signal));
    } finally {
      store.close();
    }
  } catch (thrown) {
    const error = toError(thrown);
    if (!(error instanceof SessionError && error.code === "left")) channel.emit(failureOf(error));
    return error instanceof AgentError ? 0 : 70;
  } finally {
    // What still waits for orders would keep the process.
    input.destroy();
  }
  return 0;
}

/** Fetches only what the kind of the job needs. */
async function carryOut(job: TransferJob, deps: TransferDeps, signal: AbortSignal): Promise<TransferEvent> {
  switch (job.kind) {
    case "http-download":
      return (await import("./http-download.ts")).httpDownload(job, deps, signal);
    case "http-upload":
      return (await import("./http-upload.ts")).httpUpload(job, deps, signal);
    case "s3-download":
    case "s3-upload":
      throw new SessionError("unsupported", "object transfers are not carried out yet");
  }
}
