import type { Engine, LogOptions, OutputFrame } from "./engine.ts";
import { inspectExisting } from "./containers.ts";
import { framesOf } from "./frames.ts";
import { inPath } from "./parse.ts";
import type { Transport } from "./transport.ts";

/** Time that an engine under load may take to record a process's start, in seconds. */
const START_SECONDS = 1;

/** The output of containers, stored (`logs`) and live (`attach`). */
export function output(transport: Transport): Pick<Engine, "logs" | "attach"> {
  return {
    logs: (id, options, signal) => logs(transport, id, options, signal),
    async attach(id, signal) {
      const { Id, Config } = await inspectExisting(transport, id, signal);
      const what = `cannot join container ${id}`;
      const query = { stream: "1", stdout: "1", stderr: "1" };
      const path = `/containers/${inPath(Id)}/attach`;
      const socket = await transport.upgrade({ what, method: "POST", path, query }, signal);
      return framesOf(socket, Config.Tty);
    },
  };
}

async function* logs(
  transport: Transport,
  id: string,
  { follow, tail, since, timestamps = false }: LogOptions,
  signal: AbortSignal,
): AsyncGenerator<OutputFrame, void> {
  const { Id, Config, State } = await inspectExisting(transport, id, signal);
  const query = {
    stdout: "1",
    stderr: "1",
    follow: String(follow),
    tail: tail === undefined ? "all" : String(tail),
    since: later(since, beginning(State)),
    timestamps: String(timestamps),
  };
  const call = {
    what: `cannot read the logs of container ${id}`,
    method: "GET",
    path: `/containers/${Id}/logs`,
  } as const;
  const stream = await transport.stream({ ...call, query }, signal);
  try {
    yield* framesOf(stream.source, Config.Tty);
  } finally {
    stream.close();
  }
}

/**
 * Returns a time between the previous run and the current one. The engine may record the start after the first output, so the end
 * of the previous run is used while the container runs; it is lost when the container exits.
 */
function beginning(state: {
  readonly Running: boolean;
  readonly StartedAt: string;
  readonly FinishedAt: string;
}): string {
  return state.Running ? secondsOf(state.FinishedAt) : secondsOf(state.StartedAt, START_SECONDS);
}

/** Returns an RFC 3339 time as Unix seconds with its nanoseconds, minus `earlier` seconds; `0` for an invalid time and for the year 1. */
export function secondsOf(time: string, earlier = 0): string {
  const at = Math.floor(Date.parse(time) / 1000) - earlier;
  if (Number.isNaN(at) || at <= 0) return "0";
  const fraction = /\.(\d{1,9})/.exec(time)?.[1] ?? "";
  return `${at}.${fraction.padEnd(9, "0")}`;
}

function later(asked: string | undefined, started: string): string {
  return asked === undefined || Number(asked) < Number(started) ? started : asked;
}
