import type { NetworkTargets } from "../../protocol/overlay/network-targets.ts";
import type { MeshPath, MeshPeer, OverlayMesh } from "../../protocol/overlay/mesh.ts";
import type { Registration } from "../identity/identity.ts";
import type { AgentSettings } from "../settings.ts";

/** Returns the targets a node must reach: its control plane with the proxy, and every path to a gateway. Pure. */
export function networkTargets(
  registration: Registration | undefined,
  { proxies, hosts }: Pick<AgentSettings, "proxies" | "hosts">,
  mesh: OverlayMesh | undefined,
): NetworkTargets {
  const { https, noProxy } = proxies;
  const peers = new Map(mesh?.peers.map((peer) => [peer.uid, peer]));
  return {
    schema: 1,
    ...(registration === undefined ? {} : { controlPlane: controlPlaneOf(registration) }),
    ...(https === undefined ? {} : { proxy: { url: https.href, noProxy: [...noProxy] } }),
    ...(hosts === undefined ? {} : { hosts: Object.fromEntries(Object.entries(hosts).map(copied)) }),
    paths: (mesh?.paths ?? []).map((path) => pathTarget(path, peers.get(path.gateway))),
  };
}

const copied = ([name, addresses]: readonly [string, readonly string[]]): [string, string[]] => [name, [...addresses]];

function pathTarget(path: MeshPath, peer: MeshPeer | undefined): NetworkTargets["paths"][number] {
  return { ...path, name: peer?.fqdn ?? path.gateway, ...(peer === undefined ? {} : { key: peer.key }) };
}

function controlPlaneOf({ controlPlane, node }: Registration): NonNullable<NetworkTargets["controlPlane"]> {
  return { url: controlPlane.iss, session: node.session, pins: controlPlane.keys.spki };
}
