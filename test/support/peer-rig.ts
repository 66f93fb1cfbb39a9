import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { connect as connectTcp, createServer, type AddressInfo, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { onTestFinished } from "vitest";
import { SessionError } from "../../src/errors.ts";
import { peerFlows, type PeerFlows } from "../../src/overlay/mesh/peers/peer-flows.ts";
import { meshContext, p256Thumbprint, type MeshIdentity } from "../../src/overlay/mesh/tls.ts";
import type { Ways } from "../../src/overlay/mesh/ways.ts";
import type { MeshEvent, MeshGrant, MeshPeer } from "../../src/protocol/overlay-mesh.ts";
import { testCertificate } from "./certificates.ts";
import { planeRig, type PlaneRig } from "./overlay-rig.ts";

export const GATEWAY = "10000000-0000-4000-8000-000000000009";

/** Both ends of a TCP connection over the loopback; they end with the test. */
export async function socketPair(): Promise<[Socket, Socket]> {
  const server = createServer({ allowHalfOpen: true, noDelay: true });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const { port } = server.address() as AddressInfo;
  const near = connectTcp({ host: "127.0.0.1", port, allowHalfOpen: true, noDelay: true });
  const [far] = await accepted;
  server.close();
  for (const socket of [near, far]) socket.on("error", () => undefined);
  onTestFinished(() => {
    near.destroy();
    far.destroy();
  });
  return [near, far];
}

/** An identity of a node: a key pair and a certificate that says nothing else. */
export async function anIdentity(uid: string): Promise<MeshIdentity> {
  const { key, cert } = await testCertificate({ hosts: [] });
  const thumbprint = p256Thumbprint(new X509Certificate(cert).publicKey);
  if (thumbprint === undefined) throw new Error("not a P-256 key");
  return { uid, key: thumbprint, context: meshContext(key, cert) };
}

/** One node of the rig: a data plane with its flows to and from the others. */
export interface PeerNode extends PlaneRig {
  readonly uid: string;
  readonly peer: MeshPeer;
  readonly flows: PeerFlows;
  readonly events: MeshEvent[];
  /** Puts peers and grants into force. */
  meet(peers: readonly MeshPeer[], grants?: readonly MeshGrant[]): void;
}

export interface PeerRig {
  /** What the gateway does with the two ends of a splice; by default it passes bytes on. */
  splice: (from: Socket, to: Socket, uid: string) => void;
  /** Every splice that was made: the ends at the gateway. */
  readonly splices: (readonly [Socket, Socket])[];
  /** Instead of a splice, when it is to fail. */
  refusal: string | undefined;
  node(number: number, identity?: MeshIdentity): Promise<PeerNode>;
}

/** Nodes in this process, and a gateway between them made of loopback sockets. */
export function peerRig(): PeerRig {
  const nodes = new Map<string, PeerNode>();
  const rig: PeerRig = {
    splice: passOn,
    splices: [],
    refusal: undefined,
    async node(number, identity) {
      const uid = `10000000-0000-4000-8000-00000000000${number}`;
      const own = identity ?? (await anIdentity(uid));
      const ways: Ways = {
        direct: () => undefined,
        async splice(to) {
          if (rig.refusal !== undefined) throw new SessionError(rig.refusal, "refused");
          const target = nodes.get(to);
          if (target === undefined) throw new SessionError("peer-absent", "absent");
          const [[near, from], [onward, far]] = await Promise.all([socketPair(), socketPair()]);
          rig.splices.push([from, onward]);
          rig.splice(from, onward, to);
          target.flows.inward.tunnel(far, { gateway: GATEWAY, path: "" });
          return { stream: near satisfies Duplex, way: { gateway: GATEWAY, path: "" } };
        },
      };
      const events: MeshEvent[] = [];
      const plane = planeRig();
      const flows = peerFlows({
        local: plane.plane.local,
        ways,
        identity: () => own,
        onEvent: (event) => void events.push(event),
      });
      onTestFinished(() => flows.close());
      plane.plane.connectTo(flows.remote);
      const peer: MeshPeer = { uid, fqdn: `n${number}.example`, key: own.key };
      const meet = (peers: readonly MeshPeer[], grants: readonly MeshGrant[] = []): void =>
        flows.apply({ peers: [...peers], grants: [...grants], paths: [] });
      const node: PeerNode = { ...plane, uid, peer, flows, events, meet };
      nodes.set(uid, node);
      return node;
    },
  };
  return rig;
}

function passOn(from: Socket, to: Socket): void {
  from.pipe(to).pipe(from);
  for (const [one, other] of [
    [from, to],
    [to, from],
  ] as const)
    one.on("close", () => other.destroy());
}

/** Everything may be used by everybody who is named. */
export function grant(source: PeerNode, service: string, protocol: "tcp" | "udp" = "tcp"): MeshGrant {
  return { source: source.uid, service, protocol };
}
