import { z } from "zod";
import { linesOf } from "../../lib/text/lines.ts";
import type { EngineEvent } from "./engine.ts";
import { labelled, parsed, TextMap } from "./parse.ts";
import type { Transport } from "./transport.ts";
import { unwell } from "./failure.ts";
import { InputError } from "../../errors.ts";

const KINDS = ["container", "image", "volume", "network", "daemon"] as const;

const Event = z.object({
  Type: z.string(),
  Action: z.string(),
  Actor: z.object({ ID: z.string().default(""), Attributes: TextMap }),
  time: z.number().default(0),
  timeNano: z.number().optional(),
});

const MAX_LINE_BYTES = 256 * 1024;

/** Yields the engine's events of objects with all the labels, from this moment. */
export async function* events(
  transport: Transport,
  labels: readonly string[],
  signal: AbortSignal,
  onOpen: () => void,
): AsyncGenerator<EngineEvent, void> {
  const what = "cannot follow the engine's events";
  const stream = await transport.stream({ what, method: "GET", path: "/events", query: labelled(labels) }, signal);
  try {
    onOpen();
    for await (const line of linesOf(stream.source, MAX_LINE_BYTES)) {
      const event = parseEvent(Buffer.from(line).toString("utf8"));
      if (event !== undefined) yield event;
    }
  } catch (error) {
    if (error instanceof InputError) throw unwell(`${what}: ${error.message}`, error);
    throw error;
  } finally {
    stream.close();
  }
}

/** Parses one line of the event stream; returns undefined for kinds that are not watched. */
export function parseEvent(line: string): EngineEvent | undefined {
  if (line.trim() === "") return undefined;
  const event = parsed(Event, line, "an event of the engine");
  const kind = KINDS.find((one) => one === event.Type);
  if (kind === undefined) return undefined;
  const at = event.timeNano === undefined ? event.time * 1000 : Math.floor(event.timeNano / 1e6);
  return { kind, action: event.Action, id: event.Actor.ID, attributes: event.Actor.Attributes, at };
}
