import { isIPv4 } from "node:net";
import type { Exec } from "../../host/exec.ts";
import { TgPing } from "../../protocol/trigger-bodies.ts";
import type { StreamTrigger } from "./trigger.ts";

const WAIT_COUNT = 4;
const SESSION_COUNT = 600;
/** Seconds for a host that has not answered once; ping's own 10 would only make the caller wait. */
const SILENCE_SECONDS = 3;

/** Pings a host with ping(8) of iputils; no reply is a result (exit status 1). */
export function tgPing(exec: Exec): StreamTrigger<TgPing> {
  return {
    event: "tg-ping",
    kind: "stream",
    request: TgPing,
    deadlineMs: 60_000,
    needsDataPlane: false,
    readOnly: true,
    agents: true,
    async handle(request, { wait, signal, emit }) {
      const ping = exec.spawn("ping", pingArguments(request, wait), { signal });
      for await (const chunk of ping.output) await emit(chunk);
      return { exitCode: await ping.exitCode };
    },
  };
}

/**
 * Bounded always: ping does not end by itself. `-O` prints a line for each answer that is missing. There is no deadline (`-w`):
 * with one, ping ends with 1 when a single answer of all is missing, and it strikes before the last answer, since the pauses
 * between packets add up to more than their seconds.
 */
export function pingArguments({ host, source, count }: TgPing, wait: boolean): string[] {
  const packets = count ?? (wait ? WAIT_COUNT : SESSION_COUNT);
  return [
    "-n",
    "-O",
    "-c",
    String(packets),
    "-W",
    String(SILENCE_SECONDS),
    ...sourceArguments(host, source),
    "--",
    host,
  ];
}

/** The documented default source 127.0.0.1 reaches loopback only, so elsewhere the kernel chooses. */
function sourceArguments(host: string, source: string | undefined): string[] {
  if (source !== undefined) return ["-I", source];
  return isIPv4(host) && host.startsWith("127.") ? ["-I", "127.0.0.1"] : [];
}
