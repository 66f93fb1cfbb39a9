import type { MeshState } from "../../../protocol/overlay/mesh.ts";
import {
  fqdnOf,
  pathText,
  silenceOf,
  type EchoAnswer,
  type EchoRequest,
  type TunnelNodes,
  type TunnelPeer,
  type Tunnels,
  type TunnelPath,
} from "./tunnels.ts";

const PROBES = 3;
const PROBE_BYTES = 64;
const ANSWER_MS = 5000;

/** Traces the route to a peer through the tunnel, one line per hop like traceroute(8): the gateway with its path, then the node. */
export async function* traceTunnel(
  tunnels: Tunnels,
  peer: TunnelPeer,
  count = PROBES,
  signal: AbortSignal,
): AsyncGenerator<string, void> {
  const nodes = tunnels.nodes();
  yield `traceroute to ${peer.fqdn} through the tunnel, ${PROBE_BYTES} byte packets\n`;
  const answers = await probe(tunnels, { peer: peer.uid }, count, signal);
  const tunnelPath: TunnelPath | undefined =
    answers.find((answer) => answer !== undefined) ?? (await carrier(tunnels, signal));
  let hop = 1;
  if (tunnelPath !== undefined && tunnelPath.gateway !== peer.uid && tunnelPath.gateway !== nodes?.self.uid) {
    const there = await probe(tunnels, { peer: tunnelPath.gateway, path: tunnelPath.path }, count, signal);
    const mesh = await tunnels.mesh(signal);
    yield hopLine(hop, `${fqdnOf(nodes, tunnelPath.gateway)} ${placeOf(nodes, mesh, tunnelPath)}`, there);
    hop += 1;
  }
  const direct = tunnelPath?.gateway === peer.uid ? ` ${placeOf(nodes, await tunnels.mesh(signal), tunnelPath)}` : "";
  yield hopLine(hop, `${peer.fqdn}${direct}`, answers);
}

/** Returns the path that traffic would take. */
async function carrier(tunnels: Tunnels, signal: AbortSignal): Promise<TunnelPath | undefined> {
  const path = (await tunnels.mesh(signal))?.paths.find(({ carries }) => carries);
  return path === undefined ? undefined : { gateway: path.gateway, path: path.id };
}

type Answers = readonly (EchoAnswer | undefined)[];

async function probe(
  tunnels: Pick<Tunnels, "echo">,
  request: Pick<EchoRequest, "peer" | "path">,
  count: number,
  signal: AbortSignal,
): Promise<Answers> {
  const answers: (EchoAnswer | undefined)[] = [];
  for (let seq = 0; seq < count; seq += 1) {
    try {
      answers.push(await tunnels.echo({ ...request, bytes: PROBE_BYTES, timeoutMs: ANSWER_MS }, signal));
    } catch (error) {
      signal.throwIfAborted();
      answers.push(undefined);
      // Without a tunnel further probes would fail too.
      if (silenceOf(error) === "not-connected") return [...answers, ...Array.from({ length: count - seq - 1 }, none)];
    }
  }
  return answers;
}

const none = (): undefined => undefined;

function hopLine(hop: number, who: string, answers: Answers): string {
  const times = answers.map((answer) => (answer === undefined ? "*" : `${answer.rttMs.toFixed(3)} ms`));
  return `${String(hop).padStart(2)}  ${who}  ${times.join("  ")}\n`;
}

/** Formats path and remote address: `(path wan2, 198.51.100.7:8443)`. */
function placeOf(nodes: TunnelNodes | undefined, mesh: MeshState | undefined, { gateway, path }: TunnelPath): string {
  const remote = mesh?.paths.find((one) => one.gateway === gateway && one.id === path)?.remote;
  const address =
    remote === undefined ? "" : `, ${remote.ip.includes(":") ? `[${remote.ip}]` : remote.ip}:${remote.port}`;
  return gateway === nodes?.self.uid ? "" : `(${pathText(path)}${address})`;
}
