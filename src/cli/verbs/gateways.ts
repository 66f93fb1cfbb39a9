import { GatewaysReport } from "../../protocol/local/mesh.ts";
import { readVerb } from "../frame/read-verb.ts";
import { pathText, serverText } from "../text/mesh-text.ts";
import { listText } from "../text/overlay-text.ts";

export const gatewaysVerb = readVerb({
  name: "gateways",
  summary: "show the gateways of this node: which path is up, since when, how good, and which one carries traffic",
  about: "Shows every path, with the reason if it is down, and the gateway that runs on this node.",
  example: "holdfast gateways --watch",
  path: "/v1/gateways",
  schema: GatewaysReport,
  text({ overlay, issues, gateways, server }, view) {
    const items = [
      ...gateways.flatMap(({ fqdn, paths }) => paths.map((path) => pathText(fqdn, path, view.now, view.paint))),
      ...(server === undefined ? [] : [serverText(server, view.paint)]),
    ];
    const none = "this node has no gateway to dial and is no gateway";
    return listText({ overlay, issues, items, none }, view);
  },
  exit: (report) => (isWell(report) ? "ok" : "degraded"),
});

function isWell({ overlay, dataPlane, issues, server }: GatewaysReport): boolean {
  if (overlay.state === "down" || overlay.reason !== undefined || issues.length > 0) return false;
  return ["up", "none"].includes(dataPlane) && (server === undefined || server.state === "listening");
}
