import { PeersReport } from "../../protocol/local/mesh.ts";
import { readVerb } from "../frame/read-verb.ts";
import { peerText } from "../text/mesh-text.ts";
import { isWell, listText } from "../text/overlay-text.ts";

export const peersVerb = readVerb({
  name: "peers",
  summary: "show the nodes that dial this one and the sessions with other nodes",
  path: "/v1/peers",
  schema: PeersReport,
  text({ overlay, issues, peers }, view) {
    const items = peers.map((peer) => peerText(peer, view.now, view.paint));
    return listText({ overlay, issues, items, none: "the domain document lists no other node" }, view);
  },
  // A peer that is offline does not degrade this node.
  exit: (report) => (isWell(report, []) ? "ok" : "degraded"),
});
