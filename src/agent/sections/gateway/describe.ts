import type { MeshPath, OverlayMesh } from "../../../protocol/overlay/mesh.ts";
import type { GatewayActual, GatewayStep } from "./plan.ts";

/** Limit of services named per node. */
const MAX_LISTED = 8;

/** Describes a step to an operator: the gateway, path, peer or grant, what changes, and whether flows end. Pure. */
export function describeGatewayStep({ part, mesh }: GatewayStep, actual: GatewayActual): string {
  const before = actual.mesh;
  const nameOf = names(actual, mesh);
  switch (part.of) {
    case "mesh":
      return mesh === undefined ? "the mesh, ends all its flows" : "the mesh";
    case "server":
      return serverText(before, mesh);
    case "limits":
      return `limits: in ${rate(before?.ingressBitsPerSecond)} → ${rate(mesh?.ingressBitsPerSecond)}, out ${rate(before?.egressBitsPerSecond)} → ${rate(mesh?.egressBitsPerSecond)}`;
    case "routes":
      return `static routes: ${routesText(mesh, nameOf)}`;
    case "peer":
      return peerText(part.uid, before, mesh, nameOf);
    case "peers":
      return `peers: ${before?.peers.length ?? 0} → ${mesh?.peers.length ?? 0}, ends the flows of removed peers and changed keys`;
    case "path":
      return pathText(pathOf(before, part), pathOf(mesh, part), nameOf);
    case "grants":
      return grantsText(part.source, before, mesh, nameOf);
    case "all-grants":
      return `grants: ${before?.grants.length ?? 0} → ${mesh?.grants.length ?? 0}, ends flows that are no longer granted`;
  }
}

type NameOf = (uid: string) => string;

/** A node that left the domain keeps its name from the table. */
function names({ domain, mesh: before }: GatewayActual, after: OverlayMesh | undefined): NameOf {
  return (uid) => {
    const known = [before, after].flatMap((mesh) => mesh?.peers.find((peer) => peer.uid === uid)?.fqdn ?? []);
    return domain?.peers.get(uid)?.name ?? known[0] ?? uid;
  };
}

function serverText(before: OverlayMesh | undefined, after: OverlayMesh | undefined): string {
  const [was, is] = [before?.server, after?.server];
  if (is === undefined) return `gateway server on port ${was?.port ?? 0}, ends the tunnels of its clients`;
  if (was === undefined) return `gateway server on port ${is.port}`;
  const pairs = (relays: typeof is.relays): string => (relays === undefined ? "every pair" : `${relays.length} pairs`);
  const changes = [
    ...(was.port === is.port ? [] : [`port ${was.port} → ${is.port}`]),
    ...(was.addresses.join() === is.addresses.join()
      ? []
      : [`addresses ${was.addresses.join(" ")} → ${is.addresses.join(" ")}`]),
    ...(JSON.stringify(was.relays) === JSON.stringify(is.relays)
      ? []
      : [`relays ${pairs(was.relays)} → ${pairs(is.relays)}, ends flows that it may no longer relay`]),
  ];
  return `gateway server on port ${is.port}: ${changes.join(", ")}`;
}

function peerText(
  uid: string,
  before: OverlayMesh | undefined,
  after: OverlayMesh | undefined,
  nameOf: NameOf,
): string {
  const [was, is] = [before, after].map((mesh) => mesh?.peers.find((peer) => peer.uid === uid));
  if (is === undefined) return `peer ${nameOf(uid)}, ends its flows`;
  const name = `peer ${nameOf(uid)}`;
  if (was === undefined) return `${name}${is.mayDial === true ? ", which may dial this gateway" : ""}`;
  const changes = [
    ...(was.fqdn === is.fqdn ? [] : [`name ${was.fqdn} → ${is.fqdn}`]),
    ...(was.key === is.key ? [] : ["new key, ends its flows"]),
    ...(was.mayDial === is.mayDial
      ? []
      : [is.mayDial === true ? "may dial this gateway" : "may no longer dial this gateway, ends its tunnels"]),
    ...(was.isHub === is.isHub ? [] : [is.isHub === true ? "is a hub" : "is no longer a hub"]),
    ...(was.isGateway === is.isGateway
      ? []
      : [is.isGateway === true ? "is a gateway that relays for its clients" : "is no longer a gateway"]),
  ];
  return `${name}: ${changes.join(", ")}`;
}

function pathOf(
  mesh: OverlayMesh | undefined,
  { gateway, id }: { readonly gateway: string; readonly id: string },
): MeshPath | undefined {
  return mesh?.paths.find((path) => path.gateway === gateway && path.id === id);
}

function pathText(was: MeshPath | undefined, is: MeshPath | undefined, nameOf: NameOf): string {
  const path = is ?? was;
  if (path === undefined) return "path";
  const to = path.id === "" ? `gateway ${nameOf(path.gateway)}` : `path ${path.id} to gateway ${nameOf(path.gateway)}`;
  const at = ({ host, port, local }: MeshPath): string =>
    `${host.includes(":") ? `[${host}]` : host}:${port}${local === undefined ? "" : ` from ${local}`}`;
  if (is === undefined) return `${to} at ${at(path)}, ends the flows on it`;
  if (was === undefined) return `${to} at ${at(is)}${is.isDefault ? "" : ", not the default"}`;
  const isMoved = at(was) !== at(is);
  const changes = [
    ...(isMoved ? [`${at(was)} → ${at(is)}`] : []),
    ...(was.isDefault === is.isDefault ? [] : [is.isDefault ? "is the default" : "is no longer the default"]),
  ];
  return `${to}: ${changes.join(", ")}${isMoved ? ", ends the flows on it" : ""}`;
}

function grantsText(
  source: string,
  before: OverlayMesh | undefined,
  after: OverlayMesh | undefined,
  nameOf: NameOf,
): string {
  const of = (mesh: OverlayMesh | undefined): ReadonlySet<string> =>
    new Set(mesh?.grants.flatMap((grant) => (grant.source === source ? [`${grant.service} ${grant.protocol}`] : [])));
  const [was, is] = [of(before), of(after)];
  const added = [...is].filter((one) => !was.has(one));
  const gone = [...was].filter((one) => !is.has(one));
  const parts = [
    ...(added.length === 0 ? [] : [`may use ${listed(added)}`]),
    ...(gone.length === 0 ? [] : [`may no longer use ${listed(gone)}, ends its flows there`]),
  ];
  return `${nameOf(source)} ${parts.join("; ")}`;
}

function routesText(mesh: OverlayMesh | undefined, nameOf: NameOf): string {
  const routes = (mesh?.routes ?? []).map(({ to, via }) => `${nameOf(to)} through ${nameOf(via)}`);
  return listed(routes);
}

function listed(texts: readonly string[]): string {
  if (texts.length === 0) return "none";
  const more = texts.length > MAX_LISTED ? ` and ${texts.length - MAX_LISTED} more` : "";
  return `${texts.slice(0, MAX_LISTED).join(", ")}${more}`;
}

function rate(bitsPerSecond: number | undefined): string {
  return bitsPerSecond === undefined ? "unlimited" : `${bitsPerSecond / 1_000_000} Mbit/s`;
}
