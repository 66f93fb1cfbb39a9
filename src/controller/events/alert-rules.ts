import type { NodeEvent } from "../../protocol/documents/telemetry.ts";

/** Lifetime of an open alert that no event clears, in seconds. */
export const ALERT_LIFETIME_SECONDS = 24 * 3600;

/** Changes that one event makes to the open alerts of its node. */
export interface AlertChange {
  /** Opens the alert of this type unless it is open already. */
  readonly opens: string | undefined;
  /** Event types whose open alerts it closes. */
  readonly clears: readonly string[];
}

/** Maps an event type to the alert type that it closes. */
const CLEARED_BY: Readonly<Record<string, string>> = { "Node Connect": "Node Disconnect" };

/** Decides what one event does to alerts: WARNING or worse opens one, `CLEARED` closes its own type, and some types close another. Pure. */
export function alertChange(event: Pick<NodeEvent, "eventType" | "level" | "state">): AlertChange {
  const other = Object.hasOwn(CLEARED_BY, event.eventType) ? CLEARED_BY[event.eventType] : undefined;
  const clears = other === undefined ? [] : [other];
  if (event.state === "CLEARED") return { opens: undefined, clears: [event.eventType, ...clears] };
  return { opens: event.level === "INFO" ? undefined : event.eventType, clears };
}
