import { InputError, toError } from "../../errors.ts";
import { readTextInput } from "../../host/process/text-input.ts";
import { formatCount } from "../../lib/text/durations.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { describeIssues } from "../../protocol/channel/envelope.ts";
import {
  PLAN_REQUEST_LIMITS,
  PlanDocument,
  PlanReport,
  type PlanRequest,
  type SectionPlan,
} from "../../protocol/documents/reconcile.ts";
import { adminRequest, ask } from "../frame/client.ts";
import type { Terminal } from "../frame/terminal.ts";
import type { Call, Verb } from "../frame/verb.ts";
import { COMMON } from "../frame/verb-options.ts";

export const planVerb: Verb = {
  name: "plan",
  summary: "show what a configuration would change on this machine, without applying it",
  about:
    "Without a document, shows the remaining steps of the applied configuration, and the drift that would be corrected.",
  arguments: [],
  options: {
    document: { value: "FILE", help: "a node's configuration as JSON, or - for standard input", complete: "file" },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "unreachable", "timeout"],
  example: "holdfast plan --document node.json",
  timeoutSeconds: 60,
  output: PlanReport,
  async run(call) {
    const { document } = call.values;
    const body = typeof document === "string" ? await readDocument(document, call.signal) : {};
    const report = await ask(call, adminRequest("/v1/plan", body), PlanReport);
    call.terminal.out(call.settings.isJson ? `${safeJson(report)}\n` : planText(call, report));
    return report.sections.some(({ error }) => error !== undefined) ? "failed" : "ok";
  },
};

/** Reads a node's configuration by section, or a node document that contains it as `config`. */
async function readDocument(path: string, signal: AbortSignal): Promise<PlanRequest> {
  const text = await readTextInput(path, PLAN_REQUEST_LIMITS.maxBytes, signal);
  let value: unknown;
  try {
    value = parseStrictJson(text, PLAN_REQUEST_LIMITS);
  } catch (error) {
    throw new InputError("usage", `${path} cannot be read: ${toError(error).message}`, { cause: error });
  }
  const parsed = PlanDocument.safeParse(value);
  // An empty document is an empty configuration.
  if (parsed.success) return { config: parsed.data.config ?? {} };
  const isLoose = parsed.error.issues.some(({ code }) => code === "unrecognized_keys");
  const hint = isLoose ? '; each section stands under its name, such as {"network": {…}}' : "";
  const wrong = describeIssues(parsed.error).slice(0, 5).join("; ");
  throw new InputError("usage", `${path} is no configuration: ${wrong}${hint}`);
}

/** Formats a plan: a line per step, then issues and notes, and the number of steps. */
export function planText({ terminal }: Call, untrusted: PlanReport): string {
  const { sections, notes } = plainValue(untrusted);
  const total = sections.reduce((sum, section) => sum + section.total, 0);
  const removals = sections.toReversed().flatMap((plan) => stepLines(plan, true));
  const steps = [...removals, ...sections.flatMap(otherSteps)];
  const lines = [...steps, ...sections.flatMap((section) => issueLines(terminal, section))];
  const remarks = notes.map(({ message }) => terminal.style("dim", message));
  const sum = total === 0 ? "nothing to do" : formatCount(total, "step");
  return `${[...lines, ...remarks, sum].map((line) => line.replaceAll("\n", " ")).join("\n")}\n`;
}

/** Formats the steps that only remove something, or the others. */
function stepLines({ section, steps }: SectionPlan, removes: boolean): string[] {
  return steps
    .filter((step) => (step.removes === true) === removes)
    .map(
      ({ kind, subject, guarded, detail }) => `${section}: ${kind} ${detail ?? subject}${guarded ? " (guarded)" : ""}`,
    );
}

function otherSteps(plan: SectionPlan): readonly string[] {
  const { section, steps, total } = plan;
  const more = total > steps.length ? [`${section}: and ${total - steps.length} more`] : [];
  return [...stepLines(plan, false), ...more];
}

function issueLines(terminal: Terminal, { section, issues, error, unsupported }: SectionPlan): readonly string[] {
  const lines = issues.map(({ code, message }) => terminal.style("yellow", `${section}: ${code}: ${message}`));
  if (error !== undefined) lines.push(terminal.style("red", `${section}: ${error.code}: ${error.message}`));
  if (unsupported !== undefined) lines.push(terminal.style("dim", `${section}: ${unsupported}`));
  return lines;
}
