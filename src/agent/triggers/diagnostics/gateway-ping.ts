import type { Clock } from "../../../host/clock.ts";
import { GatewayPing } from "../../../protocol/triggers/bodies.ts";
import { probes, ProbeTally, type Probe } from "./echo-probes.ts";
import type { StreamTrigger, TriggerContext } from "../execution/trigger.ts";
import { fqdnOf, neededPath, neededPeer, notConnected, roundedMs, tunnelPathText, type Tunnels } from "./tunnels.ts";

const WAIT_COUNT = 4;
const SESSION_COUNT = 600;

/** Pings a peer inside the tunnel, as text or one JSON object per probe; a lost probe is a result. */
export function gatewayPing(tunnels: Tunnels, clock: Clock): StreamTrigger<GatewayPing> {
  return {
    event: "gateway-ping",
    kind: "stream",
    request: GatewayPing,
    deadlineMs: 60_000,
    needsDataPlane: true,
    readOnly: true,
    agents: true,
    async handle({ dest, gwPath, interval, size, sendJson, count }, { wait, signal, emit }) {
      const nodes = tunnels.nodes();
      const peer = neededPeer(nodes, dest);
      const tunnelPath = neededPath(await tunnels.mesh(signal), gwPath);
      const tally = new ProbeTally();
      const show = sendJson ? jsonShow(peer.fqdn, size) : textShow(peer.fqdn, size);
      const plan = {
        request: { peer: peer.uid, ...tunnelPath, bytes: size },
        count: count ?? (wait ? WAIT_COUNT : SESSION_COUNT),
        intervalMs: interval * 1000,
      };
      try {
        for await (const probe of probes(tunnels, clock, plan, signal)) {
          // A first probe without a tunnel is an error; later ones may show a tunnel come and go.
          if ("silence" in probe && probe.silence === "not-connected" && probe.seq === 0) {
            throw notConnected(peer, probe.error);
          }
          tally.add(probe);
          await show(probe, emit);
        }
      } finally {
        if (!sendJson && tally.sent > 0) await emit({ kind: "stdout", data: tally.summary(peer.fqdn) });
      }
      return { exitCode: tally.received > 0 ? 0 : 1 };
    },
  };

  type Show = (probe: Probe, emit: TriggerContext["emit"]) => Promise<void>;

  function jsonShow(peer: string, size: number): Show {
    return (probe, emit) => {
      const { seq } = probe;
      if ("silence" in probe) return emit({ kind: "json", data: { seq, timeout: true, reason: probe.silence } });
      const { rttMs, path, gateway } = probe;
      const by = fqdnOf(tunnels.nodes(), gateway);
      return emit({ kind: "json", data: { peer, seq, size, rttMs: roundedMs(rttMs), path, gateway: by } });
    };
  }

  function textShow(peer: string, size: number): Show {
    let last: string | undefined;
    return async (probe, emit) => {
      if (probe.seq === 0) await emit({ kind: "stdout", data: `PING ${peer} through the tunnel, ${size} bytes\n` });
      if (!("silence" in probe)) {
        const by = tunnelPathText(tunnels.nodes(), probe);
        if (by !== last) await emit({ kind: "stdout", data: `by ${by}\n` });
        last = by;
      }
      await emit({ kind: "stdout", data: probeLine(peer, size, probe) });
    };
  }
}

/** Returns the result of a probe in the platform's terms. */
export function probeLine(peer: string, size: number, probe: Probe): string {
  const { seq } = probe;
  if (!("silence" in probe)) return `${size} bytes from ${peer}: seq=${seq}  time=${probe.rttMs.toFixed(2)}ms\n`;
  return probe.silence === "timeout"
    ? `no answer from ${peer}: seq=${seq}\n`
    : `no answer from ${peer}: seq=${seq}  it is not connected\n`;
}
