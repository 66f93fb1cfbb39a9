import { lockEvent, type IpLock } from "./ip-lock.ts";
import type { NodeLabel } from "../events/records.ts";
import type { EventLog, EventParts } from "../events/service.ts";

/** Records that a node connects from outside its lock, or that this ended. */
export async function reportLock(
  tx: EventParts,
  events: Pick<EventLog, "record">,
  node: NodeLabel,
  before: IpLock,
  after: IpLock,
): Promise<void> {
  const report = lockEvent(before, after);
  if (report === undefined) return;
  const { isRaised, message, details } = report;
  await events.record(tx, node, {
    eventType: "Unauthorized IP",
    level: isRaised ? "WARNING" : "INFO",
    state: isRaised ? "EXCEEDED" : "CLEARED",
    message,
    details,
  });
}
