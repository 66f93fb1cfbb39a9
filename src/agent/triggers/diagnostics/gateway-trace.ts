import { HostError, InputError } from "../../../errors.ts";
import type { Exec } from "../../../host/process/exec.ts";
import { GatewayLatency, GatewayTrace, type GatewayLatencyAnswer } from "../../../protocol/triggers/diagnostics.ts";
import { parseHops } from "../../telemetry/conditions/hops.ts";
import { mtrArguments } from "./tg-mtr.ts";
import type { OneShotTrigger, StreamTrigger } from "../execution/trigger.ts";
import { neededPeer, type Tunnels } from "./tunnels.ts";

const ROUNDS = 3;
const shared = { needsDataPlane: true, readOnly: true, agents: true } as const;

/** Address at which this node dials a gateway, with the path's source address, if any. */
interface Listening {
  readonly fqdn: string;
  readonly host: string;
  readonly port: number;
  readonly local?: string | undefined;
}

/** Traces the route to a gateway's TCP port with traceroute(8), outside the tunnel. */
export function gatewayTraceroute(exec: Exec, tunnels: Tunnels): StreamTrigger<GatewayTrace> {
  return {
    ...shared,
    event: "gateway-traceroute",
    kind: "stream",
    request: GatewayTrace,
    deadlineMs: 60_000,
    async handle({ dest, gwPath }, { signal, emit }) {
      const { host, port, local } = listening(tunnels, dest, gwPath);
      const from = local === undefined ? [] : ["-s", local];
      const trace = exec.spawn("traceroute", ["-n", "-T", "-p", String(port), ...from, "--", host], { signal });
      for await (const chunk of trace.output) await emit(chunk);
      return { exitCode: await trace.exitCode };
    },
  };
}

/** Traces the same route with mtr(8): a report of ten rounds, as JSON for a caller that waits. */
export function gatewayMtr(exec: Exec, tunnels: Tunnels): StreamTrigger<GatewayTrace> {
  return {
    ...shared,
    event: "gateway-mtr",
    kind: "stream",
    request: GatewayTrace,
    deadlineMs: 180_000,
    async handle({ dest, gwPath }, { wait, signal, emit }) {
      const { host, port, local } = listening(tunnels, dest, gwPath);
      const from = local === undefined ? [] : ["-a", local];
      const options = ["-n", "-T", "-P", String(port), ...from];
      const trace = exec.spawn("mtr", mtrArguments({ hostname: host, options }, wait), { signal });
      for await (const chunk of trace.output) await emit(chunk);
      return { exitCode: await trace.exitCode };
    },
  };
}

/** Returns the round trip of each hop to a gateway's TCP port, measured by mtr(8) in three rounds. */
export function gatewayLatency(exec: Exec, tunnels: Tunnels): OneShotTrigger<GatewayLatency> {
  return {
    ...shared,
    event: "gateway-latency",
    kind: "one-shot",
    request: GatewayLatency,
    deadlineMs: 60_000,
    async handle({ gateway }, { signal }): Promise<GatewayLatencyAnswer> {
      const { fqdn, host, port } = listening(tunnels, gateway);
      const options = ["-n", "-T", "-P", String(port), "-c", String(ROUNDS)];
      const bounds = { signal, deadlineMs: 60_000, maxOutputBytes: 256 * 1024 };
      const { stdout, stderr, exitCode } = await exec.run(
        "mtr",
        mtrArguments({ hostname: host, options }, true),
        bounds,
      );
      const hops = exitCode === 0 ? parseHops(stdout) : undefined;
      if (hops === undefined) {
        const said = stderr.trim().slice(0, 512);
        throw new HostError("exec-failed", `mtr exited with status ${exitCode} without a report: ${said}`);
      }
      return {
        gateway: fqdn,
        hops: hops.map(({ hop, ip, meanRtt, minRtt, maxRtt, numRtt }) => ({
          hop,
          ip,
          latencyMs: meanRtt,
          minMs: minRtt,
          maxMs: maxRtt,
          answers: numRtt,
        })),
      };
    },
  };
}

/**
 * Returns the address of a gateway, on one path if named.
 * @throws {InputError} `not-found`, `inactive`; `not-configured` for a node that does not listen, or that this one may not dial.
 */
function listening(tunnels: Tunnels, dest: string, gwPath?: string): Listening {
  const { uid, fqdn, gateway } = neededPeer(tunnels.nodes(), dest);
  const path = tunnels.paths().find((one) => one.gateway === uid && one.id === gwPath);
  if (path !== undefined) return { fqdn, host: path.host, port: path.port, local: path.local };
  if (gwPath !== undefined && gwPath !== "") {
    const message = `this node has no gateway path ${gwPath} to ${fqdn}: see 'holdfast gateways'`;
    throw new InputError("not-found", message, { details: { field: "gwPath" } });
  }
  if (gateway === undefined) throw new InputError("not-configured", `${fqdn} is no gateway that this node dials`);
  return { fqdn, host: gateway.host, port: gateway.port };
}
