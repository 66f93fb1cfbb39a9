import type { OverlayListener } from "../../../protocol/overlay/overlay.ts";
import { droppedBy, type Dropped } from "../../../protocol/overlay/change.ts";
import type { ConnectorsActual, ConnectorStep, Nodes } from "./plan.ts";

/** Texts about flows that end. */
const ENDS: Readonly<Record<Dropped, string>> = {
  all: ", ends its flows",
  forbidden: ", ends flows from sources that it no longer allows",
  none: "",
};

/** Characters of an id that are shown. */
const SHORT_ID = 8;
/** Limit of source blocks or addresses that are shown. */
const MAX_LISTED = 8;

/** Describes a step to an operator: the listener, its target, what changes, and whether flows end. Pure. */
export function describeConnectorStep(step: ConnectorStep, { listeners, nodes }: ConnectorsActual): string {
  const targetOf = targetText(nodes);
  switch (step.kind) {
    case "filter":
      return step.text === undefined
        ? "removes the source filter from nftables"
        : "loads the source filter into nftables; flows continue";
    case "close": {
      const before = listeners.get(step.key);
      const where = before === undefined ? step.key : placeOf(before);
      const to = before === undefined ? "" : ` to ${targetOf(before)}`;
      return `${where} (${shortId(step.subject)})${to}${ENDS.all}`;
    }
    case "listen":
      return `${placeOf(step.listener)} (${shortId(step.subject)}) to ${targetOf(step.listener)}`;
    case "move":
      return changeText(listeners.get(step.from), step.listener, targetOf);
    case "change":
    case "rename":
      return changeText(listeners.get(step.listener.key), step.listener, targetOf);
  }
}

function changeText(from: OverlayListener | undefined, to: OverlayListener, targetOf: TargetText): string {
  if (from === undefined) return `${placeOf(to)} (${shortId(to.connector)}) to ${targetOf(to)}`;
  const isMoved = from.key !== to.key;
  const place = isMoved ? `${placeOf(from)} → ${placeOf(to)}` : placeOf(to);
  const texts = changes(from, to, isMoved, targetOf);
  const what = texts.length === 0 ? "" : `: ${texts.join(", ")}`;
  return `${place} (${shortId(to.connector)})${what}${ENDS[endedBy(from, to)]}`;
}

function endedBy(from: OverlayListener, to: OverlayListener): Dropped {
  const dropped = droppedBy(from, to);
  return dropped === "forbidden" && to.sources === undefined ? "none" : dropped;
}

function changes(
  from: OverlayListener,
  to: OverlayListener,
  isMoved: boolean,
  targetOf: TargetText,
): readonly string[] {
  const shown: readonly (readonly [string, (listener: OverlayListener) => string])[] = [
    ["id", ({ connector }) => connector],
    ["to", targetOf],
    ["protocol", ({ application, protocol }) => application ?? protocol],
    ["addresses", ({ addresses }) => (isMoved ? "" : listed(addresses))],
    ["maxmbps", ({ bitsPerSecond }) => (bitsPerSecond === undefined ? "unlimited" : `${bitsPerSecond / 1_000_000}`)],
    ["sourceBlock", ({ sources }) => (sources === undefined ? "anybody" : listed(sources))],
    ["maxConnections", ({ maxFlows }) => `${maxFlows}`],
    ["idleTimeout", ({ idleTimeoutMs }) => `${idleTimeoutMs / 1000} s`],
  ];
  return shown.flatMap(([name, text]) => {
    const [before, after] = [text(from), text(to)];
    if (before !== after) return [`${name} ${before} → ${after}`];
    return name === "sourceBlock" && droppedBy(from, to) === "forbidden" ? [name] : [];
  });
}

/** Shows a link by its name, without its addresses. */
function placeOf({ key, protocol, application, addresses, port }: OverlayListener): string {
  const nic = /^(?:tcp|udp)\/nic:([^/]+)\//.exec(key)?.[1];
  return `${application ?? protocol} ${nic ?? listed(addresses)}:${port}`;
}

type TargetText = (listener: OverlayListener) => string;

/** Puts the name of another node before its target. */
function targetText(nodes: Nodes): TargetText {
  return ({ target }) => {
    const at = "peer" in target ? `${nodes.nameOf(target.peer)}/` : "";
    if ("service" in target) return `${at}${target.service}`;
    return `${at}${target.host.includes(":") ? `[${target.host}]` : target.host}:${target.port}`;
  };
}

function listed(texts: readonly string[]): string {
  if (texts.length === 0) return "nobody";
  const more = texts.length > MAX_LISTED ? ` and ${texts.length - MAX_LISTED} more` : "";
  return `${texts.slice(0, MAX_LISTED).join(" ")}${more}`;
}

function shortId(id: string): string {
  return id.length <= SHORT_ID + 4 ? id : `${id.slice(0, SHORT_ID)}…`;
}
