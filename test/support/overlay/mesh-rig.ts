import { once } from "node:events";
import type {
  ClientHttp2Session,
  ClientHttp2Stream,
  IncomingHttpHeaders,
  ServerHttp2Session,
  ServerHttp2Stream,
} from "node:http2";
import { connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { onTestFinished } from "vitest";
import { SessionError } from "../../../src/errors.ts";
import { systemClock, type Clock } from "../../../src/host/clock.ts";
import { clientSession, serverSession } from "../../../src/overlay/mesh/transport/http2.ts";
import { MeshLimiters } from "../../../src/overlay/mesh/transport/rate-limits.ts";
import { MeshServer, type MeshServerOptions } from "../../../src/overlay/mesh/sessions/server.ts";
import { dialTls, whenProved, type MeshIdentity, type MeshProtocol } from "../../../src/overlay/mesh/transport/tls.ts";
import { ReceiveBuffers } from "../../../src/overlay/mesh/transport/receive-buffer.ts";
import { ownSockets } from "../../../src/overlay/dial/own-sockets.ts";
import type { MeshEvent, MeshPeer, OverlayMesh } from "../../../src/protocol/overlay/mesh.ts";
import { meshIdentity } from "./mesh-identity.ts";
import { freePort } from "../machine/programs.ts";

/** A gateway under test, with the streams for itself. */
export interface GatewayRig {
  readonly server: MeshServer;
  readonly identity: MeshIdentity;
  readonly port: number;
  readonly limiters: MeshLimiters;
  readonly receiveBuffers: ReceiveBuffers;
  readonly events: MeshEvent[];
  readonly tunnels: Duplex[];
  readonly requests: {
    readonly stream: ServerHttp2Stream;
    readonly headers: IncomingHttpHeaders;
    readonly peer: string;
  }[];
  /** Peers whose streams were reset because of a full receive buffer. */
  readonly cut: string[];
  /** Returns the number of streams reported to it. */
  streams(): number;
  /** Applies a mesh in which these nodes may dial. */
  apply(nodes: readonly MeshIdentity[], more?: Partial<OverlayMesh>): Promise<void>;
}

type Given = Partial<Pick<MeshServerOptions, "clock" | "limits" | "onward" | "isBeside">> & {
  readonly memoryBytes?: number;
};

/** A gateway that listens on a loopback port. */
export async function gatewayRig(nodes: readonly MeshIdentity[] = [], given: Given = {}): Promise<GatewayRig> {
  const clock: Clock = given.clock ?? systemClock();
  const identity = await meshIdentity();
  const port = await freePort();
  const limiters = new MeshLimiters(clock);
  const cut: string[] = [];
  const receiveBuffers = new ReceiveBuffers({
    memoryBytes: given.memoryBytes ?? 2 ** 33,
    onReset: (peer) => cut.push(peer),
  });
  const events: MeshEvent[] = [];
  const tunnels: Duplex[] = [];
  const requests: { stream: ServerHttp2Stream; headers: IncomingHttpHeaders; peer: string }[] = [];
  let streams = 0;
  const server = new MeshServer({
    clock,
    identity: () => identity,
    own: ownSockets(() => []),
    isBeside: given.isBeside ?? (() => false),
    inbound: {
      tunnel: (stream) => void tunnels.push(stream),
      stream: (stream, headers, { peer }) => void requests.push({ stream, headers, peer }),
    },
    onward: given.onward ?? (() => Promise.reject(new SessionError("no-path", "no other gateway"))),
    limiters,
    receiveBuffers,
    onStream: () => void (streams += 1),
    onChanged: () => undefined,
    onEvent: (event) => void events.push(event),
    ...(given.limits === undefined ? {} : { limits: given.limits }),
  });
  onTestFinished(() => server.close());
  const apply: GatewayRig["apply"] = (allowed, more = {}) => {
    const mesh = aMesh(identity.uid, allowed.map(mayDial), { server: { addresses: ["127.0.0.1"], port }, ...more });
    limiters.apply(mesh);
    return server.apply(mesh);
  };
  await apply(nodes);
  return {
    server,
    identity,
    port,
    limiters,
    receiveBuffers,
    events,
    tunnels,
    requests,
    cut,
    apply,
    streams: () => streams,
  };
}

export function aMesh(self: string, peers: readonly MeshPeer[], more: Partial<OverlayMesh> = {}): OverlayMesh {
  return { self, peers: [...peers], paths: [], grants: [], routes: [], ...more };
}

export function mayDial({ uid, key }: MeshIdentity): MeshPeer {
  return { uid, fqdn: `n${uid.slice(0, 8)}.example`, key, mayDial: true };
}

/** Dials a gateway as a node, with mutual authentication. */
export async function dialHop(port: number, node: MeshIdentity, protocol: MeshProtocol) {
  const raw: Socket = connect({ port, host: "127.0.0.1", noDelay: true });
  const socket = dialTls(raw, node, protocol);
  onTestFinished(() => void socket.destroy());
  await whenProved(socket);
  socket.on("error", () => undefined);
  return socket;
}

/** An outward session: the node opens streams on it. */
export async function outbound(port: number, node: MeshIdentity): Promise<ClientHttp2Session> {
  const session = clientSession(await dialHop(port, node, "h2"), "gateway", { clock: systemClock() });
  await once(session, "remoteSettings");
  return session;
}

/** An inward session: the gateway opens streams on it. */
export async function inbound(
  { server, port }: GatewayRig,
  node: MeshIdentity,
  onStream: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void = echo,
): Promise<ServerHttp2Session> {
  const session = serverSession(await dialHop(port, node, "holdfast-h2r"), { clock: systemClock() });
  session.on("stream", onStream);
  await once(session, "remoteSettings");
  void server;
  return session;
}

export function echo(stream: ServerHttp2Stream): void {
  stream.respond({ ":status": 200 });
  stream.pipe(stream);
}

/** Requests a node, and resolves with the answer. */
export async function connectTo(
  session: ClientHttp2Session,
  uid: string,
  headers: Record<string, string> = {},
): Promise<{ readonly stream: ClientHttp2Stream; readonly answer: IncomingHttpHeaders }> {
  const stream = session.request(
    { ":method": "CONNECT", ":authority": `${uid}:443`, ...headers },
    { endStream: false },
  );
  stream.on("error", () => undefined);
  const [answer] = (await once(stream, "response")) as [IncomingHttpHeaders];
  return { stream, answer };
}

/** Returns everything up to the end of a stream. */
export async function textOf(stream: Duplex): Promise<string> {
  let text = "";
  for await (const chunk of stream) text += String(chunk);
  return text;
}

/** Resolves when something is closed, in any way. */
export function closed(what: {
  readonly closed: boolean;
  once(event: "close", then: () => void): unknown;
}): Promise<void> {
  return new Promise((resolve) => {
    if (what.closed) resolve();
    what.once("close", resolve);
  });
}
