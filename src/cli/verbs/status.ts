import { Health, Status } from "../../protocol/local/answers.ts";
import { fetchReport } from "../frame/client.ts";
import { readVerb } from "../frame/read-verb.ts";
import { standing, statusText } from "../text/status-view.ts";

export const statusVerb = readVerb({
  name: "status",
  summary: "show the state of this node",
  exits: ["ok", "failed", "usage", "unreachable", "unregistered", "degraded", "timeout"],
  example: "holdfast status --watch",
  path: "/v1/status",
  schema: Status,
  text: (status, { now, columns, paint }) => statusText(status, now, columns, paint),
  exit: async (status, call) => standing(status, (await fetchReport(call, "/v1/health", Health)).verdict),
});
