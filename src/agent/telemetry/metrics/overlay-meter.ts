import type { z } from "zod";
import type { Clock } from "../../../host/clock.ts";
import type { overlayMethods } from "../../../protocol/overlay/overlay.ts";
import type { ShadowMap } from "../../../protocol/values/shadow.ts";
import type { EventInput, EventLog } from "../events.ts";
import { isSameProcess, overlayFacts, overlayMetrics, risesBetween, totalsBy } from "./overlay-metrics.ts";
import type { OverlayReading } from "./overlay-metrics.ts";

/** The overlay's answer to `counters.get`. */
export type OverlayCounters = z.infer<(typeof overlayMethods)["counters.get"]["result"]>;

/** Derives metrics, shadow facts and events from the overlay's counters. */
export interface OverlayMeter {
  /** Returns the metrics since the previous sample; undefined for an overlay that does not answer. */
  sample(counters: OverlayCounters | undefined): Readonly<Record<string, number>>;
  /** Returns the newest sample's facts of connectors, for the shadow. */
  facts(): ShadowMap;
}

const EVENT_TYPE = "Network Error";
const CONNECTOR = "connector ";
const RESOURCES = "overlay resources";
/** Quiet time until a condition ends, so that a crowded connector does not raise and clear repeatedly. */
const QUIET_MS = 5 * 60_000;
/** Limit of connectors that raise an event, since all open events together are limited. */
const MAX_CONDITIONS = 100;

export function overlayMeter({ clock, events }: { readonly clock: Clock; readonly events: EventLog }): OverlayMeter {
  let previous: OverlayReading | undefined;
  let facts: ShadowMap = {};
  // Conditions of an earlier run end if this run does not observe them for a while.
  const lastSeen = new Map(
    events
      .openEvents()
      .filter(({ eventType, object }) => eventType === EVENT_TYPE && isOurs(object))
      .map(({ object }) => [object, clock.elapsed()]),
  );

  function judge(current: OverlayReading): void {
    for (const condition of overlayConditions(previous, current)) {
      if (!lastSeen.has(condition.object) && lastSeen.size >= MAX_CONDITIONS) continue;
      lastSeen.set(condition.object, current.elapsed);
      events.raise(condition);
    }
    for (const [object, seen] of lastSeen) {
      if (current.elapsed - seen < QUIET_MS) continue;
      lastSeen.delete(object);
      events.clear({ eventType: EVENT_TYPE, object, message: `${object}: nothing was refused for five minutes` });
    }
  }

  return {
    sample(counters) {
      if (counters === undefined) {
        facts = {};
        return {};
      }
      const current = { ...counters, elapsed: clock.elapsed() };
      const metrics = { ...overlayMetrics(previous, current), "l4.recordsDropped": counters.flowsDropped };
      judge(current);
      facts = overlayFacts(current);
      previous = current;
      return metrics;
    },
    facts: () => facts,
  };
}

/** Lists events between two readings: connectors at their limits, and exhausted resources. Pure. */
function overlayConditions(previous: OverlayReading | undefined, current: OverlayReading): readonly EventInput[] {
  if (previous === undefined || !isSameProcess(previous, current)) return [];
  const rises = totalsBy(risesBetween(previous.counters, current.counters));
  const full = rises.filter(({ refusals }) => (refusals["too-many-flows"] ?? 0) > 0);
  const isOut = rises.some(({ refusals, errors }) => "out-of-resources" in refusals || "out-of-resources" in errors);
  return [
    ...full.map(({ connector }) =>
      condition(`${CONNECTOR}${connector}`, `Connector ${connector} is at its maximum of connections`),
    ),
    ...(isOut ? [condition(RESOURCES, "The overlay ran out of source ports or file descriptors")] : []),
  ];
}

function condition(object: string, message: string): EventInput {
  return { eventType: EVENT_TYPE, object: object.slice(0, 256), level: "WARNING", message };
}

/** Contains a space, unlike link names, the object of other network errors. */
function isOurs(object: string): boolean {
  return object === RESOURCES || object.startsWith(CONNECTOR);
}
