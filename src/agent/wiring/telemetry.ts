import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { parseBootId } from "../../host/proc.ts";
import type { Reader } from "../../host/reader.ts";
import { buildInfo, packageVersion } from "../../lib/build-info.ts";
import type { LastGood } from "../applying/last-good.ts";
import type { FaultList } from "../faults/fault.ts";
import type { AgentState } from "../state.ts";
import { createEventLog, type EventLog } from "../telemetry/events.ts";
import { openKnownTime, reportClock, type KnownTime } from "../telemetry/known-time.ts";
import { Pusher } from "../telemetry/pusher.ts";
import { assessRun, stoppedRun } from "../telemetry/run-record.ts";
import { Spool } from "../telemetry/spool.ts";
import type { CleanStop } from "../triggers/node/clean-stop.ts";
import type { AgentSignals } from "./signals.ts";

export interface OpenTelemetryOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly reader: Pick<Reader, "read">;
  readonly state: AgentState;
  readonly lastGood: LastGood;
  readonly faults: Pick<FaultList, "all">;
  readonly signals: Pick<AgentSignals, "connection" | "isWritable">;
  /** Aborted when the agent stops in order. */
  readonly stopping: AbortSignal;
  readonly notSaved: (error: unknown) => void;
  /** Notes a write that the disk refused. */
  readonly onRefused: (error: unknown) => void;
}

export interface Telemetry {
  readonly bootId: string;
  /** When the agent started, in Unix milliseconds. */
  readonly startedAt: number;
  /** The same by the monotonic clock. */
  readonly begunAt: number;
  readonly time: KnownTime;
  /** The clock by which everything that leaves the machine is stamped. */
  readonly stamps: Clock;
  readonly spool: Spool;
  readonly pusher: Pusher;
  readonly events: EventLog;
  /** The mark by which the next start recognises an orderly stop. */
  readonly cleanStop: CleanStop;
  /** Reports that this program is about to restart, and writes the event to disk. */
  announceRestart(): void;
}

/** Opens the clock, the spool and the event log, and reports how the last run ended. */
export async function openTelemetry(options: OpenTelemetryOptions, stack: AsyncDisposableStack): Promise<Telemetry> {
  const { clock, log, reader, state, lastGood, faults, signals, stopping, notSaved, onRefused } = options;
  const startedAt = clock.now();
  const begunAt = clock.elapsed();
  const knownBootId = parseBootId(reader.read("/proc/sys/kernel/random/boot_id") ?? "");
  const time = openKnownTime({ clock, log, state, lastGood, onFault: notSaved });
  stack.defer(() => time.stopped());
  const { stamps } = time;
  const spool = new Spool(state.database.sql, (error) => {
    log.warn({ err: toError(error) }, "spool could not be written");
    onRefused(error);
  });
  const pusher = new Pusher({ clock: stamps, log: log.child({ component: "telemetry" }), spool });
  const put = (stream: "events" | "audits", record: Readonly<Record<string, unknown>>): void => {
    spool.append(stream, { ...record });
    pusher.push();
  };
  const open = await state.openEvents.load();
  const events = createEventLog({
    clock: stamps,
    sink: (event) => put("events", event),
    open: open.is === "good" || open.is === "recovered" ? open.value : [],
    onOpenChanged: (changed) => void state.openEvents.save([...changed]).catch(notSaved),
  });
  const previous = await state.run.load();
  const { record, ...assessed } = assessRun(
    previous.is === "good" || previous.is === "recovered" ? previous.value : undefined,
    {
      bootId: knownBootId,
      packageVersion: packageVersion(buildInfo),
      startupErrors: faults.all.map(({ message }) => message),
      startedAt: Math.floor(stamps.now() / 1000),
    },
  );
  await state.run.save(record).catch(notSaved);
  const cleanStop = { mark: () => state.run.save(stoppedRun(record)), clear: () => state.run.save(record) };
  stack.defer(async () => {
    // A start that fails is no orderly stop.
    if (stopping.aborted) await cleanStop.mark().catch(notSaved);
  });
  stack.defer(() => pusher.close());
  stack.defer(() => events.close());
  for (const event of assessed.notices) events.notice(event);
  for (const event of assessed.raises) events.raise(event);
  for (const event of assessed.clears) events.clear(event);
  for (const audit of assessed.audits) put("audits", audit);
  signals.connection.changed((connection) => {
    if (connection === undefined) return;
    time.receive(connection.sessionNow() * 1000);
    reportClock(time, events);
  });
  signals.isWritable.changed((isWritable) => {
    if (isWritable) spool.flush();
  });
  return {
    bootId: knownBootId ?? randomUUID(),
    startedAt,
    begunAt,
    time,
    stamps,
    spool,
    pusher,
    events,
    cleanStop,
    announceRestart() {
      events.notice({ eventType: "Node Restart", object: "service", level: "INFO", message: "Node is restarting" });
      spool.flush();
    },
  };
}
