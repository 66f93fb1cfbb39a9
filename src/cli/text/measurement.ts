import type { z } from "zod";
import { SessionError } from "../../errors.ts";
import { TriggerLine } from "../../protocol/local/answers.ts";
import { adminRequest, follow } from "../frame/client.ts";
import type { Call } from "../frame/verb.ts";

/**
 * Runs a trigger event on this node and yields the objects that it measures, as they come, until it ends.
 * @throws {SessionError} the event's failure with its code; as `follow`.
 */
export async function* measurement<T>(
  call: Call,
  event: string,
  body: unknown,
  schema: z.ZodType<T>,
): AsyncGenerator<T, void> {
  for await (const line of follow(call, adminRequest(`/v1/trigger/${event}`, body), TriggerLine)) {
    if (line.kind === "error") {
      const { code, message, details } = line;
      throw new SessionError(code, message, details === undefined ? {} : { details });
    }
    if (line.kind === "result") return;
    // Ignores fields of newer agents.
    const parsed = line.channel === "json" ? schema.safeParse(line.data) : undefined;
    if (parsed?.success === true) yield parsed.data;
  }
  throw new SessionError("interrupted", `the agent ended ${event} without a result: see 'holdfast logs'`);
}
