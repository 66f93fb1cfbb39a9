import { Status } from "../../protocol/local/answers.ts";
import { fetchReport } from "../frame/client.ts";
import { z } from "zod";
import { safeJson } from "../../lib/text/terminal-text.ts";
import { triggerAnswer } from "../frame/trigger-answer.ts";
import { untilAnew } from "../frame/until-anew.ts";
import type { Verb } from "../frame/verb.ts";
import { COMMON } from "../frame/verb-options.ts";

const RestartOutput = z.object({
  schema: z.literal(1),
  /** Process ids of the agent before and after. */
  before: z.int(),
  after: z.int(),
});

const Announced = z.object({ output: z.object({ message: z.string() }) });

/** Restarts the agent by the trigger `node-restart-service`, and waits until the new process answers. */
export const restartVerb: Verb = {
  name: "restart",
  summary: "restart the agent, and wait until it answers",
  about:
    "Like the trigger node-restart-service: reported to the control plane; traffic and containers are not affected. Needs a managed install; " +
    "refused during an upgrade. If the agent hangs, use 'systemctl restart holdfast-agent'.",
  arguments: [],
  options: COMMON,
  exits: ["ok", "failed", "usage", "unreachable", "timeout"],
  example: "holdfast restart",
  timeoutSeconds: 90,
  output: RestartOutput,
  async run(call) {
    const { settings, terminal } = call;
    const { pid: before, startedAt } = await fetchReport(call, "/v1/status", Status);
    await triggerAnswer(call, "node-restart-service", {}, Announced);
    const late = `the agent restarts and does not answer after ${settings.timeoutMs / 1000} s: see 'journalctl -u holdfast-agent'`;
    const { pid: after } = await untilAnew(call, startedAt, late);
    const text = `the agent restarted: process ${after}, after ${before}\n`;
    terminal.out(settings.isJson ? `${safeJson({ schema: 1, before, after })}\n` : text);
    return "ok";
  },
};
