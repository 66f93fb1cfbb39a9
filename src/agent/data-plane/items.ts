import type { HealthItem, Status } from "../../protocol/local/answers.ts";
import type { Carrier } from "../../protocol/local/mesh.ts";

/** Returns health items of paths to other nodes and of this node's gateway; empty without any. Pure. */
export function dataPlaneItems({ engines }: Pick<Status, "engines">): readonly HealthItem[] {
  const { dataPlane } = engines;
  if (dataPlane === undefined) return [];
  const { state, paths, up, carrier, server } = dataPlane;
  const items: HealthItem[] = [];
  if (state !== "none") items.push(waysItem(state, `${up} of ${paths} paths to gateways up`, carrier));
  if (server !== undefined && server !== "listening") {
    const fix = "see 'holdfast why': another program may have the port";
    items.push({ name: "gateway-server", status: "fail", message: "this node's gateway does not listen", fix });
  } else if (server !== undefined) {
    items.push({ name: "gateway-server", status: "pass", message: "this node's gateway listens" });
  }
  return items;
}

/** Describes the path that carries the traffic, and why. */
function carrierText({ gateway, path, reason }: Carrier): string {
  const by = `${gateway}${path === "" ? "" : ` by path ${path}`} carries the traffic`;
  return reason === undefined ? by : `${by} (${reason})`;
}

function waysItem(state: string, counted: string, carrier: Carrier | undefined): HealthItem {
  const item = { name: "data-plane", ...(carrier === undefined ? {} : { since: carrier.since }) };
  const message = carrier === undefined ? counted : `${counted}; ${carrierText(carrier)}`;
  const fix = "see 'holdfast gateways' for each path and why it is down; the node keeps retrying";
  switch (state) {
    case "up":
      return { ...item, status: "pass", message };
    case "degraded":
      return { ...item, status: "warn", message, fix };
    case "down":
      return { ...item, status: "fail", message, fix };
    default:
      return { ...item, status: "unknown", message: "the overlay does not report it" };
  }
}
