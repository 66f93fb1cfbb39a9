import { HostError, InputError } from "../../../errors.ts";
import type { DomainGateway } from "../../../protocol/sections/gateway/domain-items.ts";
import type { MeshPath, MeshState } from "../../../protocol/overlay/mesh.ts";
import { Uid } from "../../../protocol/values/values.ts";

/** Another node of the domain. `gateway` is how this node is to dial it; `mayDial` that it may dial this one's own. */
export interface TunnelPeer {
  readonly uid: string;
  readonly fqdn: string;
  readonly gateway?: Pick<DomainGateway, "host" | "port"> | undefined;
  readonly mayDial?: true | undefined;
}

/** This node and whom its domain document names, in force or not. */
export interface TunnelNodes {
  readonly self: { readonly uid: string; readonly fqdn: string };
  readonly domain: string;
  /** By uid. */
  readonly peers: ReadonlyMap<string, TunnelPeer>;
  /** False while the node is INACTIVE: then no tunnel leads anywhere. */
  readonly isActive: boolean;
}

export interface EchoRequest {
  readonly peer: string;
  readonly path?: string;
  readonly bytes: number;
  readonly timeoutMs: number;
}
/** Which way a peer was reached: by the path `path` to `gateway`, which may be the peer, or this node itself. */
export interface Way {
  readonly gateway: string;
  readonly path: string;
}
export type EchoAnswer = Way & { readonly rttMs: number };
export interface UploadRequest {
  readonly peer: string;
  readonly path?: string;
  readonly bytes: number;
  readonly messageBytes: number;
  readonly windowBytes: number;
}
export interface UploadProgress {
  readonly bytes: number;
  readonly lost: number;
}
export type UploadAnswer = Way & { readonly bytes: number; readonly ms: number };

/** The ways to other nodes, as trigger events use them. Errors carry `timeout`, `not-found` or what keeps the tunnel away. */
export interface Tunnels {
  /** Undefined until the node is registered. */
  nodes(): TunnelNodes | undefined;
  /** Since when the overlay counts bytes, in Unix milliseconds; undefined while there is none. */
  countedSince(): number | undefined;
  /** The paths of the overlay's table, up or not; none while there is no overlay. */
  paths(): readonly MeshPath[];
  /** How the ways stand; undefined while there is no overlay. */
  mesh(signal: AbortSignal): Promise<MeshState | undefined>;
  /** Has bytes go to a peer and back inside the tunnel. */
  echo(request: EchoRequest, signal: AbortSignal): Promise<EchoAnswer>;
  /** Uploads bytes to a peer inside the tunnel. */
  perf(
    request: UploadRequest,
    onProgress: (progress: UploadProgress) => void,
    signal: AbortSignal,
  ): Promise<UploadAnswer>;
}

/** The peer that a text names by uid, FQDN or node name; undefined for any other, this node included. */
export function findPeer(nodes: TunnelNodes | undefined, text: string): TunnelPeer | undefined {
  const isMeant = ({ fqdn }: TunnelPeer): boolean => fqdn === text || nameOf(fqdn) === text;
  return nodes?.peers.get(text) ?? [...(nodes?.peers.values() ?? [])].find(isMeant);
}

/**
 * What a text is taken for that could have been meant as a node and is none that this one knows; undefined of any other text. A dot
 * at the end says that no node is meant.
 */
export function takenForHost(nodes: TunnelNodes | undefined, text: string): string | undefined {
  const wanted = text.toLowerCase();
  const isNodeLike = Uid.safeParse(wanted).success || !/[.:]/.test(wanted) || wanted.endsWith(`.${nodes?.domain}`);
  if (nodes === undefined || !isNodeLike || wanted === "localhost") return undefined;
  const what = isOwn(nodes, text) ? "is this node itself" : "is no node that this one knows";
  return `${text} ${what}: taken for the name of a host`;
}

/**
 * The peer that a request means.
 * @throws {InputError} `not-found` for a name that no peer has, or this node's own; `inactive`.
 */
export function neededPeer(nodes: TunnelNodes | undefined, dest: string): TunnelPeer {
  const peer = findPeer(nodes, dest);
  if (peer === undefined) {
    const isSelf = nodes !== undefined && isOwn(nodes, dest);
    const message = isSelf ? `${dest} is this node itself` : `this node knows no node ${dest}`;
    throw new InputError("not-found", message, { details: { field: "dest" } });
  }
  if (nodes?.isActive === false) throw new InputError("inactive", `${dest} is out of reach: the node is INACTIVE`);
  return peer;
}

/**
 * The path that `gwPath` names, if any; the empty text is the built-in path where there is one, else whichever is the best.
 * @throws {InputError} `not-found` for a path that this node does not have.
 */
export function neededPath(mesh: MeshState | undefined, gwPath: string | undefined): { readonly path?: string } {
  if (gwPath === undefined) return {};
  if (mesh?.paths.some(({ id }) => id === gwPath) === true) return { path: gwPath };
  if (gwPath === "") return {};
  throw new InputError("not-found", `this node has no gateway path ${gwPath}`, { details: { field: "gwPath" } });
}

function isOwn({ self }: TunnelNodes, wanted: string): boolean {
  return [self.uid, self.fqdn, nameOf(self.fqdn)].includes(wanted);
}

/** A node's own name: the first label of its FQDN. */
export function nameOf(fqdn: string): string {
  return fqdn.split(".", 1)[0] ?? fqdn;
}

/** What to call a node of which only the uid is known. */
export function fqdnOf(nodes: TunnelNodes | undefined, uid: string): string {
  if (nodes?.self.uid === uid) return nodes.self.fqdn;
  return nodes?.peers.get(uid)?.fqdn ?? uid;
}

/** How a way is called: `gw-1.example.net, path wan2`, or for the built-in one `default path`. */
export function wayText(nodes: TunnelNodes | undefined, { gateway, path }: Way): string {
  if (gateway === nodes?.self.uid) return "this node's own gateway";
  return `${fqdnOf(nodes, gateway)}, ${pathText(path)}`;
}

/** What a path is called where people read it. */
export function pathText(id: string): string {
  return id === "" ? "default path" : `path ${id}`;
}

/** Milliseconds to the microsecond; what is behind that is noise. */
export function roundedMs(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

/** Why a peer gave no answer: it took too long, or no tunnel leads there. Anything else is thrown on. */
export function silenceOf(error: unknown): "timeout" | "not-connected" {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "timeout") return "timeout";
  if (typeof code === "string" && AWAY.has(code)) return "not-connected";
  throw error;
}

/** Codes of a tunnel that is not there, be it for the network, the overlay program or the connection to that. */
const AWAY: ReadonlySet<string> = new Set(["not-connected", "overlay-absent", "disconnected"]);

/** What the caller is told when a peer cannot be reached at all. */
export function notConnected(peer: TunnelPeer, cause: unknown): HostError {
  return new HostError("exec-failed", "peer is not connected", { cause, details: { peer: peer.fqdn } });
}
