import { randomUUIDv7 } from "node:crypto";
import { z } from "zod";
import type { Clock } from "../../host/clock.ts";
import { EventLevel } from "../../protocol/documents/telemetry.ts";
import type { NodeEvent } from "../../protocol/documents/telemetry.ts";
import { JsonObject, Text256, Text1024 } from "../../protocol/values/values.ts";

/** A condition that holds on the machine; at most one is open per type and object. */
export const OpenEvent = z.object({
  eventType: z.string().min(1).max(64),
  object: Text256,
  level: EventLevel,
  message: Text1024,
  details: JsonObject,
  /** False while the rate cap has kept it back. */
  isAnnounced: z.boolean(),
});
export type OpenEvent = z.infer<typeof OpenEvent>;

const MAX_OPEN = 1000;

/** The open conditions as the caller keeps them on disk, so that a restart can clear what it raised. */
export const OpenEvents = z.array(OpenEvent).max(MAX_OPEN);

export interface EventInput {
  readonly eventType: string;
  /** What it is about: a link, a peer, an address. */
  readonly object: string;
  readonly level: EventLevel;
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>>;
}

/** How a condition ends; `level` is INFO unless given. */
export type Clearing = Omit<EventInput, "level"> & { readonly level?: EventLevel };

export interface EventLogState {
  readonly open: ReadonlyMap<string, OpenEvent>;
  /** Monotonic milliseconds. */
  readonly windowStart: number;
  readonly sent: number;
  /** What the cap kept back in this window, by type. */
  readonly suppressed: ReadonlyMap<string, number>;
}

/** An event without its time and identifier. */
export type Draft = Pick<NodeEvent, "eventType" | "level" | "message" | "state" | "details">;
export type Outcome = readonly [EventLogState, readonly Draft[]];

export const RATE_CAP = 60;
const WINDOW_MS = 60_000;
const MAX_TYPES = 64;

export function initialEvents(open: readonly OpenEvent[], now: number): EventLogState {
  const entries = open.slice(0, MAX_OPEN).map((event) => [keyOf(event), event] as const);
  return { open: new Map(entries), windowStart: now, sent: 0, suppressed: new Map() };
}

/** A condition began: one event, unless it is open already. Beyond the cap it is kept back until the minute is over. */
export function raiseEvent(before: EventLogState, input: EventInput, now: number): Outcome {
  const [state, drafts] = nextWindow(before, now);
  const key = keyOf(input);
  if (state.open.has(key)) return [state, drafts];
  if (state.open.size >= MAX_OPEN) return [suppress(state, input.eventType), drafts];
  const isAnnounced = state.sent < RATE_CAP;
  const { level, details = {} } = input;
  const [eventType, object] = [input.eventType.slice(0, 64), input.object.slice(0, 256)];
  const opened = { eventType, object, level, message: input.message.slice(0, 1024), details, isAnnounced };
  const open = new Map(state.open).set(key, opened);
  if (!isAnnounced) return [suppress({ ...state, open }, eventType), drafts];
  return [{ ...state, open, sent: state.sent + 1 }, [...drafts, draftOf(opened, "EXCEEDED")]];
}

/** A condition ended: one event if its beginning was announced. Clearings pass the cap, or an alert would stay for ever. */
export function clearEvent(before: EventLogState, clearing: Clearing, now: number): Outcome {
  const [state, drafts] = nextWindow(before, now);
  const key = keyOf(clearing);
  const opened = state.open.get(key);
  if (opened === undefined) return [state, drafts];
  const open = new Map(state.open);
  open.delete(key);
  if (!opened.isAnnounced) return [{ ...state, open }, drafts];
  const { details = {}, level = "INFO", ...rest } = clearing;
  return [{ ...state, open, sent: state.sent + 1 }, [...drafts, draftOf({ ...rest, level, details }, "CLEARED")]];
}

/** Something happened that has no end. */
export function noticeEvent(before: EventLogState, input: EventInput, now: number): Outcome {
  const [state, drafts] = nextWindow(before, now);
  if (state.sent >= RATE_CAP) return [suppress(state, input.eventType), drafts];
  return [{ ...state, sent: state.sent + 1 }, [...drafts, draftOf({ details: {}, ...input }, "UNKNOWN")]];
}

/** When the minute is over: says how many events were kept back, and announces those conditions that still hold. */
export function nextWindow(state: EventLogState, now: number): Outcome {
  if (now < state.windowStart + WINDOW_MS) return [state, []];
  const fresh = { ...state, windowStart: now, sent: 0, suppressed: new Map<string, number>() };
  if (!isHolding(state)) return [fresh, []];
  const drafts: Draft[] = state.suppressed.size === 0 ? [] : [collapsed(state.suppressed)];
  const open = new Map(state.open);
  for (const [key, event] of state.open) {
    if (event.isAnnounced || drafts.length >= RATE_CAP) continue;
    open.set(key, { ...event, isAnnounced: true });
    drafts.push(draftOf(event, "EXCEEDED"));
  }
  return [{ ...fresh, open, sent: drafts.length }, drafts];
}

export interface EventLog {
  /** A condition began. */
  raise(input: EventInput): void;
  /** A condition ended; nothing happens when it was not open. */
  clear(clearing: Clearing): void;
  /** Something happened that has no end. */
  notice(input: EventInput): void;
  isOpen(eventType: string, object: string): boolean;
  openEvents(): readonly OpenEvent[];
  close(): void;
}

export interface EventLogOptions {
  readonly clock: Clock;
  readonly sink: (event: NodeEvent) => void;
  /** What was open when the agent stopped. */
  readonly open?: readonly OpenEvent[];
  /** Called after the set of open conditions changed, to keep it. */
  readonly onOpenChanged?: (open: readonly OpenEvent[]) => void;
}

/** Keeps the state, gives each event its time and its identifier, and wakes up only while something is kept back. */
export function createEventLog({ clock, sink, open = [], onOpenChanged }: EventLogOptions): EventLog {
  let state = initialEvents(open, clock.elapsed());
  let cancel: (() => void) | undefined;

  function take([next, drafts]: Outcome): void {
    const isChanged = next.open !== state.open;
    state = next;
    const timestamp = Math.floor(clock.now() / 1000);
    for (const draft of drafts) {
      sink({ ...draft, timestamp, details: { ...draft.details, nodeEventId: randomUUIDv7() } });
    }
    if (isChanged) onOpenChanged?.([...next.open.values()]);
    wakeWhenOver();
  }

  function wakeWhenOver(): void {
    if (cancel !== undefined || !isHolding(state)) return;
    cancel = clock.after(Math.max(1, state.windowStart + WINDOW_MS - clock.elapsed()), () => {
      cancel = undefined;
      take(nextWindow(state, clock.elapsed()));
    });
  }

  wakeWhenOver();

  return {
    raise: (input) => take(raiseEvent(state, input, clock.elapsed())),
    clear: (clearing) => take(clearEvent(state, clearing, clock.elapsed())),
    notice: (input) => take(noticeEvent(state, input, clock.elapsed())),
    isOpen: (eventType, object) => state.open.has(keyOf({ eventType, object })),
    openEvents: () => [...state.open.values()],
    close: () => cancel?.(),
  };
}

/** Something waits for the end of the minute. */
function isHolding(state: EventLogState): boolean {
  return state.suppressed.size > 0 || [...state.open.values()].some(({ isAnnounced }) => !isAnnounced);
}

function suppress(state: EventLogState, eventType: string): EventLogState {
  const name = state.suppressed.has(eventType) || state.suppressed.size < MAX_TYPES ? eventType : "other";
  return { ...state, suppressed: new Map(state.suppressed).set(name, (state.suppressed.get(name) ?? 0) + 1) };
}

function collapsed(suppressed: ReadonlyMap<string, number>): Draft {
  const count = [...suppressed.values()].reduce((sum, value) => sum + value, 0);
  return {
    eventType: "Events Suppressed",
    level: "WARNING",
    message: `${count} events were kept back, since there were more than ${RATE_CAP} in a minute`,
    state: "UNKNOWN",
    details: { suppressed: count, types: Object.fromEntries(suppressed) },
  };
}

function draftOf(event: Required<EventInput>, state: Draft["state"]): Draft {
  const { eventType, object, level, message, details } = event;
  return {
    eventType: eventType.slice(0, 64),
    level,
    message: message.slice(0, 1024),
    state,
    details: { ...details, object: object.slice(0, 256) },
  };
}

function keyOf({ eventType, object }: { readonly eventType: string; readonly object: string }): string {
  return `${eventType.slice(0, 64)}\0${object.slice(0, 256)}`;
}
