import type { MeshEvent, OverlayMesh, PeerSessionState } from "../../../protocol/overlay/mesh.ts";
import type { Remote } from "../../listeners/remote.ts";
import type { TwoWayLimiters } from "../../limits/rate-limiter.ts";
import type { MeshIdentity } from "../transport/tls.ts";
import type { ReceiveBuffers } from "../transport/receive-buffer.ts";
import type { Inbound, PeerDialer } from "../paths/peer-dialer.ts";
import { MeasureResponder } from "./measure-responder.ts";
import { InboundSessions } from "./inbound-sessions.ts";
import { connectPeer } from "./connect-peer.ts";
import { openFlow } from "./open-flow.ts";
import { Measure } from "./measure.ts";
import { ServedFlows, type Local } from "./served-flows.ts";
import { Tunnels } from "./tunnels.ts";

export interface PeerFlowsOptions {
  readonly local: Local;
  readonly peerDialer: PeerDialer;
  /** Returns the identity of this node, once it is known. */
  readonly identity: () => MeshIdentity | undefined;
  /** Limits the bytes that arrived and were not read. */
  readonly receiveBuffers: Pick<ReceiveBuffers, "watch">;
  /** Rate limits over all tunnels. */
  readonly tunnelLimiters: TwoWayLimiters;
  readonly onEvent: (event: MeshEvent) => void;
}

/** Sessions with other nodes, and the flows in both directions. */
export interface PeerFlows {
  /** Dials other nodes for this node's listeners. */
  readonly remote: Remote;
  /** Receives the streams of other nodes. */
  readonly inbound: Inbound;
  /** Applies other peers and grants; ends immediately what they no longer allow. */
  apply(mesh: Pick<OverlayMesh, "peers" | "paths" | "grants" | "literals">): void;
  /** Measures the connections to peers. */
  readonly measure: Pick<Measure, "echo" | "perf">;
  states(): PeerSessionState[];
  /** Clears the backoff of unreachable peers, so that the next flow is tried immediately. */
  retryNow(): void;
  /** Accepts no more sessions; running flows continue. */
  drain(): void;
  /** Closes everything immediately. */
  close(): void;
}

export function peerFlows(options: PeerFlowsOptions): PeerFlows {
  const { local, peerDialer, identity, receiveBuffers, tunnelLimiters, onEvent } = options;
  const { clock } = local;
  const tunnels = new Tunnels({
    clock,
    peerDialer,
    connect: (peer, signal) => connectPeer({ clock, peerDialer, identity }, peer, signal),
    onEvent,
  });
  const served = new ServedFlows(local, receiveBuffers, tunnelLimiters);
  const responder = new MeasureResponder(clock);
  const take: ServedFlows["take"] = (stream, headers, peer, lost) => {
    if (served.knows(peer) && (responder.take(stream, headers, peer) || served.taken.take(stream, headers, peer)))
      return;
    served.take(stream, headers, peer, lost);
  };
  const inboundSessions = new InboundSessions({
    clock,
    identity,
    onStream: (stream, headers, { peer, lost }) => take(stream, headers, peer, lost),
  });
  return {
    remote: {
      tunnels: tunnelLimiters,
      dial: (request, user) => openFlow(tunnels, { receiveBuffers, clock }, request, user),
      get activeFlows() {
        return served.active;
      },
      dropService: (name) => served.dropService(name),
      sweep: (now) => served.sweep(now),
    },
    inbound: {
      tunnel: (stream, pathId) => inboundSessions.take(stream, pathId),
      stream(stream, headers, { peer }) {
        const { session } = stream;
        take(stream, headers, peer, () => (session?.destroyed === false ? undefined : "tunnel-lost"));
      },
    },
    apply(mesh) {
      served.apply(mesh);
      inboundSessions.apply(mesh.peers);
      tunnels.apply(mesh);
    },
    measure: new Measure(clock, tunnels),
    states: () => [...tunnels.list().map((tunnel) => tunnel.state()), ...inboundSessions.states()],
    retryNow: () => tunnels.retryNow(),
    drain: () => inboundSessions.drain(),
    close() {
      served.close();
      inboundSessions.close();
      tunnels.close();
    },
  };
}
