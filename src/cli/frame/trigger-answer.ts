import type { z } from "zod";
import { SessionError } from "../../errors.ts";
import { TriggerLine } from "../../protocol/local/answers.ts";
import { adminRequest, follow } from "./client.ts";
import type { Call } from "./verb.ts";

/**
 * Runs a trigger event on this node that answers with one value.
 * @throws {SessionError} the event's failure with its code; `invalid-reply`; as `follow`.
 */
export async function triggerAnswer<T>(call: Call, event: string, body: unknown, schema: z.ZodType<T>): Promise<T> {
  for await (const line of follow(call, adminRequest(`/v1/trigger/${event}`, body), TriggerLine)) {
    if (line.kind === "error") {
      const { code, message, details } = line;
      throw new SessionError(code, message, details === undefined ? {} : { details });
    }
    if (line.kind !== "result") continue;
    const parsed = schema.safeParse(line.body);
    if (parsed.success) return parsed.data;
    throw new SessionError("invalid-reply", `the agent's answer to ${event} is not what this version understands`);
  }
  throw new SessionError("interrupted", `the agent ended ${event} without a result: see 'holdfast logs'`);
}
