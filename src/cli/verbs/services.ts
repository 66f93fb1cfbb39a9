import { formatCount, formatSpan } from "../../lib/text/durations.ts";
import { ServicesReport, type ServiceView } from "../../protocol/local/overlay.ts";
import { isWell, listText, placeText, reasonText, stateText, type ItemText } from "../text/overlay-text.ts";
import type { Paint } from "../frame/terminal.ts";
import { readVerb } from "../frame/read-verb.ts";

export const servicesVerb = readVerb({
  name: "services",
  summary: "show which services connectors can reach through this node, and whether each one answers",
  path: "/v1/services",
  schema: ServicesReport,
  text({ overlay, issues, services }, view) {
    const items = services.map((service) => itemText(service, view.now, view.paint));
    return listText({ overlay, issues, items, none: "the applied configuration has no service" }, view);
  },
  exit: (report) => (isWell(report, report.services) ? "ok" : "degraded"),
});

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

/** Formats a service's address, then its name or the start of its id. */
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
