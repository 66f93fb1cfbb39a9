import { formatBytes, formatCount } from "../../lib/text/durations.ts";
import { ConnectorsReport, type ConnectorCounters, type ConnectorView } from "../../protocol/local/overlay.ts";
import { DEFAULT_MAX_CONNECTIONS } from "../../protocol/sections/connectors/connectors.ts";
import { isWell, listText, placeText, reasonText, stateText, type ItemText } from "../text/overlay-text.ts";
import type { Paint } from "../frame/terminal.ts";
import { readVerb } from "../frame/read-verb.ts";

export const connectorsVerb = readVerb({
  name: "connectors",
  summary: "show what this node listens on, where it leads, and its counters",
  about:
    "Shows every connector of the applied configuration, with the reason if it does not listen. Counters start when the " +
    "listener starts. A refused flow never reached its target.",
  example: "holdfast connectors --watch",
  path: "/v1/connectors",
  schema: ConnectorsReport,
  text({ overlay, issues, connectors }, view) {
    const items = connectors.map((connector) => itemText(connector, view.paint));
    return listText({ overlay, issues, items, none: "the applied configuration has no connector" }, view);
  },
  exit: (report) => (isWell(report, report.connectors) ? "ok" : "degraded"),
});

function itemText(connector: ConnectorView, paint: Paint): ItemText {
  const { id, description, state, reason, ignored = [], counters } = connector;
  const where = [listenText(connector), destinationText(connector)].filter((text) => text !== "").join(" → ");
  const named = description === undefined ? "" : ` (${description.slice(0, 80)})`;
  const details = [
    ...(reason === undefined ? [] : [reasonText(reason, paint)]),
    ...ignored.map((one) => reasonText(one, paint)),
    ...(counters === undefined ? [] : counterLines(counters)),
    ...limitLines(connector),
  ];
  return { head: `${paint("bold", id)} ${stateText(state, paint)} ${where}${named}`, details };
}

function counterLines(counters: ConnectorCounters): readonly string[] {
  const { flowsActive, flowsTotal, bytesIn, bytesOut, datagramsDropped, refusals, errors } = counters;
  const parts = [
    `flows ${flowsActive} now, ${flowsTotal} in all`,
    `${formatBytes(bytesIn)} in, ${formatBytes(bytesOut)} out`,
    ...(datagramsDropped > 0 ? [`${formatCount(datagramsDropped, "datagram")} dropped`] : []),
  ];
  return [
    parts.join("; "),
    ...(Object.keys(refusals).length > 0 ? [`refused: ${byReason(refusals)}`] : []),
    ...(Object.keys(errors).length > 0 ? [`errors: ${byReason(errors)}`] : []),
  ];
}

/** Maximum number of sources shown. */
const SHOWN_SOURCES = 16;

function limitLines({ limits, listen }: ConnectorView): readonly string[] {
  if (limits === undefined) return [];
  const { bitsPerSecond, maxFlows, sources = [] } = limits;
  const isUsual = listen !== undefined && maxFlows === DEFAULT_MAX_CONNECTIONS[listen.transport];
  const more = sources.length > SHOWN_SOURCES ? ` and ${sources.length - SHOWN_SOURCES} more` : "";
  return [
    ...(bitsPerSecond === undefined ? [] : [`limit ${bitsPerSecond / 1_000_000} Mbit/s each way`]),
    ...(isUsual ? [] : [`at most ${formatCount(maxFlows, "connection")} at a time`]),
    ...(sources.length === 0 ? [] : [`only from ${sources.slice(0, SHOWN_SOURCES).join(", ")}${more}`]),
  ];
}

function listenText({ listen, protocol }: ConnectorView): string {
  if (listen === undefined) return "";
  const { transport, nic, bound } = listen;
  const at = nic === undefined || bound.length === 0 ? "" : ` (${bound.join(", ")})`;
  return `${protocol ?? transport} ${placeText(listen)}${at}`;
}

function destinationText({ destination }: ConnectorView): string {
  if (destination === undefined) return "";
  const { node, service, host, port } = destination;
  return `${node}/${service ?? `${host ?? ""}:${port ?? ""}`}`;
}

function byReason(counts: Readonly<Record<string, number>>): string {
  return Object.entries(counts)
    .map(([reason, count]) => `${count} ${reason}`)
    .join(", ");
}
