import { formatMoment, formatSpan } from "../../lib/text/durations.ts";
import { WhyReport } from "../../protocol/documents/reconcile.ts";
import { readVerb } from "../frame/read-verb.ts";
import { layOut, type View } from "../frame/terminal.ts";

export const whyVerb = readVerb({
  name: "why",
  summary: "show why something is not as configured, and when it is retried",
  path: "/v1/why",
  schema: WhyReport,
  text: whyText,
  exit: ({ reasons }) => (reasons.every(isNotice) ? "ok" : "degraded"),
});

const isNotice = ({ notice }: WhyReport["reasons"][number]): boolean => notice === true;

/** Lists the problems, then the notices, which do not degrade the node. */
function whyText({ reasons }: WhyReport, { now, columns, paint }: View): string {
  const wrong = reasons.filter((reason) => !isNotice(reason));
  const notices = reasons.filter(isNotice);
  const wellText = wrong.length === 0 ? "everything is as it should be\n" : "";
  const rows = [...wrong, ...notices].map(
    ({ section, item, code, message, since, lastAttempt, nextAttempt, notice }) => {
      const next = nextAttempt === undefined ? "" : `, next ${formatMoment(nextAttempt, now)}`;
      const when = `${formatSpan(now - since)}, tried ${formatMoment(lastAttempt, now)}${next}`;
      const subject = item ?? section;
      // A message that also appears alone, in reports, begins with its subject, its code, or both.
      const text = [subject, code].reduce(withoutLead, message);
      const label = notice === true ? paint("dim", `notice ${code}`) : paint("yellow", code);
      return [subject, `${label} ${text} (${when})`] as const;
    },
  );
  return `${wellText}${layOut(rows, columns)}`;
}

function withoutLead(text: string, lead: string): string {
  return text.startsWith(`${lead}: `) ? text.slice(lead.length + 2) : text;
}
