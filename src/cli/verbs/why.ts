import { formatMoment, formatSpan } from "../../lib/text/durations.ts";
import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { READ_SOCKET } from "../../protocol/local/api.ts";
import { WhyReport } from "../../protocol/documents/reconcile.ts";
import { ask } from "../frame/client.ts";
import { layOut } from "../frame/terminal.ts";
import type { Call, VerbProgram } from "../frame/verb.ts";

export const whyVerb: VerbProgram = {
  output: WhyReport,
  async run(call) {
    const report = await ask(call, { method: "GET", path: "/v1/why", socket: READ_SOCKET }, WhyReport);
    call.terminal.out(call.settings.isJson ? `${safeJson(report)}\n` : whyText(call, report));
    return report.reasons.every(isNotice) ? "ok" : "degraded";
  },
};

const isNotice = ({ notice }: WhyReport["reasons"][number]): boolean => notice === true;

/** What is wrong, then the notices; where there are only these, all is well. */
function whyText({ terminal, clock }: Call, untrusted: WhyReport): string {
  const { reasons } = plainValue(untrusted);
  const wrong = reasons.filter((reason) => !isNotice(reason));
  const notices = reasons.filter(isNotice);
  const wellText = wrong.length === 0 ? "everything is as it should be\n" : "";
  const now = clock.now();
  const rows = [...wrong, ...notices].map(
    ({ section, item, code, message, since, lastAttempt, nextAttempt, notice }) => {
      const next = nextAttempt === undefined ? "" : `, next ${formatMoment(nextAttempt, now)}`;
      const when = `${formatSpan(now - since)}, tried ${formatMoment(lastAttempt, now)}${next}`;
      const subject = item ?? section;
      // Messages that also appear alone, in reports, begin with their subject, their code, or both.
      const text = [subject, code].reduce(withoutLead, message);
      const label = notice === true ? terminal.style("dim", `notice ${code}`) : terminal.style("yellow", code);
      return [subject, `${label} ${text} (${when})`] as const;
    },
  );
  return `${wellText}${layOut(rows, terminal.size().columns)}`;
}

function withoutLead(text: string, lead: string): string {
  return text.startsWith(`${lead}: `) ? text.slice(lead.length + 2) : text;
}
