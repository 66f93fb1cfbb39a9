import { AgentError } from "../../errors.ts";

/** Exit codes of the process, the same for every verb. */
export const exitCodes = {
  ok: { code: 0, meaning: "success" },
  failed: { code: 1, meaning: "failed; the message says why" },
  usage: { code: 2, meaning: "the command line is wrong" },
  unreachable: { code: 3, meaning: "no agent answers" },
  unregistered: { code: 4, meaning: "this node is not registered" },
  degraded: { code: 5, meaning: "something needs attention, or the node is offline" },
  timeout: { code: 6, meaning: "timed out" },
  interrupted: { code: 130, meaning: "ended by Ctrl-C" },
} as const satisfies Record<string, { code: number; meaning: string }>;
export type ExitClass = keyof typeof exitCodes;

const CLASS_OF_ERROR: Readonly<Record<string, ExitClass>> = {
  usage: "usage",
  "agent-unreachable": "unreachable",
  "path-too-long": "usage",
  "not-registered": "unregistered",
  timeout: "timeout",
};

/** Returns the exit class of an error by its code. */
export function exitClassOf(error: Error): ExitClass {
  return (error instanceof AgentError ? CLASS_OF_ERROR[error.code] : undefined) ?? "failed";
}
