import { lockEvent, type IpLock } from "./ip-lock.ts";
import type { NodeLabel } from "../events/records.ts";
import type { EventLog } from "../events/service.ts";

/** Records that a node connects from outside its lock, or that this ended. */
export function reportLock(events: Pick<EventLog, "record">, node: NodeLabel, before: IpLock, after: IpLock): void {
  const report = lockEvent(before, after);
  if (report === undefined) return;
  const { isRaised, message, details } = report;
  events.record(node, {
    eventType: "Unauthorized IP",
    level: isRaised ? "WARNING" : "INFO",
    state: isRaised ? "EXCEEDED" : "CLEARED",
    message,
    details,
  });
}
