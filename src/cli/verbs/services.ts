import { formatCount, formatSpan } from "../../lib/text/durations.ts";
import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { READ_SOCKET } from "../../protocol/local/api.ts";
import { ServicesReport, type ServiceView } from "../../protocol/local/overlay.ts";
import { ask } from "../frame/client.ts";
import { isWell, listText, placeText, reasonText, stateText, type ItemText, type Paint } from "../text/overlay-text.ts";
import type { Call, VerbProgram } from "../frame/verb.ts";
import { watch } from "../frame/watch.ts";

export const servicesVerb: VerbProgram = {
  output: ServicesReport,
  async run(call) {
    if (call.values["watch"] === true) return watch(call, async () => show(call, await fetchServices(call)));
    const report = await fetchServices(call);
    call.terminal.out(show(call, report));
    return isWell(report, report.services) ? "ok" : "degraded";
  },
};

function fetchServices(call: Call): Promise<ServicesReport> {
  return ask(call, { method: "GET", path: "/v1/services", socket: READ_SOCKET }, ServicesReport);
}

function show({ settings, terminal, clock }: Call, report: ServicesReport): string {
  if (settings.isJson) return `${safeJson(report)}\n`;
  const paint: Paint = (style, text) => terminal.style(style, text);
  const { overlay, issues, services } = plainValue(report);
  const now = clock.now();
  const items = services.map((service) => itemText(service, now, paint));
  const none = "no service in the configuration in force";
  return listText({ overlay, issues, items, none }, now, terminal.size().columns, paint);
}

function itemText(service: ServiceView, now: number, paint: Paint): ItemText {
  const { id, name, description, state, reason, protocol, target } = service;
  const where = target === undefined ? "" : ` ${protocol ?? target.transport} ${target.host}:${target.port}`;
  const named = description === undefined ? "" : ` (${description.slice(0, 80)})`;
  return {
    head: `${paint("bold", name ?? id)} ${stateText(state, paint)}${where}${named}`,
    details: [
      ...(reason === undefined ? [] : [reasonText(reason, paint)]),
      ...(state === "offered" ? [`health ${healthText(service, now, paint)}`] : []),
      ...(target === undefined ? [] : [usersText(service)]),
    ],
  };
}

function healthText({ health }: ServiceView, now: number, paint: Paint): string {
  if (health === undefined) return "not checked";
  return `${stateText(health.state, paint)} ${formatSpan(now - health.since)}`;
}

/** Where each listens, which is how people know it, and then what it is called or the beginning of its id. */
function usersText({ connectors, usedBy }: ServiceView): string {
  if (connectors.length === 0) return "no connector of this node leads to it";
  if (usedBy === undefined) return `used by ${formatCount(connectors.length, "connector")}`;
  const shown = usedBy.map((user) => {
    const name = user.description?.slice(0, 40) ?? user.id.slice(0, 8);
    return `${user.transport} ${placeText(user)} (${name})`;
  });
  const left = connectors.length - shown.length;
  return `used by ${shown.join(", ")}${left > 0 ? ` and ${left} more` : ""}`;
}
