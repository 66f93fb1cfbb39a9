import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { READ_SOCKET } from "../../protocol/local/api.ts";
import { ContainersReport } from "../../protocol/local/containers.ts";
import { ask } from "../frame/client.ts";
import { areContainersWell, containersText } from "../text/container-table.ts";
import type { ExitClass } from "../frame/exit-codes.ts";
import type { Call } from "../frame/verb.ts";
import { watch } from "../frame/watch.ts";

/** Shows every container of the configuration in force, and how it stands. */
export async function containersList(call: Call): Promise<ExitClass> {
  if (call.values["watch"] === true) return watch(call, async () => show(call, await fetchContainers(call)));
  const report = await fetchContainers(call);
  call.terminal.out(show(call, report));
  return areContainersWell(report) ? "ok" : "degraded";
}

function fetchContainers(call: Call): Promise<ContainersReport> {
  return ask(call, { method: "GET", path: "/v1/containers", socket: READ_SOCKET }, ContainersReport);
}

function show({ settings, terminal, clock }: Call, report: ContainersReport): string {
  if (settings.isJson) return `${safeJson(report)}\n`;
  return containersText(plainValue(report), clock.now(), (style, text) => terminal.style(style, text));
}
