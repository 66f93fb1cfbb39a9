import type { SourceFilterDriver } from "../../../host/network/firewall/source-filter.ts";
import type { Overlay } from "../../../host/overlay/client.ts";
import { normaliseConnectors, type Connector } from "../../../protocol/sections/connectors/connectors.ts";
import { relevantNotices } from "../../../protocol/sections/common/items.ts";
import type { NodeType } from "../../../protocol/values/values.ts";
import type { Section } from "../../reconcile/section.ts";
import { describeConnectorStep } from "./describe.ts";
import {
  lateFilters,
  listenersOf,
  nodesOf,
  planConnectors,
  waitingConnectors,
  type ConnectorsActual,
  type ConnectorStep,
  type Peers,
} from "./plan.ts";
import { sourceFilter } from "./source-filter.ts";

export interface ConnectorsOptions {
  readonly overlay: Pick<Overlay, "observe" | "change">;
  /** This machine's IPv4 addresses by link. */
  readonly addresses: () => ReadonlyMap<string, readonly string[]>;
  readonly nodeType: () => NodeType;
  /** Reports whether a destination, as written, is this node. */
  readonly isHere: (node: string) => boolean;
  /** Nodes of the domain; undefined without a domain document. */
  readonly peers: () => Peers | undefined;
  /** Drops packets from other sources, if the machine supports it. */
  readonly filter?: SourceFilterDriver;
}

/** `connectors`: listeners of this node, each with a service as its target. */
export function connectorsSection(
  options: ConnectorsOptions,
): Section<readonly Connector[], ConnectorsActual, ConnectorStep> {
  const { overlay, addresses, nodeType, isHere, peers, filter } = options;
  const applyAll = async (all: readonly ConnectorStep[], signal: AbortSignal): Promise<void> => {
    for (const step of all) if (step.kind === "filter") await filter?.load(step.text, signal);
    const steps = all.filter((step) => step.kind !== "filter");
    if (steps.length === 0) return;
    const put = steps.flatMap((step) => (step.kind === "close" ? [] : [step.listener]));
    const drop = steps.flatMap((step) =>
      step.kind === "close" ? [step.key] : step.kind === "move" ? [step.from] : [],
    );
    await overlay.change({ listeners: { put, drop } }, signal);
  };
  return {
    name: "connectors",
    needsDataPlane: true,
    parse(raw) {
      const normalised = normaliseConnectors(raw, { nodeType: nodeType() });
      const { items, rejected } = normalised;
      // If the section itself is unusable, the applied listeners stay.
      const isUnusable = items.length === 0 && rejected.some(({ id }) => id === "");
      return { desired: items, rejected, notices: relevantNotices(normalised), isUnusable };
    },
    async observe(signal, desired) {
      const { listeners, states } = await overlay.observe(signal);
      const around = { addresses: addresses(), nodes: nodesOf(isHere, peers()) };
      const seen = { listeners, states, ...around };
      if (filter === undefined) return seen;
      const wanted = sourceFilter(desired === undefined ? [] : listenersOf(desired, around));
      return { ...seen, filter: await filter.observe(wanted, signal) };
    },
    plan: planConnectors,
    asSurrounded: (actual, { addresses, nodes }) => ({ ...actual, addresses, nodes }),
    describe: describeConnectorStep,
    undo: () => undefined,
    apply: (step, signal) => applyAll([step], signal),
    applyAll,
    waits: waitingConnectors,
    notices: lateFilters,
    report: ({ listeners, states }) => ({
      connectors: listeners.size,
      failed: [...states.values()].filter(({ state }) => state === "failed").length,
    }),
  };
}
