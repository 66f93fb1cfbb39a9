import { z } from "zod";
import { safeJson } from "../../lib/text/terminal-text.ts";
import { fetchStatus } from "./status.ts";
import { triggerAnswer } from "../frame/trigger-answer.ts";
import { untilAnew } from "../frame/until-anew.ts";
import type { VerbProgram } from "../frame/verb.ts";

const RestartOutput = z.object({
  schema: z.literal(1),
  /** Process ids of the agent before and after. */
  before: z.int(),
  after: z.int(),
});

const Announced = z.object({ output: z.object({ message: z.string() }) });

/** Restarts the agent as the trigger `node-restart-service` does, and waits for the one that comes after it. */
export const restartVerb: VerbProgram = {
  output: RestartOutput,
  async run(call) {
    const { settings, terminal } = call;
    const { pid: before, startedAt } = await fetchStatus(call);
    await triggerAnswer(call, "node-restart-service", {}, Announced);
    const late = `the agent restarts and does not answer after ${settings.timeoutMs / 1000} s: see 'journalctl -u holdfast-agent'`;
    const { pid: after } = await untilAnew(call, startedAt, late);
    const text = `the agent restarted: process ${after}, after ${before}\n`;
    terminal.out(settings.isJson ? `${safeJson({ schema: 1, before, after })}\n` : text);
    return "ok";
  },
};
