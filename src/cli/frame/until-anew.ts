import { HostError, SessionError } from "../../errors.ts";
import { ADMIN_SOCKET } from "../../protocol/local/api.ts";
import { Status } from "../../protocol/local/answers.ts";
import { ask } from "./client.ts";
import type { Call } from "./verb.ts";

const LOOK_MS = 200;

/**
 * Waits until an agent other than the one that started at `startedAt` answers, and returns its status.
 * @throws {SessionError} `timeout` with the words of `late`.
 */
export async function untilAnew(call: Call, startedAt: number, late: string): Promise<Status> {
  const { clock, settings, signal } = call;
  const until = clock.elapsed() + settings.timeoutMs;
  for (;;) {
    const request = { method: "GET", path: "/v1/status", socket: ADMIN_SOCKET } as const;
    // While it restarts, nobody answers.
    const status = await ask(call, request, Status).catch((error: unknown) => {
      signal.throwIfAborted();
      if (!(error instanceof SessionError || error instanceof HostError)) throw error;
      return undefined;
    });
    if (status !== undefined && status.startedAt !== startedAt) return status;
    if (clock.elapsed() >= until) throw new SessionError("timeout", late);
    await clock.sleep(LOOK_MS, signal);
  }
}
