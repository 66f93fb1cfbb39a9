import { once } from "node:events";
import {
  connect as connectHttp2,
  performServerHandshake,
  type ClientHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import { connect as connectTcp, createServer, type AddressInfo, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { onTestFinished } from "vitest";
import { SessionError } from "../../../src/errors.ts";
import { systemClock, type Clock } from "../../../src/host/clock.ts";
import { peerFlows, type PeerFlows } from "../../../src/overlay/mesh/peers/peer-flows.ts";
import { MeshLimiters } from "../../../src/overlay/mesh/transport/rate-limits.ts";
import { clientSession, serverSession } from "../../../src/overlay/mesh/transport/http2.ts";
import { acceptTls, dialTls, whenProved, type MeshIdentity } from "../../../src/overlay/mesh/transport/tls.ts";
import { ReceiveBuffers } from "../../../src/overlay/mesh/transport/receive-buffer.ts";
import type { PeerDialer } from "../../../src/overlay/mesh/paths/peer-dialer.ts";
import type { MeshEvent, MeshGrant, MeshLiterals, MeshPeer } from "../../../src/protocol/overlay/mesh.ts";
import type { OverlayListener, OverlayReason } from "../../../src/protocol/overlay/overlay.ts";
import { meshIdentity } from "./mesh-identity.ts";
import { aListener, aServer, aService, planeRig, type PlaneRig } from "./overlay-rig.ts";
import { freePort } from "../machine/programs.ts";

export const GATEWAY = "10000000-0000-4000-8000-000000000009";

/** Both ends of a TCP connection over the loopback; they end with the test. */
export async function socketPair(): Promise<[Socket, Socket]> {
  const server = createServer({ noDelay: true });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const { port } = server.address() as AddressInfo;
  const near = connectTcp({ host: "127.0.0.1", port, noDelay: true });
  const [far] = await accepted;
  server.close();
  for (const socket of [near, far]) socket.on("error", () => undefined);
  onTestFinished(() => {
    near.destroy();
    far.destroy();
  });
  return [near, far];
}

/** Both ends of a stream of an HTTP/2 session over loopback, as in a splice: first the opener's, then the other's. */
export async function streamPair(): Promise<[Duplex, Duplex]> {
  const [near, far] = await socketPair();
  const options = { settings: { initialWindowSize: 2 * 1024 * 1024 } };
  const server = performServerHandshake(far, options);
  const client = connectHttp2("http://gateway", { ...options, createConnection: () => near });
  const opened = once(server, "stream") as Promise<[ServerHttp2Stream]>;
  const stream = client.request({ ":method": "CONNECT", ":authority": "node:443" }, { endStream: false });
  const [served] = await opened;
  served.respond({ ":status": 200 });
  await once(stream, "response");
  for (const one of [stream, served, client, server]) one.on("error", () => undefined);
  for (const [one, other] of [
    [stream, client],
    [served, server],
  ] as const)
    one.on("close", () => other.destroy());
  return [stream, served];
}

/** One node of the rig: a data plane with its flows to and from the others. */
export interface PeerNode extends PlaneRig {
  readonly uid: string;
  readonly peer: MeshPeer;
  readonly identity: MeshIdentity;
  readonly flows: PeerFlows;
  readonly events: MeshEvent[];
  /** Its limits over all tunnels; none at first. */
  readonly limiters: MeshLimiters;
  /** Applies peers and grants. */
  meet(peers: readonly MeshPeer[], grants?: readonly MeshGrant[], literals?: MeshLiterals): void;
}

export interface PeerRig {
  /** The gateway's handling of the two ends of a splice; by default it passes bytes on. */
  splice: (from: Duplex, to: Duplex, uid: string) => void;
  /** The gateway's ends of every splice so far. */
  readonly splices: (readonly [Duplex, Duplex])[];
  /** The refusal instead of a splice. */
  refusal: string | undefined;
  /** The addresses of names, for every node. */
  readonly names: Map<string, readonly string[]>;
  /** Makes one node the gateway of another: flows use a hop session between them, without a splice. */
  direct(from: PeerNode, to: PeerNode): Promise<ClientHttp2Session>;
  /** Makes that path fail from now on. */
  breakDirect(from: PeerNode, to: PeerNode, reason: OverlayReason): void;
  node(number: number, more?: { readonly identity?: MeshIdentity; readonly clock?: Clock }): Promise<PeerNode>;
}

/** Nodes in this process, and a gateway of loopback sockets between them. */
export function peerRig(): PeerRig {
  const nodes = new Map<string, PeerNode>();
  const directs = new Map<string, ReturnType<PeerDialer["direct"]>>();
  const rig: PeerRig = {
    splice: passOn,
    splices: [],
    refusal: undefined,
    names: new Map(),
    async direct(from, to) {
      const [near, far] = await socketPair();
      const [client, server] = [dialTls(near, from.identity, "h2"), acceptTls(far, to.identity, ["h2"])];
      await Promise.all([whenProved(client), whenProved(server)]);
      const clock = systemClock();
      const pathId = { gateway: to.uid, path: "" };
      serverSession(server, { clock }).on("stream", (stream, headers) =>
        to.flows.inbound.stream(stream, headers, { peer: from.uid, pathId }),
      );
      const session = clientSession(client, to.uid, { clock });
      await once(session, "remoteSettings");
      directs.set(`${from.uid} ${to.uid}`, Promise.resolve({ session, pathId }));
      return session;
    },
    breakDirect(from, to, reason) {
      const failed = Promise.reject(new SessionError(reason, "broken"));
      failed.catch(() => undefined);
      directs.set(`${from.uid} ${to.uid}`, failed);
    },
    async node(number, { identity, clock = systemClock() } = {}) {
      const uid = `10000000-0000-4000-8000-00000000000${number}`;
      const own = identity ?? (await meshIdentity(uid));
      const peerDialer: PeerDialer = {
        direct: (to) => directs.get(`${uid} ${to}`),
        async splice(to) {
          if (rig.refusal !== undefined) throw new SessionError(rig.refusal, "refused");
          const target = nodes.get(to);
          if (target === undefined) throw new SessionError("peer-absent", "absent");
          const [[near, from], [onward, far]] = await Promise.all([streamPair(), streamPair()]);
          rig.splices.push([from, onward]);
          rig.splice(from, onward, to);
          target.flows.inbound.tunnel(far, { gateway: GATEWAY, path: "" });
          return { stream: near, pathId: { gateway: GATEWAY, path: "" } };
        },
      };
      const events: MeshEvent[] = [];
      const plane = planeRig({
        clock,
        askName: (name) => {
          const addresses = rig.names.get(name);
          return addresses === undefined
            ? Promise.reject(new Error(`no name ${name}`))
            : Promise.resolve({ addresses });
        },
      });
      const receiveBuffers = new ReceiveBuffers({ memoryBytes: 1024 * 1024 * 1024 });
      const limiters = new MeshLimiters(clock);
      const flows = peerFlows({
        local: plane.plane.local,
        peerDialer,
        identity: () => own,
        receiveBuffers,
        tunnelLimiters: limiters,
        onEvent: (event) => void events.push(event),
      });
      onTestFinished(() => {
        flows.close();
        limiters.close();
      });
      plane.plane.connectTo(flows.remote);
      const peer: MeshPeer = { uid, fqdn: `n${number}.example`, key: own.key };
      const meet: PeerNode["meet"] = (peers, grants = [], literals) =>
        flows.apply({ peers: [...peers], grants: [...grants], paths: [], literals });
      const node: PeerNode = { ...plane, uid, peer, identity: own, flows, events, limiters, meet };
      nodes.set(uid, node);
      return node;
    },
  };
  return rig;
}

/** Passes bytes between the two ends of a splice, and the end of either. */
export function passOn(from: Duplex, to: Duplex): void {
  from.pipe(to).pipe(from);
  for (const [one, other] of [
    [from, to],
    [to, from],
  ] as const)
    one.on("close", () => other.destroy());
}

/** A connector on one node that leads to the service `web` of another. */
export async function remoteService(
  onConnection: (socket: Socket) => void,
  more: Partial<OverlayListener> = {},
): Promise<RemoteService> {
  const rig = peerRig();
  const [source, destination] = await Promise.all([rig.node(1), rig.node(2)]);
  const target = await aServer(onConnection);
  const port = await freePort();
  await destination.apply([], [aService("web", target)]);
  await source.apply([aListener(port, { peer: destination.uid, service: "web" }, more)]);
  source.meet([destination.peer]);
  destination.meet([source.peer], [grant(source, "web")]);
  return { rig, source, destination, port, target };
}

export interface RemoteService {
  readonly rig: PeerRig;
  readonly source: PeerNode;
  readonly destination: PeerNode;
  /** Ports of the connector and of the service. */
  readonly port: number;
  readonly target: number;
}

/** A grant of a service to a node. */
export function grant(source: PeerNode, service: string, protocol: "tcp" | "udp" = "tcp"): MeshGrant {
  return { source: source.uid, service, protocol };
}
