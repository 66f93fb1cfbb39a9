import { isIPv4 } from "node:net";
import type { Clock } from "../../../host/clock.ts";
import type { Exec } from "../../../host/process/exec.ts";
import type { Files } from "../../../host/files/files.ts";
import { TgPing } from "../../../protocol/triggers/bodies.ts";
import { probes, ProbeTally } from "./echo-probes.ts";
import { probeLine } from "./gateway-ping.ts";
import { needLink } from "../tools/known-link.ts";
import type { StreamTrigger, TriggerContext } from "../execution/trigger.ts";
import { findPeer, neededPeer, takenForHost, tunnelPathText, type TunnelPeer, type Tunnels } from "./tunnels.ts";

const WAIT_COUNT = 4;
const SESSION_COUNT = 600;
/** Timeout in seconds for a host without any answer; ping's default of 10 is too long. */
const SILENCE_SECONDS = 3;
const PROBE_BYTES = 64;

/**
 * Pings a host with ping(8) of iputils, or, without source and interface, another node through the tunnel; no reply is a result (exit
 * status 1).
 */
export function tgPing(exec: Exec, files: Files, tunnels: Tunnels, clock: Clock): StreamTrigger<TgPing> {
  return {
    event: "tg-ping",
    kind: "stream",
    request: TgPing,
    deadlineMs: 60_000,
    needsDataPlane: false,
    readOnly: true,
    agents: true,
    async handle(request, context) {
      const { host, source, iface } = request;
      const { wait, signal, emit } = context;
      const isBelow = source !== undefined || iface !== undefined;
      if (!isBelow && findPeer(tunnels.nodes(), host) !== undefined) {
        return pingPeer(neededPeer(tunnels.nodes(), host), packetsOf(request, wait), context);
      }
      if (iface !== undefined) await needLink(files, iface, "iface");
      const taken = isBelow ? undefined : takenForHost(tunnels.nodes(), host);
      if (taken !== undefined) await emit({ kind: "stdout", data: `${taken}\n` });
      const ping = exec.spawn("ping", pingArguments(request, wait), { signal });
      for await (const chunk of ping.output) await emit(chunk);
      return { exitCode: await ping.exitCode };
    },
  };

  async function pingPeer(
    peer: TunnelPeer,
    count: number,
    { signal, emit }: TriggerContext,
  ): Promise<{ readonly exitCode: number }> {
    const tally = new ProbeTally();
    const plan = { request: { peer: peer.uid, bytes: PROBE_BYTES }, count, intervalMs: 1000 };
    await emit({ kind: "stdout", data: `PING ${peer.fqdn} through the tunnel, ${PROBE_BYTES} bytes\n` });
    try {
      for await (const probe of probes(tunnels, clock, plan, signal)) {
        tally.add(probe);
        const by = "silence" in probe ? "" : `  by ${tunnelPathText(tunnels.nodes(), probe)}`;
        await emit({ kind: "stdout", data: `${probeLine(peer.fqdn, PROBE_BYTES, probe).trimEnd()}${by}\n` });
      }
    } finally {
      await emit({ kind: "stdout", data: tally.summary(peer.fqdn) });
    }
    return { exitCode: tally.received > 0 ? 0 : 1 };
  }
}

function packetsOf({ count }: TgPing, wait: boolean): number {
  return count ?? (wait ? WAIT_COUNT : SESSION_COUNT);
}

/**
 * Builds ping's arguments, always with a count, since ping does not end by itself. `-O` prints a line per missing answer. No deadline
 * (`-w`): with one, ping exits with 1 if a single answer is missing, and it ends before the last answer, since the intervals between
 * packets add up to more.
 */
export function pingArguments(request: TgPing, wait: boolean): string[] {
  const { host, source, iface } = request;
  return [
    "-n",
    "-O",
    "-c",
    String(packetsOf(request, wait)),
    "-W",
    String(SILENCE_SECONDS),
    ...(iface === undefined ? [] : ["-I", iface]),
    ...sourceArguments(host, source),
    "--",
    host,
  ];
}

/** The kernel chooses the source by default: the documented 127.0.0.1 reaches loopback only. */
function sourceArguments(host: string, source: string | undefined): string[] {
  if (source !== undefined) return ["-I", source];
  return isIPv4(host) && host.startsWith("127.") ? ["-I", "127.0.0.1"] : [];
}
