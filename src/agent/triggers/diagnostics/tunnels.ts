import { HostError, InputError } from "../../../errors.ts";
import type { DomainGateway } from "../../../protocol/sections/gateway/domain-items.ts";
import type { MeshPath, MeshState } from "../../../protocol/overlay/mesh.ts";
import { Uid } from "../../../protocol/values/values.ts";

/** Another node of the domain. `gateway`: how this node dials it; `mayDial`: it may dial this node's gateway. */
export interface TunnelPeer {
  readonly uid: string;
  readonly fqdn: string;
  readonly gateway?: Pick<DomainGateway, "host" | "port"> | undefined;
  readonly mayDial?: true | undefined;
}

/** This node and the peers of its domain document. */
export interface TunnelNodes {
  readonly self: { readonly uid: string; readonly fqdn: string };
  readonly domain: string;
  /** Peers by uid. */
  readonly peers: ReadonlyMap<string, TunnelPeer>;
  /** False while the node is INACTIVE: no tunnel is available then. */
  readonly isActive: boolean;
}

export interface EchoRequest {
  readonly peer: string;
  readonly path?: string;
  readonly bytes: number;
  readonly timeoutMs: number;
}
/** Path by which a peer was reached: `path` of `gateway`, which may be the peer, or this node itself. */
export interface TunnelPath {
  readonly gateway: string;
  readonly path: string;
}
export type EchoAnswer = TunnelPath & { readonly rttMs: number };
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
export type UploadAnswer = TunnelPath & { readonly bytes: number; readonly ms: number };

/** Paths to other nodes for trigger events. Errors have the code `timeout`, `not-found`, or that of the tunnel's failure. */
export interface Tunnels {
  /** Undefined until the node is registered. */
  nodes(): TunnelNodes | undefined;
  /** Start of the overlay's byte counters, in Unix milliseconds; undefined without an overlay. */
  countedSince(): number | undefined;
  /** Paths of the overlay's table in any state; empty without an overlay. */
  paths(): readonly MeshPath[];
  /** States of the paths; undefined without an overlay. */
  mesh(signal: AbortSignal): Promise<MeshState | undefined>;
  /** Sends bytes to a peer and back inside the tunnel. */
  echo(request: EchoRequest, signal: AbortSignal): Promise<EchoAnswer>;
  /** Uploads bytes to a peer inside the tunnel. */
  perf(
    request: UploadRequest,
    onProgress: (progress: UploadProgress) => void,
    signal: AbortSignal,
  ): Promise<UploadAnswer>;
}

/** Finds a peer by uid, FQDN or node name; undefined for any other text and this node. */
export function findPeer(nodes: TunnelNodes | undefined, text: string): TunnelPeer | undefined {
  const isMeant = ({ fqdn }: TunnelPeer): boolean => fqdn === text || nameOf(fqdn) === text;
  return nodes?.peers.get(text) ?? [...(nodes?.peers.values() ?? [])].find(isMeant);
}

/**
 * Returns a note if a text looks like a node's name but is no known peer; undefined otherwise. A dot at the end marks the name of a host.
 */
export function takenForHost(nodes: TunnelNodes | undefined, text: string): string | undefined {
  const wanted = text.toLowerCase();
  const isNodeLike = Uid.safeParse(wanted).success || !/[.:]/.test(wanted) || wanted.endsWith(`.${nodes?.domain}`);
  if (nodes === undefined || !isNodeLike || wanted === "localhost") return undefined;
  const what = isOwn(nodes, text) ? "is this node itself" : "is not a known node";
  return `${text} ${what}: used as a host name`;
}

/**
 * Returns the peer of a request.
 * @throws {InputError} `not-found` for an unknown name or this node's own; `inactive`.
 */
export function neededPeer(nodes: TunnelNodes | undefined, dest: string): TunnelPeer {
  const peer = findPeer(nodes, dest);
  if (peer === undefined) {
    const isSelf = nodes !== undefined && isOwn(nodes, dest);
    const message = isSelf ? `${dest} is this node itself` : `this node knows no node ${dest}`;
    throw new InputError("not-found", message, { details: { field: "dest" } });
  }
  if (nodes?.isActive === false) throw new InputError("inactive", `${dest} is unreachable: the node is INACTIVE`);
  return peer;
}

/**
 * Returns the path that `gwPath` names; the empty string is the built-in path if there is one, else the best.
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

/** Returns a node's name: the first label of its FQDN. */
export function nameOf(fqdn: string): string {
  return fqdn.split(".", 1)[0] ?? fqdn;
}

/** Returns a node's display name, or its uid if unknown. */
export function fqdnOf(nodes: TunnelNodes | undefined, uid: string): string {
  if (nodes?.self.uid === uid) return nodes.self.fqdn;
  return nodes?.peers.get(uid)?.fqdn ?? uid;
}

/** Formats a path: `gw-1.example.net, path wan2`, or `default path` for the built-in one. */
export function tunnelPathText(nodes: TunnelNodes | undefined, { gateway, path }: TunnelPath): string {
  if (gateway === nodes?.self.uid) return "this node's own gateway";
  return `${fqdnOf(nodes, gateway)}, ${pathText(path)}`;
}

/** Returns the display name of a path. */
export function pathText(id: string): string {
  return id === "" ? "default path" : `path ${id}`;
}

/** Rounds milliseconds to microseconds. */
export function roundedMs(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

/** Returns why a peer gave no answer: a timeout, or no tunnel. Rethrows other errors. */
export function silenceOf(error: unknown): "timeout" | "not-connected" {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "timeout") return "timeout";
  if (typeof code === "string" && AWAY.has(code)) return "not-connected";
  throw error;
}

/** Codes of an absent tunnel, overlay or connection to the overlay. */
const AWAY: ReadonlySet<string> = new Set(["not-connected", "overlay-absent", "disconnected"]);

/** Returns the error for an unreachable peer. */
export function notConnected(peer: TunnelPeer, cause: unknown): HostError {
  return new HostError("exec-failed", "peer is not connected", { cause, details: { peer: peer.fqdn } });
}
