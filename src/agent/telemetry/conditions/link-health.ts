import type { Clock } from "../../../host/clock.ts";
import type { Link, LinkAddress } from "../../../host/network/ip/links.ts";
import type { EventLog } from "../events.ts";

export interface LinkReadings {
  /** Links to watch. */
  readonly links: readonly Link[];
  readonly addresses: readonly LinkAddress[];
}

type Fault = "down" | "half-duplex";

/** One fault of one link: the last announced state, and the current one with its start. */
interface Watch {
  readonly isRaised: boolean;
  readonly isSeen: boolean;
  /** Monotonic milliseconds. */
  readonly since: number;
}

interface LinkWatch {
  /** True if the link was up with an address that it did not assign itself, so that its loss matters. */
  readonly isInUse: boolean;
  readonly faults: Readonly<Record<Fault, Watch>>;
}

export type LinkHealth = ReadonlyMap<string, LinkWatch>;

export interface LinkTransition {
  readonly link: string;
  readonly fault: Fault;
  readonly isRaised: boolean;
}

export interface LinkStep {
  readonly health: LinkHealth;
  readonly transitions: readonly LinkTransition[];
  /** Milliseconds until the next evaluation without a change. */
  readonly waitMs: number | undefined;
}

const FAULTS: readonly Fault[] = ["down", "half-duplex"];
const STABLE_MS = 5000;
const QUIET_AFTER_START_MS = 60_000;

/** Decides which faults began and ended: after 5 s without change, and never before `quietUntil`. Pure. */
function nextLinkHealth(
  health: LinkHealth,
  readings: LinkReadings,
  now: number,
  quietUntil: number,
  wasRaised: (link: string, fault: Fault) => boolean,
): LinkStep {
  const next = new Map<string, LinkWatch>();
  const transitions: LinkTransition[] = [];
  const waits: number[] = [];
  for (const link of readings.links) {
    const before = health.get(link.name);
    const isInUse = before?.isInUse === true || isUsed(link, readings.addresses);
    const watch = (fault: Fault): Watch => {
      const isSeen = hasFault(link, fault) && (isInUse || wasRaised(link.name, fault));
      const last = before?.faults[fault] ?? { isRaised: wasRaised(link.name, fault), isSeen, since: now };
      const since = last.isSeen === isSeen ? last.since : now;
      if (isSeen === last.isRaised) return { isRaised: isSeen, isSeen, since };
      const due = Math.max(since + STABLE_MS, isSeen ? quietUntil : 0);
      if (now < due) {
        waits.push(due - now);
        return { isRaised: last.isRaised, isSeen, since };
      }
      transitions.push({ link: link.name, fault, isRaised: isSeen });
      return { isRaised: isSeen, isSeen, since };
    };
    next.set(link.name, { isInUse, faults: { down: watch("down"), "half-duplex": watch("half-duplex") } });
  }
  for (const [name, { faults }] of health) {
    if (next.has(name)) continue;
    for (const fault of FAULTS) if (faults[fault].isRaised) transitions.push({ link: name, fault, isRaised: false });
  }
  return { health: next, transitions, waitMs: waits.length === 0 ? undefined : Math.min(...waits) };
}

export interface LinkMonitorOptions {
  readonly clock: Clock;
  readonly read: () => LinkReadings;
  readonly events: EventLog;
}

/** Evaluates the links on each change, and again when a fault has become stable. */
export function startLinkMonitor({ clock, read, events }: LinkMonitorOptions): { check(): void; close(): void } {
  const quietUntil = clock.elapsed() + QUIET_AFTER_START_MS;
  const wasRaised = (link: string, fault: Fault): boolean => events.isOpen(EVENT_TYPES[fault], objectOf(link, fault));
  let health: LinkHealth = new Map();
  let cancel: (() => void) | undefined;
  const check = (): void => {
    cancel?.();
    const step = nextLinkHealth(health, read(), clock.elapsed(), quietUntil, wasRaised);
    health = step.health;
    for (const transition of step.transitions) announce(events, transition);
    cancel = step.waitMs === undefined ? undefined : clock.after(Math.max(1, Math.ceil(step.waitMs)), check);
  };
  check();
  return { check, close: () => cancel?.() };
}

const EVENT_TYPES = { down: "Network Health Check", "half-duplex": "Network Error" } as const;

function objectOf(link: string, fault: Fault): string {
  return `${fault}:${link}`;
}

function announce(events: EventLog, { link, fault, isRaised }: LinkTransition): void {
  const condition = { eventType: EVENT_TYPES[fault], object: objectOf(link, fault), details: { interface: link } };
  if (fault === "half-duplex") {
    if (isRaised)
      events.raise({ ...condition, level: "WARNING", message: `Interface ${link} is running with half-duplex` });
    else events.clear({ ...condition, message: `Interface ${link} is no longer running with half-duplex` });
  } else if (isRaised) {
    events.raise({ ...condition, level: "ERROR", message: `Interface ${link} is down` });
  } else {
    const others = events
      .openEvents()
      .some((open) => open.eventType === condition.eventType && open.object !== condition.object);
    events.clear({ ...condition, message: others ? `Interface ${link} is no longer down` : "All interfaces are up" });
  }
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
