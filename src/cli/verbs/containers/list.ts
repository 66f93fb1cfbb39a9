import { ContainersReport } from "../../../protocol/local/containers.ts";
import type { ExitClass } from "../../frame/exit-codes.ts";
import { showReport } from "../../frame/read-verb.ts";
import type { Call } from "../../frame/verb.ts";
import { areContainersWell, containersText } from "../../text/container-table.ts";

/** Shows every container of the applied configuration and its state. */
export function containersList(call: Call): Promise<ExitClass> {
  return showReport(call, {
    path: "/v1/containers",
    schema: ContainersReport,
    text: (report, { now, paint }) => containersText(report, now, paint),
    exit: (report) => (areContainersWell(report) ? "ok" : "degraded"),
  });
}
