import { InputError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import {
  OutboundConnectionCheck,
  remoteOf,
  type OutboundConnectionAnswer,
} from "../../../protocol/triggers/diagnostics.ts";
import { probeTcp } from "../tools/tcp-probe.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

const CONNECT_MS = 5000;
const MAX_ERROR = 512;

/** Tests a TCP handshake with `host:port`; a failed one is a result. */
export function outboundConnectionCheck(clock: Pick<Clock, "elapsed">): OneShotTrigger<OutboundConnectionCheck> {
  return {
    event: "outbound-connection-check",
    kind: "one-shot",
    request: OutboundConnectionCheck,
    deadlineMs: 60_000,
    needsDataPlane: false,
    readOnly: true,
    agents: true,
    async handle({ remoteAddress }, { signal }): Promise<OutboundConnectionAnswer> {
      const remote = remoteOf(remoteAddress);
      if (remote === undefined) throw new InputError("invalid-body", "remoteAddress: must be host:port");
      const startedAt = clock.elapsed();
      const { exitCode, message } = await probeTcp(remote, CONNECT_MS, signal);
      const latencyMs = Math.round((clock.elapsed() - startedAt) * 10) / 10;
      if (exitCode === 0) return { success: true, remoteAddress, latencyMs };
      const error = message.replaceAll("nc: ", "").trim().replaceAll("\n", "; ").slice(0, MAX_ERROR);
      return { success: false, remoteAddress, error };
    },
  };
}
