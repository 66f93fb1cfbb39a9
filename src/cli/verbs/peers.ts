import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { READ_SOCKET } from "../../protocol/local/api.ts";
import { PeersReport } from "../../protocol/local/mesh.ts";
import { ask } from "../frame/client.ts";
import { peerText } from "../text/mesh-text.ts";
import { listText, type Paint } from "../text/overlay-text.ts";
import type { Call, VerbProgram } from "../frame/verb.ts";
import { watch } from "../frame/watch.ts";

export const peersVerb: VerbProgram = {
  output: PeersReport,
  async run(call) {
    if (call.values["watch"] === true) return watch(call, async () => show(call, await fetchPeers(call)));
    const report = await fetchPeers(call);
    call.terminal.out(show(call, report));
    // Whether others are there is their affair.
    const { overlay, issues } = report;
    return overlay.state === "down" || overlay.reason !== undefined || issues.length > 0 ? "degraded" : "ok";
  },
};

function fetchPeers(call: Call): Promise<PeersReport> {
  return ask(call, { method: "GET", path: "/v1/peers", socket: READ_SOCKET }, PeersReport);
}

function show({ settings, terminal, clock }: Call, report: PeersReport): string {
  if (settings.isJson) return `${safeJson(report)}\n`;
  const paint: Paint = (style, text) => terminal.style(style, text);
  const { overlay, issues, peers } = plainValue(report);
  const now = clock.now();
  const items = peers.map((peer) => peerText(peer, now, paint));
  const none = "no other node in the domain document";
  return listText({ overlay, issues, items, none }, now, terminal.size().columns, paint);
}
