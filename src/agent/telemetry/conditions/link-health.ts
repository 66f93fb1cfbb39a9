import type { Clock } from "../../../host/clock.ts";
import type { Link, LinkAddress } from "../../../host/network/ip/links.ts";
import type { EventLog } from "../events.ts";
import { watchConditions, type Condition } from "./condition-watch.ts";
import { defined } from "../../../lib/defined.ts";

export interface LinkReadings {
  /** Links to watch. */
  readonly links: readonly Link[];
  readonly addresses: readonly LinkAddress[];
}

type Fault = "down" | "half-duplex";
const FAULTS: readonly Fault[] = ["down", "half-duplex"];

export interface LinkMonitorOptions {
  readonly clock: Clock;
  readonly read: () => LinkReadings;
  readonly events: EventLog;
}

/** Evaluates the links on each change, and again when a fault has become stable. */
export function startLinkMonitor({ clock, read, events }: LinkMonitorOptions): { check(): void; close(): void } {
  /** Links that were up with an address that they did not assign themselves, so that their loss matters. */
  const inUse = new Set<string>();
  let present: ReadonlySet<string> = new Set();

  function faults(): readonly Condition[] {
    const { links, addresses } = read();
    present = new Set(links.map(({ name }) => name));
    for (const name of inUse) if (!present.has(name)) inUse.delete(name);
    for (const link of links) if (isUsed(link, addresses)) inUse.add(link.name);
    return links.flatMap((link) =>
      FAULTS.filter((fault) => hasFault(link, fault))
        .map((fault) => conditionOf(link.name, fault))
        .filter(({ eventType, object }) => inUse.has(link.name) || events.isOpen(eventType, object)),
    );
  }

  const { refresh, close } = watchConditions({
    clock,
    events,
    read: faults,
    adopt: (open) =>
      [...present]
        .flatMap((link) => FAULTS.map((fault) => conditionOf(link, fault)))
        .find(({ eventType, object }) => eventType === open.eventType && object === open.object),
    isGone: ({ details }) => !present.has(String(details?.["interface"])),
    clearing: ({ condition: { eventType, object, over, details } }) => {
      const isOther = events.openEvents().some((open) => open.eventType === eventType && open.object !== object);
      const isLast = eventType === EVENT_TYPES.down && !isOther;
      return { message: isLast ? "All interfaces are up" : over, ...defined({ details }) };
    },
  });
  refresh();
  return { check: refresh, close };
}

const EVENT_TYPES = { down: "Network Health Check", "half-duplex": "Network Error" } as const;

function conditionOf(link: string, fault: Fault): Condition {
  const condition = { eventType: EVENT_TYPES[fault], object: `${fault}:${link}`, details: { interface: link } };
  const [is, isNoLonger] = [`Interface ${link} is`, `Interface ${link} is no longer`];
  return fault === "down"
    ? { ...condition, level: "ERROR", message: `${is} down`, over: `${isNoLonger} down` }
    : {
        ...condition,
        level: "WARNING",
        message: `${is} running with half-duplex`,
        over: `${isNoLonger} running with half-duplex`,
      };
}

function hasFault(link: Link, fault: Fault): boolean {
  return fault === "down" ? link.isEnabled && isDown(link) : !isDown(link) && link.duplex === "half";
}

function isDown(link: Link): boolean {
  return link.hasCarrier === false || link.operState === "down" || link.operState === "lowerlayerdown";
}

/** Reports whether a link has only a self-assigned address (169.254.0.0/16, RFC 3927). */
function isUsed(link: Link, addresses: readonly LinkAddress[]): boolean {
  if (!link.isEnabled || isDown(link)) return false;
  const own = addresses.filter(({ link: name, family }) => name === link.name && family === 4);
  return own.length === 0 || own.some(({ address }) => !address.startsWith("169.254."));
}
