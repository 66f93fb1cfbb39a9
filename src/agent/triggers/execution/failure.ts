import { AgentError } from "../../../errors.ts";
import type { TriggerFailure } from "../../../protocol/channel/methods.ts";
import { AnsweredFailure } from "../../../protocol/channel/rpc.ts";
import type { TriggerReply } from "./trigger.ts";
import { defined } from "../../../lib/defined.ts";

const MAX_MESSAGE = 4096;

/** Returns the failure for the caller: code and message of an expected error, no internals of a bug. */
export function failureOf(error: Error): TriggerFailure {
  if (!(error instanceof AgentError)) return { code: "internal", message: "internal error" };
  const { code, message, details } = error;
  return { code, message: message.slice(0, MAX_MESSAGE), ...defined({ details }) };
}

/** Returns the body of a reply. @throws {AnsweredFailure} the reply's failure. */
export function bodyOf(reply: TriggerReply): unknown {
  if ("body" in reply) return reply.body;
  const { code, message, details } = reply.error;
  throw new AnsweredFailure(code, message, details === undefined ? {} : { details });
}
