import type { ConnectorCounters, ConnectorsReport, ConnectorView } from "../protocol/local-overlay.ts";
import type { ListenerCounters } from "../protocol/overlay.ts";
import type { Connector } from "../protocol/sections/connectors.ts";
import {
  isIgnored,
  issuesOfSection,
  overlayState,
  placeOf,
  reasonsByItem,
  rejectedItems,
  switchedOff,
  whyNotYet,
  type OverlayReading,
} from "./overlay-reading.ts";
import { isUncarried } from "../protocol/sections/issue.ts";
import { isOwnName } from "./own-node.ts";
import { keyOf, unreachableConnectors, waitingConnectors } from "./sections/connectors/plan.ts";
import { downServices } from "./services-report.ts";

/** Every connector in force, with how its listener stands and what it has counted. Pure. */
export function connectorsReport(reading: OverlayReading): ConnectorsReport {
  const { config, node, view, counters, addresses } = reading;
  const states =
    counters === undefined ? view.states : new Map(counters.listeners.map((state) => [state.key, state] as const));
  const counted = new Map(counters?.counters.map((counters) => [counters.key, counters]));
  const { items, rejected, notices } = reading.parsed.connectors(config.connectors, node?.type ?? "Node");
  const { here, issues: elsewhere } = unreachableConnectors(items, (name) => isOwnName(node, name));
  const unsupported = reasonsByItem([...notices.filter(isUncarried), ...elsewhere], items);
  const ignored = reasonsByItem(notices.filter(isIgnored), items);
  const waits = reasonsByItem(waitingConnectors(here, { listeners: view.listeners, states, addresses }), items);
  const down = downServices(reading);

  const standing = (item: Connector): Pick<ConnectorView, "state" | "reason"> => {
    const off = switchedOff(reading, item.enabled);
    if (off !== undefined) return off;
    const lacking = unsupported.get(item.path);
    if (lacking !== undefined) return { state: "unsupported", reason: lacking };
    const wait = waits.get(item.path);
    switch (states.get(keyOf(item))?.state) {
      case undefined:
        return { state: "waiting", reason: wait ?? whyNotYet(reading, "connectors") };
      case "failed":
        return { state: "failed", reason: wait ?? { code: "other", message: "it cannot listen" } };
      case "listening": {
        const reason = wait ?? ("service" in item.target ? down.get(item.target.service) : undefined);
        return { state: "listening", ...(reason === undefined ? {} : { reason }) };
      }
    }
  };
  const viewOf = (item: Connector): ConnectorView => {
    const standsHow = standing(item);
    const key = keyOf(item);
    // Of two items for one place only the one that is switched on has the listener.
    const isThere = standsHow.state === "listening" || standsHow.state === "failed";
    const own = isThere ? counted.get(key) : undefined;
    const dropped = ignored.get(item.path);
    return {
      id: item.id,
      ...(item.description === "" ? {} : { description: item.description }),
      ...standsHow,
      ...(dropped === undefined ? {} : { ignored: [dropped] }),
      ...detailsOf(item, isThere ? (states.get(key)?.addresses ?? []) : []),
      ...(own === undefined ? {} : { counters: countersOf(own) }),
    };
  };
  const lost = [...rejectedItems(rejected)].map(([id, reason]): ConnectorView => ({ id, state: "rejected", reason }));
  return {
    schema: 1,
    overlay: overlayState(reading),
    issues: issuesOfSection([...rejected, ...notices]),
    connectors: [...items.map(viewOf), ...lost],
  };
}

function detailsOf(item: Connector, bound: readonly string[]): Partial<ConnectorView> {
  const { target, node, protocol, bitsPerSecond, maxFlows, sources } = item;
  return {
    protocol,
    listen: { ...placeOf(item), bound: [...bound] },
    destination: { node, ...target },
    limits: {
      ...(bitsPerSecond === undefined ? {} : { bitsPerSecond }),
      maxFlows,
      ...(sources === undefined ? {} : { sources: [...sources] }),
    },
  };
}

function countersOf(counters: ListenerCounters): ConnectorCounters {
  const { flows, activeFlows, bytesIn, bytesOut, datagramsDropped, refusals, errors } = counters;
  return {
    flowsActive: activeFlows,
    flowsTotal: flows,
    bytesIn,
    bytesOut,
    datagramsDropped,
    refusals: counted(refusals),
    errors: counted(errors),
  };
}

function counted(byReason: Readonly<Partial<Record<string, number>>>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(byReason).flatMap(([reason, count]) => (count === undefined ? [] : [[reason, count]])),
  );
}
