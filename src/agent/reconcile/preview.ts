import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { shorten } from "../../lib/text/shorten.ts";
import { MAX_DETAIL, type SectionPlan, type ShownStep } from "../../protocol/documents/reconcile.ts";
import { withinDeadline } from "./deadline.ts";
import type { PlannedStep } from "./section.ts";
import { codeOf } from "./section-status.ts";
import type { Work } from "./work.ts";

/** Maximum number of steps shown per section. */
const MAX_STEPS = 1000;

/** Returns the steps each section would take. Observes and plans only. */
export async function preview(work: readonly Work[], clock: Clock, signal: AbortSignal): Promise<SectionPlan[]> {
  const plans: SectionPlan[] = [];
  for (const { section, raw } of work) {
    const base = { section: section.name, steps: [], total: 0 };
    try {
      const prepared = section.prepare(raw);
      const { isUnusable, rejected, notices } = prepared;
      if (isUnusable) {
        plans.push({ ...base, issues: [...rejected, ...notices] });
        continue;
      }
      if (prepared.unsupported !== undefined) {
        const { unsupported } = prepared;
        plans.push({ ...base, issues: [], ...(raw === undefined ? {} : { unsupported }) });
        continue;
      }
      const bounds = { clock, ms: section.deadlineMs, what: `${section.name}: observe`, signal };
      const view = await withinDeadline(bounds, (signal) => prepared.observe(signal));
      const steps = view.steps.slice(0, MAX_STEPS).map(shownStep);
      plans.push({
        ...base,
        steps,
        total: view.steps.length,
        issues: [...rejected, ...notices, ...view.notices, ...view.waits],
      });
    } catch (thrown) {
      signal.throwIfAborted();
      const error = toError(thrown);
      plans.push({ ...base, issues: [], error: { code: codeOf(error), message: error.message } });
    }
  }
  return plans;
}

function shownStep({ step, describe }: PlannedStep): ShownStep {
  const { kind, subject, guarded, removes } = step;
  const detail = describe();
  return {
    kind,
    subject,
    guarded,
    ...(removes === true ? { removes } : {}),
    ...(detail === undefined ? {} : { detail: shorten(detail, MAX_DETAIL) }),
  };
}
