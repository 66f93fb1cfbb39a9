import { SessionError } from "../../../errors.ts";
import { plainText, safeJson } from "../../../lib/text/terminal-text.ts";
import { TriggerLine } from "../../../protocol/local/answers.ts";
import { adminRequest, follow } from "../../frame/client.ts";
import type { ExitClass } from "../../frame/exit-codes.ts";
import type { Call } from "../../frame/verb.ts";

/**
 * Starts, stops or restarts a container. A start of one on demand shows what it writes, ends it with this command, and exits as it does;
 * with `--detach` it is only started.
 */
export async function containersRun(call: Call, action: string, container: string): Promise<ExitClass | number> {
  const { terminal, settings, values } = call;
  const query = values["detach"] === true ? "?wait=1" : "";
  const path = `/v1/trigger/${encodeURIComponent(container)}${query}`;
  for await (const line of follow(call, adminRequest(path, { cmd_action: action }), TriggerLine)) {
    if (line.kind === "error") {
      const { code, message, details } = line;
      const text = code === "unknown-event" ? `no container is called ${container}` : message;
      throw new SessionError(code, text, details === undefined ? {} : { details });
    }
    if (settings.isJson) terminal.out(`${safeJson(line)}\n`);
    if (line.kind === "progress") {
      if (settings.isJson || typeof line.data !== "string") continue;
      if (line.channel === "stderr") terminal.err(plainText(line.data));
      else terminal.out(plainText(line.data));
      continue;
    }
    const exitCode = exitCodeOf(line.body);
    if (exitCode !== undefined) return exitCode;
    if (!settings.isJson) terminal.out(`${container}: ${DONE[action] ?? "done"}\n`);
    return "ok";
  }
  throw new SessionError("interrupted", "the agent ended without an answer: see 'holdfast logs'");
}

const DONE: Readonly<Record<string, string>> = { start: "started", stop: "stopped", restart: "restarted" };

function exitCodeOf(body: unknown): number | undefined {
  if (typeof body !== "object" || body === null || !("exitCode" in body)) return undefined;
  return typeof body.exitCode === "number" ? body.exitCode : undefined;
}
