import type { ConnectorCounters, ConnectorsReport, ConnectorView, ItemReason } from "../../protocol/local/overlay.ts";
import type { ListenerCounters } from "../../protocol/overlay/overlay.ts";
import type { Connector } from "../../protocol/sections/connectors/connectors.ts";
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
import { isOwnName } from "../../protocol/documents/own-name.ts";
import { keyOf, nodesOf, waitingConnectors } from "../sections/connectors/plan.ts";
import { downServices } from "./services-report.ts";
import { defined } from "../../lib/defined.ts";

/** Lists all connectors with the state of their listeners and their counters. Pure. */
export function connectorsReport(reading: OverlayReading): ConnectorsReport {
  const { config, node, view, counters, addresses } = reading;
  const states =
    counters === undefined ? view.states : new Map(counters.listeners.map((state) => [state.key, state] as const));
  const counted = new Map(counters?.counters.map((counters) => [counters.key, counters]));
  const { items, rejected, notices } = reading.parsed.connectors(config.connectors, node?.type ?? "Node");
  const nodes = nodesOf((name) => isOwnName(node, name), reading.domain);
  const ignored = reasonsByItem(notices.filter(isIgnored), items);
  const waits = reasonsByItem(waitingConnectors(items, { listeners: view.listeners, states, addresses, nodes }), items);
  const down = downServices(reading);
  const downOf = ({ target }: Connector) => ("service" in target ? down.get(target.service) : undefined);
  const unreached = whyUnreached(view);

  const standing = (item: Connector): Pick<ConnectorView, "state" | "reason"> => {
    const off = switchedOff(reading, item.enabled);
    if (off !== undefined) return off;
    const wait = waits.get(item.path);
    switch (states.get(keyOf(item))?.state) {
      case undefined:
        return { state: "waiting", reason: wait ?? whyNotYet(reading, "connectors") };
      case "failed":
        return { state: "failed", reason: wait ?? { code: "other", message: "it cannot listen" } };
      case "listening": {
        const reason = wait ?? (nodes.find(item.node) === "here" ? downOf(item) : unreached);
        return { state: "listening", ...defined({ reason }) };
      }
    }
  };
  const viewOf = (item: Connector): ConnectorView => {
    const standsHow = standing(item);
    const key = keyOf(item);
    // If two items have one address, only the enabled one has the listener.
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

/** Returns why no flow reaches another node, as far as known without a try. */
function whyUnreached({ mesh, standing }: OverlayReading["view"]): ItemReason | undefined {
  if (mesh === undefined) return { code: "no-path", message: "this node has no path to other nodes" };
  if (standing === undefined) return undefined;
  const { paths, clients } = standing;
  if ([...paths, ...clients].some(({ state }) => state === "up")) return undefined;
  const first = paths.find(({ reason }) => reason !== undefined);
  const because = first?.reason === undefined ? "" : ` (${first.reason})`;
  return { code: "no-path", message: `no path to any gateway is up${because}` };
}

function detailsOf(item: Connector, bound: readonly string[]): Partial<ConnectorView> {
  const { target, node, protocol, bitsPerSecond, maxFlows, sources } = item;
  return {
    protocol,
    listen: { ...placeOf(item), bound: [...bound] },
    destination: { node, ...target },
    limits: {
      ...defined({ bitsPerSecond }),
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
