import { formatMoment } from "../../lib/text/durations.ts";
import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { Health, type HealthItem } from "../../protocol/local/answers.ts";
import { READ_SOCKET } from "../../protocol/local/api.ts";
import { ask } from "../frame/client.ts";
import { standing } from "../text/status-view.ts";
import { fetchStatus } from "./status.ts";
import { layOut, type Style } from "../frame/terminal.ts";
import type { Call, VerbProgram } from "../frame/verb.ts";

const STYLES: Readonly<Record<HealthItem["status"] | Health["verdict"], Style>> = {
  pass: "green",
  ok: "green",
  warn: "yellow",
  degraded: "yellow",
  unknown: "dim",
  fail: "red",
  failed: "red",
};

export const healthVerb: VerbProgram = {
  output: Health,
  async run(call) {
    const status = await fetchStatus(call);
    const health = await ask(call, { method: "GET", path: "/v1/health", socket: READ_SOCKET }, Health);
    call.terminal.out(call.settings.isJson ? `${safeJson(health)}\n` : healthText(call, health));
    return standing(status, health.verdict);
  },
};

function healthText({ terminal, clock }: Call, untrusted: Health): string {
  const { verdict, items } = plainValue(untrusted);
  const now = clock.now();
  const rows = items.flatMap(({ name, status, message, since, fix }): (readonly [string, string])[] => {
    const when = since === undefined ? "" : ` (${formatMoment(since, now)})`;
    const row = [`${terminal.style(STYLES[status], status.padEnd(7))} ${name}`, message + when] as const;
    return fix === undefined ? [row] : [row, ["", terminal.style("bold", `fix: ${fix}`)]];
  });
  return layOut([["verdict", terminal.style(STYLES[verdict], verdict)], ...rows], terminal.size().columns);
}
