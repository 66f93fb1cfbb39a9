import { AgentError, InputError } from "../../errors.ts";
import { isErrorCode } from "../../protocol/error-codes.ts";
import type { TriggerFailure } from "../../protocol/methods.ts";
import type { TriggerReply } from "./trigger.ts";

const MAX_MESSAGE = 4096;

/** What the caller is told of an error. A code that is not the platform's, or a bug, becomes `internal`. */
export function failureOf(error: Error): TriggerFailure {
  if (!(error instanceof AgentError)) return { code: "internal", message: "internal error" };
  const code = isErrorCode(error.code) ? error.code : "internal";
  const details = code === error.code ? error.details : { ...error.details, code: error.code };
  return { code, message: error.message.slice(0, MAX_MESSAGE), ...(details === undefined ? {} : { details }) };
}

/** The body of a reply, for a caller that tells failures by throwing. @throws {InputError} the reply's failure. */
export function bodyOf(reply: TriggerReply): unknown {
  if ("body" in reply) return reply.body;
  const { code, message, details } = reply.error;
  throw new InputError(code, message, details === undefined ? {} : { details });
}
