import type { Exec } from "../../../host/process/exec.ts";
import type { Reader } from "../../../host/reader.ts";
import { ErrorsRequest, type ErrorsAnswer, type NodeStatusAnswer } from "../../../protocol/triggers/diagnostics.ts";
import type { Health, LogLine, Status } from "../../../protocol/local/answers.ts";
import { NoBody } from "../../../protocol/triggers/bodies.ts";
import { readHeartbeat, usedRatio } from "../../telemetry/heartbeat.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";
import { defined } from "../../../lib/defined.ts";

export interface NodeStatusOptions {
  readonly exec: Pick<Exec, "run">;
  readonly reader: Reader;
  /** Reports whether systemd runs the agent. */
  readonly isManaged: boolean;
  readonly status: () => Status;
  readonly health: () => Health;
}

const UNITS = ["holdfast-agent.service", "holdfast-overlay.service", "holdfast-restore.service"] as const;
const UNITS_ASK = { deadlineMs: 5000, maxOutputBytes: 16 * 1024 };
const shared = { kind: "one-shot", deadlineMs: 15_000, needsDataPlane: false, readOnly: true, agents: true } as const;

/** Returns the state of machine and agent: units, load, memory, disk, and all of `holdfast status` and `health`. */
export function nodeStatus({ exec, reader, isManaged, status, health }: NodeStatusOptions): OneShotTrigger<NoBody> {
  return {
    ...shared,
    event: "status",
    request: NoBody,
    async handle(_, { signal }): Promise<NodeStatusAnswer> {
      const { uptimeSeconds, load, memory, disk } = readHeartbeat(reader);
      const { totalBytes, availableBytes } = memory;
      return {
        services: isManaged ? await servicesOf(exec, signal) : {},
        cpu: { load },
        memory: { totalBytes, availableBytes, usedPercent: percentOf(1 - availableBytes / Math.max(totalBytes, 1)) },
        disk: {
          totalBytes: disk.totalBytes,
          freeBytes: disk.freeBytes,
          usedPercent: percentOf(usedRatio(disk)),
        },
        uptimeSeconds,
        status: status(),
        health: health(),
      };
    },
  };
}

async function servicesOf(exec: Pick<Exec, "run">, signal: AbortSignal): Promise<Record<string, string>> {
  const { stdout } = await exec.run("systemctl", ["show", "--property=Id,ActiveState", "--", ...UNITS], {
    signal,
    ...UNITS_ASK,
  });
  return parseServices(stdout);
}

/** Parses `systemctl show --property=Id,ActiveState`: a block of lines for each unit. Pure. */
export function parseServices(text: string): Record<string, string> {
  const services: Record<string, string> = {};
  for (const block of text.split(/\n\s*\n/)) {
    const id = /^Id=(.{1,253})$/m.exec(block)?.[1];
    const state = /^ActiveState=([a-z-]{1,64})$/m.exec(block)?.[1];
    if (id !== undefined && state !== undefined) services[id] = state;
  }
  return services;
}

function percentOf(ratio: number): number {
  return Math.round(Math.min(Math.max(ratio, 0), 1) * 1000) / 10;
}

export interface ErrorsOptions {
  /** Newest lines of the log, oldest first. */
  readonly logs: (lines: number, signal: AbortSignal) => AsyncIterable<LogLine>;
  readonly status: () => Pick<Status, "faults" | "startedAt">;
}

const MAX_ERRORS = 200;
const LINES = 2000;
/** Errors within this time after the start count as errors of the start. */
const STARTUP_MS = 60_000;

/** Returns the faults of this run and the errors in its log, newest last. */
export function nodeErrors({ logs, status }: ErrorsOptions): OneShotTrigger<ErrorsRequest> {
  return {
    ...shared,
    event: "errors",
    request: ErrorsRequest,
    async handle({ startupOnly }, { signal }): Promise<ErrorsAnswer> {
      const { faults, startedAt } = status();
      const errors: ErrorsAnswer["errors"] = [];
      const add = (time: number, component: string, message: string, code?: string): void => {
        const startup = time - startedAt < STARTUP_MS;
        if (startupOnly && !startup) return;
        errors.push({
          time,
          component,
          ...defined({ code }),
          message: message.slice(0, 4096),
          startup,
        });
      };
      for (const { code, message, since } of faults) add(since, "agent", message, code);
      for await (const { level, time, component = "agent", message, fields } of logs(LINES, signal)) {
        if (level !== "error" && level !== "fatal") continue;
        const cause = messageOf(fields?.["err"]);
        add(time, component, cause === "" ? message : `${message}: ${cause}`);
      }
      return { errors: errors.toSorted((a, b) => a.time - b.time).slice(-MAX_ERRORS) };
    },
  };
}

/** Returns the message of a logged error without its stack. */
function messageOf(err: unknown): string {
  const isError = typeof err === "object" && err !== null && "message" in err && typeof err.message === "string";
  return isError ? String(err.message) : "";
}
