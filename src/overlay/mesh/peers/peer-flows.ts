import type { MeshEvent, OverlayMesh, PeerSessionState } from "../../../protocol/overlay/mesh.ts";
import type { Remote } from "../../listeners/remote.ts";
import type { TunnelGates } from "../transport/rate-limits.ts";
import type { MeshIdentity } from "../transport/tls.ts";
import type { UnreadBytes } from "../transport/receive-buffer.ts";
import type { Inward, Ways } from "../paths/ways.ts";
import { Answers } from "./answers.ts";
import { Arrivals } from "./arrivals.ts";
import { connectPeer } from "./connect-peer.ts";
import { openFlow } from "./outward.ts";
import { Measure } from "./measure.ts";
import { Served, type Local } from "./served.ts";
import { Tunnels } from "./tunnels.ts";

export interface PeerFlowsOptions {
  readonly local: Local;
  readonly ways: Ways;
  /** What this node proves itself with, once it has it. */
  readonly identity: () => MeshIdentity | undefined;
  /** Bounds what has arrived and nobody reads. */
  readonly unread: Pick<UnreadBytes, "watch">;
  /** The node's limits over all tunnels; absent means none. */
  readonly tunnelGates?: TunnelGates;
  readonly onEvent: (event: MeshEvent) => void;
}

/** Everything that runs over the ways to other nodes: sessions with them, and flows both ways. */
export interface PeerFlows {
  /** What flows of this node's listeners go through. */
  readonly remote: Remote;
  /** What comes from other nodes. */
  readonly inward: Inward;
  /** Puts other peers and grants into force; what they no longer allow ends at once. */
  apply(mesh: Pick<OverlayMesh, "peers" | "paths" | "grants" | "literals">): void;
  /** Measures ways to peers. */
  readonly measure: Pick<Measure, "echo" | "perf">;
  states(): PeerSessionState[];
  /** What could not be reached may be by now: the next flow there is tried at once. */
  retryNow(): void;
  /** Takes no more sessions from other nodes; what runs goes on. */
  drain(): void;
  /** Ends everything at once. */
  close(): void;
}

export function peerFlows(options: PeerFlowsOptions): PeerFlows {
  const { local, ways, identity, unread, tunnelGates, onEvent } = options;
  const { clock } = local;
  const tunnels = new Tunnels({
    clock,
    ways,
    connect: (peer, signal) => connectPeer({ clock, ways, identity }, peer, signal),
    onEvent,
  });
  const served = new Served(local, unread, tunnelGates);
  const answers = new Answers(clock);
  const take: Served["take"] = (stream, headers, peer, lost) => {
    if (served.knows(peer) && (answers.take(stream, headers, peer) || served.taken.take(stream, headers, peer))) return;
    served.take(stream, headers, peer, lost);
  };
  const arrivals = new Arrivals({
    clock,
    identity,
    onStream: (stream, headers, { peer, lost }) => take(stream, headers, peer, lost),
  });
  return {
    remote: {
      tunnels: tunnelGates,
      dial: (request, user) => openFlow(tunnels, { unread, clock }, request, user),
      get activeFlows() {
        return served.active;
      },
      dropService: (name) => served.dropService(name),
      sweep: (now) => served.sweep(now),
    },
    inward: {
      tunnel: (stream, way) => arrivals.take(stream, way),
      stream(stream, headers, { peer }) {
        const { session } = stream;
        take(stream, headers, peer, () => (session?.destroyed === false ? undefined : "tunnel-lost"));
      },
    },
    apply(mesh) {
      served.apply(mesh);
      arrivals.apply(mesh.peers);
      tunnels.apply(mesh);
    },
    measure: new Measure(clock, tunnels),
    states: () => [...tunnels.list().map((tunnel) => tunnel.state()), ...arrivals.states()],
    retryNow: () => tunnels.retryNow(),
    drain: () => arrivals.drain(),
    close() {
      served.close();
      arrivals.close();
      tunnels.close();
    },
  };
}
