import type { Health, HealthItem } from "../protocol/local-answers.ts";
import type { Reason, WhyReport } from "../protocol/reconcile.ts";
import { buildHealth, type HealthInput } from "./status.ts";

/** The answers of `health` and `why` at one moment, made from the same findings. */
export interface Judgement {
  readonly health: Health;
  readonly why: WhyReport;
}

/** The section of a reason that a check of `health` found. */
const HEALTH = "health";

/**
 * Judges a node for `health` and `why` together, so that they never disagree: what a check of the one finds is a reason of the other, and
 * a reason that no check finds degrades the verdict. `since` is when a check without a time of its own was first seen failing.
 */
export function judge(
  input: HealthInput & { readonly now: number },
  reasons: readonly Reason[],
  since: (name: string) => number,
): Judgement {
  const health = buildHealth(input);
  const wrong = reasons.filter(({ notice }) => notice !== true);
  const failing = health.items.filter(isFailing);
  const found = failing.filter((item) => !isNamed(item, wrong)).map((item) => reasonOf(item, input.now, since));
  const [first] = wrong;
  const isUnseen = first !== undefined && failing.length === 0;
  return {
    health: isUnseen
      ? { ...health, verdict: "degraded", items: [...health.items, itemOf(first, wrong.length)] }
      : health,
    why: { schema: 1, reasons: [...reasons, ...found] },
  };
}

function isFailing({ status }: HealthItem): boolean {
  return status === "warn" || status === "fail";
}

/** Whether a reason of its own says already what a check found. */
function isNamed({ name }: HealthItem, wrong: readonly Reason[]): boolean {
  switch (name) {
    case "documents":
      return wrong.length > 0;
    case "control-plane":
      return wrong.some(({ code }) => code === "deleted");
    case "overlay":
      return wrong.some(({ code }) => code === "overlay-down");
    default:
      return wrong.some(({ section, code }) => section === name || code === name);
  }
}

function reasonOf({ name, message, since, fix }: HealthItem, now: number, noticed: (name: string) => number): Reason {
  const text = fix === undefined ? message : `${message}; ${fix}`;
  return {
    section: HEALTH,
    item: name,
    code: "check-failed",
    message: text,
    since: since ?? noticed(name),
    lastAttempt: now,
  };
}

function itemOf({ section, item = section, message, since }: Reason, count: number): HealthItem {
  const more = count === 1 ? "" : `; and ${count - 1} more: see 'holdfast why'`;
  return { name: "config", status: "warn", message: `${item}: ${message}`.slice(0, 2048) + more, since };
}
