import { formatMoment } from "../../lib/text/durations.ts";
import { Health, Status, type HealthItem } from "../../protocol/local/answers.ts";
import { fetchReport } from "../frame/client.ts";
import { readVerb } from "../frame/read-verb.ts";
import { layOut, type Style, type View } from "../frame/terminal.ts";
import { standing } from "../text/status-view.ts";

export const healthVerb = readVerb({
  name: "health",
  summary: "show what is healthy, what is not, and what to do",
  exits: ["ok", "failed", "usage", "unreachable", "unregistered", "degraded", "timeout"],
  path: "/v1/health",
  schema: Health,
  text: healthText,
  exit: async ({ verdict }, call) => standing(await fetchReport(call, "/v1/status", Status), verdict),
});

const STYLES: Readonly<Record<HealthItem["status"] | Health["verdict"], Style>> = {
  pass: "green",
  ok: "green",
  warn: "yellow",
  degraded: "yellow",
  unknown: "dim",
  fail: "red",
  failed: "red",
};

function healthText({ verdict, items }: Health, { now, columns, paint }: View): string {
  const rows = items.flatMap(({ name, status, message, since, fix }): (readonly [string, string])[] => {
    const when = since === undefined ? "" : ` (${formatMoment(since, now)})`;
    const row = [`${paint(STYLES[status], status.padEnd(7))} ${name}`, message + when] as const;
    return fix === undefined ? [row] : [row, ["", paint("bold", `fix: ${fix}`)]];
  });
  return layOut([["verdict", paint(STYLES[verdict], verdict)], ...rows], columns);
}
