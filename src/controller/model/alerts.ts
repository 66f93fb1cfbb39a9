import type { NodeEvent } from "../../protocol/documents/telemetry.ts";

/** An open alert lives this long after its event when nothing clears it. */
export const ALERT_LIFETIME_SECONDS = 24 * 3600;

/** What an event does to the open alerts of its node. */
export interface AlertChange {
  /** Opens the alert of this type unless it is open already. */
  readonly opens: string | undefined;
  /** Event types whose alerts are over. */
  readonly clears: readonly string[];
}

/** Types that end the alert of another type. */
const CLEARED_BY: Readonly<Record<string, string>> = { "Node Connect": "Node Disconnect" };

/** Judges one event: a warning or worse opens, `CLEARED` closes its own type, and some types close another. Pure. */
export function alertChange(event: Pick<NodeEvent, "eventType" | "level" | "state">): AlertChange {
  const other = Object.hasOwn(CLEARED_BY, event.eventType) ? CLEARED_BY[event.eventType] : undefined;
  const clears = other === undefined ? [] : [other];
  if (event.state === "CLEARED") return { opens: undefined, clears: [event.eventType, ...clears] };
  return { opens: event.level === "INFO" ? undefined : event.eventType, clears };
}
