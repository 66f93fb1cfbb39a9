import type { OverlayMesh } from "../../../protocol/overlay/mesh.ts";

/** Returns the gateways of the static routes to a node, each once, the lowest metric first. Pure. */
export function viasOf(mesh: Pick<OverlayMesh, "routes"> | undefined, to: string): readonly string[] {
  const routes = (mesh?.routes ?? []).filter((route) => route.to === to).toSorted((a, b) => a.metric - b.metric);
  return [...new Set(routes.map(({ via }) => via))];
}
