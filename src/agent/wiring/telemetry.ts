import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { AgentState } from "../state.ts";
import { createEventLog, type EventLog } from "../telemetry/events.ts";
import { Pusher } from "../telemetry/pusher.ts";
import { assessRun, type Run, type RunRecord } from "../telemetry/run-record.ts";
import { Spool } from "../telemetry/spool.ts";

export interface Telemetry {
  readonly spool: Spool;
  readonly pusher: Pusher;
  readonly events: EventLog;
  /** What this run leaves behind for the next. */
  readonly record: RunRecord;
  /** Tells that this program is about to be started again, and has that on the disk. */
  announceRestart(): void;
}

/** Opens the spool and the event log, and tells what this start says about the last one. */
export async function openTelemetry({
  state,
  clock,
  log,
  run,
  onRefused,
}: {
  readonly state: AgentState;
  readonly clock: Clock;
  readonly log: Logger;
  readonly run: Run;
  /** Told of each write that the database refused. */
  readonly onRefused: (error: unknown) => void;
}): Promise<Telemetry> {
  const notSaved = (error: unknown): void => log.warn({ err: toError(error) }, "not saved");
  const spool = new Spool(state.database.sql, (error) => {
    log.warn({ err: toError(error) }, "spool could not be written");
    onRefused(error);
  });
  const pusher = new Pusher({ clock, log: log.child({ component: "telemetry" }), spool });
  const put = (stream: "events" | "audits", record: Readonly<Record<string, unknown>>): void => {
    spool.append(stream, { ...record });
    pusher.look();
  };
  const open = await state.openEvents.load();
  const events = createEventLog({
    clock,
    sink: (event) => put("events", event),
    open: open.is === "good" || open.is === "recovered" ? open.value : [],
    onOpenChanged: (changed) => void state.openEvents.save([...changed]).catch(notSaved),
  });
  const previous = await state.run.load();
  const assessed = assessRun(previous.is === "good" || previous.is === "recovered" ? previous.value : undefined, run);
  await state.run.save(assessed.record).catch(notSaved);
  for (const event of assessed.notices) events.notice(event);
  for (const event of assessed.raises) events.raise(event);
  for (const event of assessed.clears) events.clear(event);
  for (const audit of assessed.audits) put("audits", audit);
  return {
    spool,
    pusher,
    events,
    record: assessed.record,
    announceRestart() {
      events.notice({ eventType: "Node Restart", object: "service", level: "INFO", message: "Node is restarting" });
      spool.flush();
    },
  };
}
