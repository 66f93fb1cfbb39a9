import { HostError, InternalError } from "../../errors.ts";
import type { Issue, Outcome, Prepared, Step, View } from "./section.ts";
import { shown, type Failure } from "./phase.ts";
import type { SectionResult } from "./work.ts";

/** Returns a section's outcome after its last step. Pure. */
export function outcomeOf(view: View, failure: Failure | undefined): Outcome {
  if (failure !== undefined) return { state: "failed", ...failure };
  if (view.steps.length > 0) return { state: "diverged", remaining: view.steps.map(({ step }) => shown(step)) };
  const waits = view.waits[0];
  return waits === undefined ? { state: "converged" } : { state: "pending", reason: waits.message };
}

/** Converts a failed step to an issue of its item. Pure. */
export function issueOf(section: string, { step, error }: Failure): Issue {
  const code = error instanceof HostError || error instanceof InternalError ? error.code : "internal";
  const name = step.name ?? step.subject;
  const path = name === "" ? section : `${section}.${name}`;
  return { path: path.slice(0, 512), code, message: `${step.kind}: ${error.message}`.slice(0, 1024) };
}

/** Returns a step's display name. Pure. */
export function nameOf({ kind, subject, name = subject }: Step): string {
  return `${kind} ${name}`;
}

/** Returns rejected items and notices; nothing for a section that could not be parsed. Pure. */
export function judgedBy(prepared: Prepared | undefined, view?: View): Pick<SectionResult, "rejected" | "notices"> {
  if (prepared === undefined) return {};
  return { rejected: prepared.rejected, notices: [...prepared.notices, ...(view?.notices ?? [])] };
}
