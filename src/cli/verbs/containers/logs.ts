import { SessionError } from "../../../errors.ts";
import { plainText, safeJson } from "../../../lib/text/terminal-text.ts";
import { ADMIN_SOCKET, LOG_LINES_MAX } from "../../../protocol/local/api.ts";
import { ContainerLogLine } from "../../../protocol/local/answers.ts";
import { follow } from "../../frame/client.ts";
import type { ExitClass } from "../../frame/exit-codes.ts";
import type { Call } from "../../frame/verb.ts";
import { wholeOption } from "../../frame/whole-option.ts";

/** Shows what the current run of a container has written and, with `--follow`, writes. */
export async function containersLogs(call: Call, container: string): Promise<ExitClass> {
  const { values, terminal, settings, signal } = call;
  const isFollowing = values["follow"] === true;
  const lines = wholeOption(call, "lines", 0, LOG_LINES_MAX) ?? 100;
  const query = new URLSearchParams({ container, lines: String(lines), follow: isFollowing ? "1" : "0" });
  const request = { method: "GET", path: `/v1/containers/logs?${query.toString()}`, socket: ADMIN_SOCKET } as const;
  try {
    for await (const line of follow(call, request, ContainerLogLine)) {
      if ("error" in line) throw new SessionError(line.error.code, line.error.message);
      if (settings.isJson) terminal.out(`${safeJson(line)}\n`);
      else if (line.stream === "stderr") terminal.err(plainText(line.data));
      else terminal.out(plainText(line.data));
    }
  } catch (error) {
    // Ctrl-C is how following ends.
    if (signal.aborted && isFollowing) return "ok";
    throw error;
  }
  return "ok";
}
