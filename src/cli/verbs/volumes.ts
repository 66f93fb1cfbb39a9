import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { READ_SOCKET } from "../../protocol/local/api.ts";
import { VolumesReport } from "../../protocol/local/containers.ts";
import { ask } from "../frame/client.ts";
import { volumesText } from "../text/container-table.ts";
import type { Call, VerbProgram } from "../frame/verb.ts";
import { watch } from "../frame/watch.ts";

export const volumesVerb: VerbProgram = {
  output: VolumesReport,
  async run(call) {
    if (call.values["watch"] === true) return watch(call, async () => show(call, await fetchVolumes(call)));
    const report = await fetchVolumes(call);
    call.terminal.out(show(call, report));
    const isWell = report.volumes.every(({ state }) => state === "ready" || state === "quarantined");
    return isWell ? "ok" : "degraded";
  },
};

function fetchVolumes(call: Call): Promise<VolumesReport> {
  return ask(call, { method: "GET", path: "/v1/volumes", socket: READ_SOCKET }, VolumesReport);
}

function show({ settings, terminal }: Call, report: VolumesReport): string {
  if (settings.isJson) return `${safeJson(report)}\n`;
  return volumesText(plainValue(report), (style, text) => terminal.style(style, text));
}
