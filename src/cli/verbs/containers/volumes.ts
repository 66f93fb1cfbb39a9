import { VolumesReport } from "../../../protocol/local/containers.ts";
import { readVerb } from "../../frame/read-verb.ts";
import { volumesText } from "../../text/container-table.ts";

export const volumesVerb = readVerb({
  name: "volumes",
  summary: "show the volumes of this node's containers, where they are and which containers use them",
  path: "/v1/volumes",
  schema: VolumesReport,
  text: (report, { paint }) => volumesText(report, paint),
  exit: ({ volumes }) =>
    volumes.every(({ state }) => state === "ready" || state === "quarantined") ? "ok" : "degraded",
});
