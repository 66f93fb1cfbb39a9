import { askAgent, gatewaysOf } from "../../../scripts/labs/ask-agent.ts";
import type { Lab } from "../../../scripts/labs/lab.ts";
import { PeersReport, type PathView, type PeerView } from "../../../src/protocol/local/mesh.ts";
import { waitFor } from "../wait-for.ts";

/** A path of a node, with the name of its gateway. */
export type NamedPath = PathView & { readonly gateway: string };

/** Returns the paths of a node to its gateways. */
export async function pathsOf(lab: Lab, node: string): Promise<readonly NamedPath[]> {
  const { gateways } = await gatewaysOf(lab, node);
  return gateways.flatMap(({ name, paths }) => paths.map((path) => ({ ...path, gateway: name })));
}

/** Returns the gateway that carries a node's traffic. */
export function carrierOf(lab: Lab, node: string): Promise<string> {
  return waitFor(`a path of ${node} carries`, async () => (await gatewaysOf(lab, node)).carrier?.gateway);
}

/** Returns a node's view of another; undefined when unknown. */
export async function peerOf(lab: Lab, node: string, other: string): Promise<PeerView | undefined> {
  const { peers } = PeersReport.parse(await askAgent(lab, node, "/v1/peers"));
  return peers.find(({ name }) => name === other);
}

/** Waits until the path of a node to a gateway has a state, and returns it. */
export async function untilPath(
  lab: Lab,
  node: string,
  gateway: string,
  check: (path: NamedPath) => boolean,
  limitMs = 120_000,
): Promise<NamedPath> {
  let seen: unknown;
  const look = async (): Promise<NamedPath | undefined> => {
    const path = (await pathsOf(lab, node)).find((path) => path.gateway === gateway);
    seen = path;
    return path !== undefined && check(path) ? path : undefined;
  };
  return waitFor(`the path of ${node} to ${gateway}`, look, limitMs).catch((error: unknown) => {
    throw new Error(`the path of ${node} to ${gateway} is ${JSON.stringify(seen)}`, { cause: error });
  });
}

/** Waits until every path of these nodes is up, one to each of both gateways. */
export async function untilAllUp(lab: Lab, nodes: readonly string[]): Promise<void> {
  for (const node of nodes) {
    for (const gateway of ["gw1", "gw2"]) await untilPath(lab, node, gateway, ({ state }) => state === "up");
  }
}
