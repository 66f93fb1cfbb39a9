import { formatMoment } from "../lib/durations.ts";
import { plainValue, safeJson } from "../lib/terminal-text.ts";
import { READ_SOCKET } from "../protocol/local-api.ts";
import { ServicesReport, type ServiceView } from "../protocol/local-overlay.ts";
import { ask } from "./client.ts";
import { isWell, listText, reasonText, stateText, type ItemText, type Paint } from "./overlay-text.ts";
import type { Call, VerbProgram } from "./verb.ts";
import { watch } from "./watch.ts";

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
  return `${stateText(health.state, paint)} since ${formatMoment(health.since, now)}`;
}

function usersText({ connectors }: ServiceView): string {
  return connectors.length === 0 ? "no connector of this node leads to it" : `used by ${connectors.join(", ")}`;
}
