import { safeJson } from "../../lib/text/terminal-text.ts";
import { READ_SOCKET } from "../../protocol/local/api.ts";
import { Health, Status } from "../../protocol/local/answers.ts";
import { ask } from "../frame/client.ts";
import { standing, statusText } from "../text/status-view.ts";
import type { Call, VerbProgram } from "../frame/verb.ts";
import { watch } from "../frame/watch.ts";

export const statusVerb: VerbProgram = {
  output: Status,
  async run(call) {
    if (call.values["watch"] === true) return watch(call, async () => show(call, await fetchStatus(call)));
    const status = await fetchStatus(call);
    const { verdict } = await ask(call, { method: "GET", path: "/v1/health", socket: READ_SOCKET }, Health);
    call.terminal.out(show(call, status));
    return standing(status, verdict);
  },
};

/** The agent's status at this moment. */
export function fetchStatus(call: Call): Promise<Status> {
  return ask(call, { method: "GET", path: "/v1/status", socket: READ_SOCKET }, Status);
}

function show({ settings, terminal, clock }: Call, status: Status): string {
  if (settings.isJson) return `${safeJson(status)}\n`;
  return statusText(status, clock.now(), terminal.size().columns, (style, text) => terminal.style(style, text));
}
