import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { doctorTools, examine } from "../doctor/examine.ts";
import { families } from "../doctor/families.ts";
import { DoctorReport, type DoctorCheck } from "../doctor/result.ts";
import type { ExitClass } from "../frame/exit-codes.ts";
import { layOut, type Style } from "../frame/terminal.ts";
import type { Call, Verb } from "../frame/verb.ts";
import { COMMON, CONFIG } from "../frame/verb-options.ts";

const EXITS: Readonly<Record<DoctorReport["verdict"], ExitClass>> = {
  ok: "ok",
  degraded: "degraded",
  failed: "failed",
};
const STYLES: Readonly<Record<DoctorCheck["status"], Style>> = {
  pass: "green",
  warn: "yellow",
  fail: "red",
  skip: "dim",
};

/** Maximum number of checks named again in the summary. */
const MAX_NAMED = 8;

export const doctorVerb: Verb = {
  name: "doctor",
  summary: "run all checks, and show what to do",
  about:
    "Settings, state, units, agent, overlay, containers, network, resolver, time, firewall, kernel, limits and upgrade; with and without a " +
    "running agent, also if the node is not registered. Checks that need root are skipped and named.",
  arguments: [],
  options: {
    ...CONFIG,
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "degraded", "interrupted"],
  example: "holdfast doctor",
  timeoutSeconds: 5,
  output: DoctorReport,
  async run(call) {
    const report = await examine(families, doctorTools(call));
    call.terminal.out(call.settings.isJson ? `${safeJson(report)}\n` : reportText(call.terminal, report));
    return EXITS[report.verdict];
  },
};

/** Formats a report: a block for each family, then the number of checks of each status. */
export function reportText({ style, size }: Pick<Call["terminal"], "style" | "size">, untrusted: DoctorReport): string {
  const { checks, verdict } = plainValue(untrusted);
  const names = [...new Set(checks.map(({ family }) => family))];
  const blocks = names.map((name) => {
    const rows = checks
      .filter(({ family }) => family === name)
      .flatMap(({ status, name: check, code, message, fix }) => {
        const reason = code === "ok" ? "" : ` [${code}]`;
        const row = [`  ${style(STYLES[status], status.toUpperCase())}`, `${check}: ${message}${reason}`] as const;
        return fix === undefined ? [row] : [row, ["", style("bold", `fix: ${fix}`)] as const];
      });
    return `${style("bold", name)}\n${layOut(rows, size().columns)}`;
  });
  const count = (status: DoctorCheck["status"]): number => checks.filter((check) => check.status === status).length;
  const sum = `${verdict}: ${count("fail")} failed, ${count("warn")} warn, ${count("pass")} passed, ${count("skip")} skipped`;
  // After dozens of lines, what matters is to be on the screen.
  const named = (status: DoctorCheck["status"]): readonly string[] =>
    checks.filter((check) => check.status === status).map(({ family, name }) => `${family} ${name}`);
  const todo = [...named("fail"), ...named("warn")];
  const see = todo.length === 0 ? "" : `in this order, see above: ${todo.slice(0, MAX_NAMED).join("; ")}\n`;
  return `${blocks.join("")}${sum}\n${see}`;
}
