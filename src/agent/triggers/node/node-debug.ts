import { InputError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { LogMemory } from "../../../host/log.ts";
import { appliedSections } from "../../../protocol/sections/sections.ts";
import { NodeDebug } from "../../../protocol/triggers/bodies.ts";
import { LineCap } from "../execution/line-cap.ts";
import type { Chunk, StreamTrigger } from "../execution/trigger.ts";

/** Components that name themselves in the log; `agent` stands for lines without a name. */
export const LOG_COMPONENTS = [
  "agent",
  "commit",
  "compute",
  "data-store",
  "documents",
  "local-api",
  "metrics",
  "overlay",
  "reconcile",
  "session",
  "shadow",
  "streams",
  "telemetry",
  "triggers",
] as const;

const ANY = "any";
const LIMITS = { perSecond: 200, maxBytes: 50_000_000 };
/** Limit of pieces that wait for a slow reader. */
const MAX_WAITING = 500;
/** Duration of the stream for a caller that waits for the whole reply. */
const WAIT_MS = 10_000;
const IDLE_MS = 900_000;
const LONGEST_MS = 3_600_000;
const MAX_VALUE = 1024;

/**
 * Streams the agent's log lines, level `debug` included, of one component or section or of all. The written log is not affected. Ends with
 * the stream, the session or the agent.
 */
export function nodeDebug(memory: Pick<LogMemory, "tap">, clock: Clock): StreamTrigger<NodeDebug> {
  return {
    event: "node-debug",
    kind: "stream",
    request: NodeDebug,
    deadlineMs: 60_000,
    watchedMs: LONGEST_MS,
    needsDataPlane: false,
    readOnly: true,
    agents: true,
    async handle(request, { wait, signal, emit }) {
      refuseUnknown(request.plugin);
      const lines = new WaitingLines(clock);
      const stop = memory.tap((text) => {
        const line = debugLine(text, request);
        if (line !== undefined) lines.push(line);
      });
      const end = (): void => lines.end();
      let cancel = clock.after(wait ? WAIT_MS : IDLE_MS, end);
      signal.addEventListener("abort", end, { once: true });
      try {
        for (;;) {
          const chunks = await lines.next();
          if (chunks === undefined) return { exitCode: 0 };
          if (!wait) {
            cancel();
            cancel = clock.after(IDLE_MS, end);
          }
          for (const chunk of chunks) await emit(chunk);
        }
      } finally {
        stop();
        cancel();
        signal.removeEventListener("abort", end);
      }
    },
  };
}

/** Queue of lines for a viewer, with limits on lines per second and waiting lines. */
class WaitingLines {
  readonly #clock: Clock;
  readonly #cap = new LineCap(LIMITS);
  #waiting: Chunk[] = [];
  #lost = 0;
  #isEnded = false;
  #wake: () => void = () => undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  push(line: string): void {
    const { lines, note } = this.#cap.take(line, this.#clock.elapsed());
    this.#put("stderr", note);
    this.#put("stdout", lines);
    if (this.#cap.isFull) this.end();
  }

  end(): void {
    this.#isEnded = true;
    this.#wake();
  }

  /** Resolves to the lines since the last call, as soon as there are any; undefined at the end. */
  async next(): Promise<readonly Chunk[] | undefined> {
    if (this.#waiting.length === 0 && !this.#isEnded) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#isEnded) this.#put("stderr", this.#cap.end().note);
    const chunks = this.#waiting;
    this.#waiting = [];
    if (this.#lost > 0)
      chunks.push({ kind: "stderr", data: `${this.#lost} lines dropped: they are read too slowly\n` });
    this.#lost = 0;
    return chunks.length === 0 ? undefined : chunks;
  }

  #put(kind: "stdout" | "stderr", data: string): void {
    if (data === "") return;
    if (this.#waiting.length >= MAX_WAITING) this.#lost += 1;
    else this.#waiting.push({ kind, data });
    this.#wake();
  }
}

function refuseUnknown(plugin: string): void {
  const known: readonly string[] = [ANY, ...LOG_COMPONENTS, ...appliedSections];
  if (known.includes(plugin)) return;
  const names = [...new Set(known)].sort().join(", ");
  throw new InputError("not-found", `no plugin ${plugin}: the plugins are ${names}`, { details: { field: "plugin" } });
}

/** Formats a log line for viewers, `HH:MM:SS.mmm: name=value, …: message`; undefined if the filter excludes it. Pure. */
export function debugLine(text: string, wanted: NodeDebug): string | undefined {
  const { time, level, component = "agent", msg, ...fields } = JSON.parse(text) as Readonly<Record<string, unknown>>;
  // The overlay implements the section `gateway`.
  const names = [component, fields["section"], ...(component === "overlay" ? ["gateway"] : [])];
  if (wanted.plugin !== ANY && !names.includes(wanted.plugin)) return undefined;
  for (const name of ["local", "peer", "service"] as const) {
    if (wanted[name] !== "*" && fields[name] !== wanted[name]) return undefined;
  }
  const pairs = Object.entries({ level, component, ...fields }).map(([name, value]) => `${name}=${valueText(value)}`);
  return `${String(time).slice(11, 23)}: ${pairs.join(", ")}: ${String(msg)}\n`;
}

function valueText(value: unknown): string {
  return (typeof value === "string" ? value : JSON.stringify(value)).slice(0, MAX_VALUE);
}
