import type { OverlayReading } from "../../../src/agent/data-plane/overlay-reading.ts";
import { parsedSections } from "../../../src/agent/applying/parsed-sections.ts";
import type { OverlayCounters, OverlayView } from "../../../src/host/overlay/client.ts";
import type { Config, NodeDocument } from "../../../src/protocol/documents/documents.ts";
import type {
  ListenerCounters,
  ListenerState,
  OverlayService,
  ServiceHealth,
} from "../../../src/protocol/overlay/overlay.ts";
import { nodeDocument } from "../control-plane/signing.ts";

export interface ReadingParts {
  readonly config: Config;
  readonly node?: Partial<NodeDocument>;
  readonly listeners?: readonly ListenerState[];
  readonly counters?: readonly (Partial<ListenerCounters> & { readonly key: string })[];
  readonly services?: readonly OverlayService[];
  readonly health?: readonly ServiceHealth[];
  readonly addresses?: Readonly<Record<string, readonly string[]>>;
}

const STARTED = 1000;

/** A reading of an overlay that serves and answers; `changes` replaces parts. */
export function aReading(parts: ReadingParts, changes: Partial<OverlayReading> = {}): OverlayReading {
  const { config, node, listeners = [], counters = [], services = [], health = [], addresses = {} } = parts;
  const view: OverlayView = {
    services: new Map(services.map((service) => [service.name, service])),
    listeners: new Map(),
    states: new Map(listeners.map((state) => [state.key, state])),
    health: new Map(health.map((entry) => [entry.name, entry])),
  };
  const answer: OverlayCounters = {
    pid: 7,
    startedAt: STARTED,
    version: 1,
    draining: false,
    flowsDropped: 0,
    listeners: [...listeners],
    counters: counters.map(aCounter),
    services: [...health],
  };
  return {
    config,
    node: { ...nodeDocument(), ...node },
    domain: undefined,
    parsed: parsedSections(),
    status: { state: "up", since: STARTED, pid: 7 },
    view,
    counters: answer,
    addresses: new Map(Object.entries(addresses)),
    why: [],
    ...changes,
  };
}

function aCounter(entry: NonNullable<ReadingParts["counters"]>[number]): ListenerCounters {
  return { ...NOTHING_COUNTED, connector: "c", ...entry };
}

/** The reading of a missing overlay. */
export const ABSENT: Partial<OverlayReading> = {
  view: { services: new Map(), listeners: new Map(), states: new Map(), health: new Map() },
  counters: undefined,
};

export const NOTHING_COUNTED = {
  flows: 0,
  activeFlows: 0,
  bytesIn: 0,
  bytesOut: 0,
  datagramsDropped: 0,
  refusals: {},
  errors: {},
};
