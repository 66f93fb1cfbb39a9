import type { LogLine as StoredLine, LogMemory } from "../../host/log.ts";
import type { LogLine } from "../../protocol/local/answers.ts";
import type { LogsQuery } from "../../protocol/local/api.ts";
import { Feed } from "./feed.ts";

/** Yields the newest lines of the agent's log and, if the query follows it, later lines. */
export async function* readLogs(memory: LogMemory, query: LogsQuery, signal: AbortSignal): AsyncGenerator<LogLine> {
  const feed = new Feed<StoredLine>();
  const past = memory.last(query.lines);
  const stop = query.follow ? memory.follow((line) => feed.push(line)) : (): void => undefined;
  const end = (): void => feed.end();
  if (!query.follow || signal.aborted) feed.end();
  signal.addEventListener("abort", end, { once: true });
  try {
    for (const line of past) yield parseLine(line.text);
    for await (const line of feed) yield parseLine(line.text);
  } finally {
    stop();
    signal.removeEventListener("abort", end);
  }
}

const LEVELS = ["trace", "debug", "info", "warn", "error", "fatal"] as const;

/** Parses a line of the agent's log. Any other text becomes a message unchanged. */
function parseLine(text: string): LogLine {
  try {
    const { level, time, msg, component, ...fields } = JSON.parse(text) as Record<string, unknown>;
    return {
      time: typeof time === "string" ? Date.parse(time) : 0,
      level: LEVELS.find((name) => name === level) ?? "info",
      ...(typeof component === "string" ? { component: component.slice(0, 64) } : {}),
      message: typeof msg === "string" ? msg : "",
      ...(Object.keys(fields).length === 0 ? {} : { fields }),
    };
  } catch {
    return { time: 0, level: "info", message: text };
  }
}
