import type { Lab } from "../../scripts/labs/lab.ts";
import type { PathState } from "../../src/protocol/overlay-mesh.ts";
import { askAgent } from "./mesh-stage.ts";
import { waitFor } from "./wait-for.ts";

/** A path of a node, its gateway by name. */
export type NamedPath = Omit<PathState, "gateway"> & { readonly gateway: string };

/** The paths of a node to its gateways, as it says itself. */
export async function pathsOf(lab: Lab, node: string): Promise<readonly NamedPath[]> {
  const { paths } = (await askAgent(lab, node, "/v1/gateways")) as { readonly paths: readonly NamedPath[] };
  return paths;
}

/** The gateway that carries what a node sends. */
export async function carrierOf(lab: Lab, node: string): Promise<string> {
  return waitFor(
    `a path of ${node} carries`,
    async () => (await pathsOf(lab, node)).find(({ carries }) => carries)?.gateway,
  );
}

/** Waits until the path of a node to a gateway stands as it should, and gives it. */
export function untilPath(
  lab: Lab,
  node: string,
  gateway: string,
  check: (path: NamedPath) => boolean,
): Promise<NamedPath> {
  return waitFor(`the path of ${node} to ${gateway}`, async () =>
    (await pathsOf(lab, node)).find((path) => path.gateway === gateway && check(path)),
  );
}

/** Waits until every path of these nodes is up, and each has one to both gateways. */
export async function untilAllUp(lab: Lab, nodes: readonly string[]): Promise<void> {
  for (const node of nodes) {
    await waitFor(
      `every path of ${node} is up`,
      async () => {
        const paths = await pathsOf(lab, node);
        return paths.length === 2 && paths.every(({ state }) => state === "up");
      },
      60_000,
    );
  }
}
