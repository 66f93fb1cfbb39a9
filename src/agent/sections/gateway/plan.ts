import { isDeepStrictEqual } from "node:util";
import type { MeshStanding } from "../../../host/overlay/client.ts";
import type { MeshGrant, OverlayMesh } from "../../../protocol/overlay/mesh.ts";
import type { Gateway, GatewayPath, LatencyMonitor } from "../../../protocol/sections/gateway/gateway.ts";
import { compileMesh, type MeshSurroundings, isDialled, isSelf } from "./mesh.ts";
import { clusterText, unknownNodeText } from "../../../protocol/documents/own-name.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import type { DomainView } from "../../../protocol/documents/domain-view.ts";

/** The overlay's mesh, its state, and the section's other inputs. */
export interface GatewayActual extends MeshSurroundings {
  readonly mesh: OverlayMesh | undefined;
  readonly standing: MeshStanding | undefined;
}

/** Part of the mesh that a step changes. */
export type Part =
  | { readonly of: "mesh" }
  | { readonly of: "server" }
  | { readonly of: "limits" }
  | { readonly of: "routes" }
  | { readonly of: "peer"; readonly uid: string }
  | { readonly of: "peers" }
  | { readonly of: "path"; readonly gateway: string; readonly id: string }
  | { readonly of: "grants"; readonly source: string }
  | { readonly of: "all-grants" };

/** One change. The table takes the mesh as a whole, so each step carries all of it. */
export interface GatewayStep {
  readonly kind: "add" | "change" | "remove";
  readonly subject: string;
  readonly guarded: false;
  readonly part: Part;
  readonly mesh: OverlayMesh | undefined;
}

/** More peers or sources of grants than this become one step. */
const MAX_EACH = 64;

/** Plans the changes of the mesh: removals, then additions. Pure. */
export function planGateway(
  desired: Gateway,
  actual: GatewayActual,
  compile: typeof compileMesh = compileMesh,
): readonly GatewayStep[] {
  const before = actual.mesh;
  const after = compile(desired, actual, before?.server);
  if (before === after || isDeepStrictEqual(before, after)) return [];
  const changes = [
    ...changesOf("server", before?.server, after?.server),
    ...changesOf("limits", limitsOf(before), limitsOf(after)),
    ...changesOf("routes", listed(before?.routes), listed(after?.routes)),
    ...fewOrOne(entries(peersOf(before), peersOf(after)), "peers"),
    ...entries(pathsOf(before), pathsOf(after)),
    ...fewOrOne(entries(grantsOf(before), grantsOf(after)), "all-grants"),
  ];
  // Without other changes, only `self` shows that the mesh was created, removed or is another node's.
  const isWhole = changes.length === 0 || (before !== undefined && after !== undefined && before.self !== after.self);
  const whole = isWhole ? changesOf("mesh", before?.self, after?.self, true) : [];
  return [...whole, ...changes]
    .toSorted((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind))
    .map(({ kind, part }) => ({ kind, subject: subjectOf(part), guarded: false, part, mesh: after }));
}

const ORDER: readonly GatewayStep["kind"][] = ["remove", "change", "add"];

type Change = Pick<GatewayStep, "kind" | "part">;

function changesOf(
  of: "server" | "limits" | "routes" | "mesh",
  before: unknown,
  after: unknown,
  always = false,
): readonly Change[] {
  if (!always && isDeepStrictEqual(before, after)) return [];
  return [{ kind: kindOf(before, after), part: { of } }];
}

function kindOf(before: unknown, after: unknown): GatewayStep["kind"] {
  if (before === undefined) return after === undefined ? "change" : "add";
  return after === undefined ? "remove" : "change";
}

type Parts = ReadonlyMap<string, { readonly part: Part; readonly value: unknown }>;

function entries(before: Parts, after: Parts): readonly Change[] {
  return [...new Set([...before.keys(), ...after.keys()])].flatMap((key): Change[] => {
    const [was, is] = [before.get(key), after.get(key)];
    const part = is?.part ?? was?.part;
    if (part === undefined || isDeepStrictEqual(was?.value, is?.value)) return [];
    return [{ kind: kindOf(was, is), part }];
  });
}

function fewOrOne(changes: readonly Change[], of: "peers" | "all-grants"): readonly Change[] {
  return changes.length <= MAX_EACH ? changes : [{ kind: "change", part: { of } }];
}

function peersOf(mesh: OverlayMesh | undefined): Parts {
  return new Map(mesh?.peers.map((peer) => [peer.uid, { part: { of: "peer", uid: peer.uid }, value: peer }]));
}

function pathsOf(mesh: OverlayMesh | undefined): Parts {
  return new Map(
    mesh?.paths.map((path) => {
      const { gateway, id } = path;
      return [`${gateway} ${id}`, { part: { of: "path", gateway, id }, value: path }];
    }),
  );
}

function grantsOf(mesh: OverlayMesh | undefined): Parts {
  const bySource = new Map<string, MeshGrant[]>();
  for (const grant of mesh?.grants ?? []) {
    const own = bySource.get(grant.source);
    if (own === undefined) bySource.set(grant.source, [grant]);
    else own.push(grant);
  }
  return new Map([...bySource].map(([source, value]) => [source, { part: { of: "grants", source }, value }]));
}

function limitsOf(mesh: OverlayMesh | undefined): unknown {
  const { ingressBitsPerSecond, egressBitsPerSecond } = mesh ?? {};
  if (ingressBitsPerSecond === undefined && egressBitsPerSecond === undefined) return undefined;
  return [ingressBitsPerSecond, egressBitsPerSecond];
}

function listed(list: readonly unknown[] | undefined): readonly unknown[] | undefined {
  return list === undefined || list.length === 0 ? undefined : list;
}

function subjectOf(part: Part): string {
  switch (part.of) {
    case "mesh":
    case "server":
    case "limits":
    case "routes":
    case "peers":
      return part.of;
    case "all-grants":
      return "grants";
    case "peer":
      return `peer ${part.uid}`;
    case "path":
      return `path ${part.gateway}/${part.id}`;
    case "grants":
      return `grants ${part.source}`;
  }
}

/** Lists parts of the section that cannot work: unknown nodes, absent addresses, a port in use. Pure. */
export function waitingGateway(desired: Gateway, actual: GatewayActual): readonly Issue[] {
  const { isActive, self, domain } = actual;
  if (!isActive || self === undefined || domain === undefined) return [];
  const known = (name: string): boolean => isSelf(self, name) || domain.find(name) !== undefined;
  const references = [
    ...desired.routes.flatMap(({ to, via }) => [
      { at: "gateway.routes.route", name: to },
      { at: "gateway.routes.dest", name: via },
    ]),
    ...(desired.acls ?? []).flatMap(({ source, dest }) => [
      { at: "gateway.acls.source", name: source },
      { at: "gateway.acls.dest", name: dest },
    ]),
    ...desired.hops.overrides.map(({ node }) => ({ at: "gateway.monitorHopsOverrides.node", name: node })),
    ...desired.latency.monitors.map(({ node }) => ({ at: "gateway.latencyMonitors.node", name: node })),
  ];
  const unknown = new Map(
    references
      .filter(({ name }) => !known(name))
      .map(({ at, name }) => [`${at} ${name}`, domain.clusters.has(name) ? cluster(at, name) : unknownNode(at, name)]),
  );
  return [
    ...domain.issues,
    ...desired.paths.filter(({ enabled }) => enabled).flatMap((path) => pathIssues(path, desired, actual, domain)),
    ...unknown.values(),
    ...desired.latency.monitors.flatMap((monitor) => monitorIssues(monitor, desired, domain)),
    ...serverIssues(actual),
  ].slice(0, MAX_ISSUES);
}

const MAX_ISSUES = 1000;

function cluster(path: string, name: string): Issue {
  return { path, code: "unsupported", message: `${path}: ${clusterText(name)}` };
}

/** Explains that no node of the domain has this name, and what to do. */
function unknownNode(path: string, name: string): Issue {
  const text = unknownNodeText(name);
  return { path, code: "unknown-node", message: `${path}: ${text}` };
}

function pathIssues(
  { id, node, local }: GatewayPath,
  desired: Gateway,
  actual: GatewayActual,
  domain: DomainView,
): readonly Issue[] {
  const at = `gateway.paths.${id}`;
  const peer = domain.find(node);
  if (peer === undefined) return [unknownNode(`${at}.node`, node)];
  if (!isDialled(desired, peer)) {
    const text = `${node} is no gateway that this node may dial: see its type and clients, and connectToPublic here`;
    return [{ path: `${at}.node`, code: "not-a-gateway", message: `${at}.node: ${text}` }];
  }
  if (local === undefined || actual.local.has(local)) return [];
  const text = `${local} is no address of this machine; the path stays down`;
  return [{ path: `${at}.local`, code: "address-absent", message: `${at}.local: ${text}` }];
}

/** A monitor has samples only if this node dials the gateway over an enabled path. */
function monitorIssues({ node, path }: LatencyMonitor, desired: Gateway, domain: DomainView): readonly Issue[] {
  const peer = domain.find(node);
  if (peer === undefined) return [];
  const at = "gateway.latencyMonitors";
  if (!isDialled(desired, peer)) {
    const text = `${node} is no gateway that this node dials, so nothing is measured`;
    return [{ path: `${at}.node`, code: "not-a-gateway", message: `${at}.node: ${text}` }];
  }
  const isThere = desired.paths.some(
    (one) => one.id === path && one.enabled && domain.find(one.node)?.uid === peer.uid,
  );
  if (path === undefined || isThere) return [];
  const text = `path ${path} does not lead to ${node} or is disabled, so nothing is measured`;
  return [{ path: `${at}.path`, code: "no-path", message: `${at}.path: ${text}` }];
}

function serverIssues({ mesh, standing }: GatewayActual): readonly Issue[] {
  const server = standing?.server;
  if (mesh?.server === undefined || server?.state !== "failed") return [];
  const { reason = "other", message } = server;
  const because = message === undefined ? reason : `${reason}: ${message}`;
  const text = `the gateway server does not listen on port ${mesh.server.port} (${because})`;
  return [{ path: "gateway.port", code: reason, message: `gateway.port: ${text}`.slice(0, 1024) }];
}
