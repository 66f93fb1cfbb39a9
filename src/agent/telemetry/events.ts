import { randomUUIDv7 } from "node:crypto";
import { z } from "zod";
import type { Clock } from "../../host/clock.ts";
import { EventLevel } from "../../protocol/documents/telemetry.ts";
import type { NodeEvent } from "../../protocol/documents/telemetry.ts";
import { JsonObject, Text256, Text1024 } from "../../protocol/values/values.ts";

/** A condition of the machine; at most one is open per type and object. */
export const OpenEvent = z.object({
  eventType: z.string().min(1).max(64),
  object: Text256,
  level: EventLevel,
  message: Text1024,
  details: JsonObject,
  /** False while the rate limit holds it back. */
  isAnnounced: z.boolean(),
});
export type OpenEvent = z.infer<typeof OpenEvent>;

const MAX_OPEN = 1000;

/** Open conditions in stored form, so that the next run can clear them. */
export const OpenEvents = z.array(OpenEvent).max(MAX_OPEN);

export interface EventInput {
  readonly eventType: string;
  /** Subject of the condition: a link, a peer, an address. */
  readonly object: string;
  readonly level: EventLevel;
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>>;
}

/** End of a condition; `level` is INFO by default. */
export type Clearing = Omit<EventInput, "level"> & { readonly level?: EventLevel };

export interface EventLogState {
  readonly open: ReadonlyMap<string, OpenEvent>;
  /** Monotonic milliseconds. */
  readonly windowStart: number;
  readonly sent: number;
  /** Number of events held back in this window, by type. */
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

/** Raises a condition: one event, unless it is open. Beyond the limit it is held back until the minute ends. */
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

/** Clears a condition: one event, if the condition was announced. Exempt from the limit, so that no alert stays open. */
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

/** Adds an event without an end. */
export function noticeEvent(before: EventLogState, input: EventInput, now: number): Outcome {
  const [state, drafts] = nextWindow(before, now);
  if (state.sent >= RATE_CAP) return [suppress(state, input.eventType), drafts];
  return [{ ...state, sent: state.sent + 1 }, [...drafts, draftOf({ details: {}, ...input }, "UNKNOWN")]];
}

/** Ends the minute: reports how many events were held back, and announces conditions that still hold. */
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
  /** Raises a condition. */
  raise(input: EventInput): void;
  /** Clears a condition; no effect if it is not open. */
  clear(clearing: Clearing): void;
  /** Adds an event without an end. */
  notice(input: EventInput): void;
  isOpen(eventType: string, object: string): boolean;
  openEvents(): readonly OpenEvent[];
  close(): void;
}

export interface EventLogOptions {
  readonly clock: Clock;
  readonly sink: (event: NodeEvent) => void;
  /** Conditions that were open when the agent stopped. */
  readonly open?: readonly OpenEvent[];
  /** Stores the open conditions; called after each change. */
  readonly onOpenChanged?: (open: readonly OpenEvent[]) => void;
}

/** Stores the state, assigns time and identifier to each event, and sets a timer only while events are held back. */
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

/** True if events wait for the end of the minute. */
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
    message: `${count} events were held back, since there were more than ${RATE_CAP} in a minute`,
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

/** Returns the key of an open condition: its type and object as the event shows them. */
export function keyOf({ eventType, object }: { readonly eventType: string; readonly object: string }): string {
  return `${eventType.slice(0, 64)}\0${object.slice(0, 256)}`;
}
