import { InputError } from "../../errors.ts";
import { nearest } from "../../lib/text/nearest.ts";
import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { DocumentName } from "../../protocol/documents/claims.ts";
import { RollbackReport } from "../../protocol/documents/reconcile.ts";
import { adminRequest, ask } from "../frame/client.ts";
import { planText } from "./plan.ts";
import type { Call, Verb } from "../frame/verb.ts";
import { COMMON } from "../frame/verb-options.ts";

export const rollbackVerb: Verb = {
  name: "rollback",
  summary: "roll back to the previous document, until the control plane sends a newer one",
  about:
    "The version that was rolled back is not applied again, also after a restart. The node's state, peers and grants are part of " +
    "their document: rolling back the domain document restores revoked grants.",
  arguments: [],
  options: {
    document: { value: "NAME", help: "node (default), cluster or domain", complete: ["node", "cluster", "domain"] },
    plan: { help: "only show the steps" },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "unreachable", "timeout"],
  example: "holdfast rollback --plan",
  timeoutSeconds: 60,
  output: RollbackReport,
  async run(call) {
    const { document, plan } = call.values;
    const body = { document: documentName(document), plan: plan === true };
    const report = await ask(call, adminRequest("/v1/rollback", body), RollbackReport);
    call.terminal.out(call.settings.isJson ? `${safeJson(report)}\n` : rollbackText(call, report));
    return report.plan?.sections.some(({ error }) => error !== undefined) === true ? "failed" : "ok";
  },
};

function documentName(text: unknown): DocumentName {
  const parsed = DocumentName.safeParse(text ?? "node");
  if (parsed.success) return parsed.data;
  const near = nearest(String(text), DocumentName.options);
  const hint = near === undefined ? `one of ${DocumentName.options.join(", ")}` : `did you mean ${near}?`;
  throw new InputError("usage", `'${String(text)}' is no document that can be rolled back: ${hint}`);
}

function rollbackText(call: Call, report: RollbackReport): string {
  const { document, from, to } = plainValue(report);
  if (report.plan === undefined) {
    return `the ${document} document goes back from version ${from} to ${to}, until a newer one comes; holdfast why shows how far it is\n`;
  }
  return `going back from version ${from} to ${to} of the ${document} document would take:\n${planText(call, report.plan)}`;
}
