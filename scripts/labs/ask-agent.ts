// What the nodes of a lab report of themselves.
import { GatewaysReport } from "../../src/protocol/local/mesh.ts";
import type { Lab } from "./lab.ts";
import { placesOf } from "./programs.ts";
import { until } from "./shell.ts";
import { readLocal } from "../../test/support/control-plane/exchange.ts";

/** Returns the answer to a read request of a node's local API. */
export function askAgent(lab: Lab, node: string, path: string): Promise<unknown> {
  return readLocal(placesOf(lab.dir, node).run, path);
}

/** The paths of a node to its gateways, and which gateway carries, all by name. */
export async function gatewaysOf(lab: Lab, node: string): Promise<GatewaysReport> {
  return GatewaysReport.parse(await askAgent(lab, node, "/v1/gateways"));
}

/** Waits until a node has a tunnel to a gateway. */
export function untilTunnel(lab: Lab, node: string, gateway: string): Promise<boolean> {
  return until(`${node} has a tunnel to ${gateway}`, async () => {
    const { gateways } = await gatewaysOf(lab, node);
    return gateways.some(({ name, paths }) => name === gateway && paths.some(({ state }) => state === "up"));
  });
}
