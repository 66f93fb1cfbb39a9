import { formatMoment, formatSpan } from "../lib/durations.ts";
import { plainValue, safeJson } from "../lib/terminal-text.ts";
import { READ_SOCKET } from "../protocol/local-api.ts";
import { WhyReport } from "../protocol/reconcile.ts";
import { ask } from "./client.ts";
import { layOut } from "./terminal.ts";
import type { Call, VerbProgram } from "./verb.ts";

export const whyVerb: VerbProgram = {
  output: WhyReport,
  async run(call) {
    const report = await ask(call, { method: "GET", path: "/v1/why", socket: READ_SOCKET }, WhyReport);
    call.terminal.out(call.settings.isJson ? `${safeJson(report)}\n` : whyText(call, report));
    return report.reasons.length === 0 ? "ok" : "degraded";
  },
};

function whyText({ terminal, clock }: Call, untrusted: WhyReport): string {
  const { reasons } = plainValue(untrusted);
  if (reasons.length === 0) return "everything is as it should be\n";
  const now = clock.now();
  const rows = reasons.map(({ section, item, code, message, since, lastAttempt, nextAttempt }) => {
    const next = nextAttempt === undefined ? "" : `, next ${formatMoment(nextAttempt, now)}`;
    const when = `${formatSpan(now - since)}, tried ${formatMoment(lastAttempt, now)}${next}`;
    const subject = item ?? section;
    // Messages that also stand alone, in reports, are led by their subject.
    const text = message.startsWith(`${subject}: `) ? message.slice(subject.length + 2) : message;
    return [subject, `${terminal.style("yellow", code)} ${text} (${when})`] as const;
  });
  return layOut(rows, terminal.size().columns);
}
