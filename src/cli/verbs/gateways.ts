import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { READ_SOCKET } from "../../protocol/local/api.ts";
import { GatewaysReport } from "../../protocol/local/mesh.ts";
import { ask } from "../frame/client.ts";
import { pathText, serverText } from "../text/mesh-text.ts";
import { listText, type Paint } from "../text/overlay-text.ts";
import type { Call, VerbProgram } from "../frame/verb.ts";
import { watch } from "../frame/watch.ts";

export const gatewaysVerb: VerbProgram = {
  output: GatewaysReport,
  async run(call) {
    if (call.values["watch"] === true) return watch(call, async () => show(call, await fetchGateways(call)));
    const report = await fetchGateways(call);
    call.terminal.out(show(call, report));
    return isWell(report) ? "ok" : "degraded";
  },
};

/** Every path to a gateway at this moment. */
export function fetchGateways(call: Call): Promise<GatewaysReport> {
  return ask(call, { method: "GET", path: "/v1/gateways", socket: READ_SOCKET }, GatewaysReport);
}

function isWell({ overlay, dataPlane, issues, server }: GatewaysReport): boolean {
  if (overlay.state === "down" || overlay.reason !== undefined || issues.length > 0) return false;
  return ["up", "none"].includes(dataPlane) && (server === undefined || server.state === "listening");
}

function show({ settings, terminal, clock }: Call, report: GatewaysReport): string {
  if (settings.isJson) return `${safeJson(report)}\n`;
  const paint: Paint = (style, text) => terminal.style(style, text);
  const { overlay, issues, gateways, server } = plainValue(report);
  const now = clock.now();
  const items = [
    ...gateways.flatMap(({ fqdn, paths }) => paths.map((path) => pathText(fqdn, path, now, paint))),
    ...(server === undefined ? [] : [serverText(server, paint)]),
  ];
  const none = "no gateway that this node is to dial, and none of its own";
  return listText({ overlay, issues, items, none }, now, terminal.size().columns, paint);
}
