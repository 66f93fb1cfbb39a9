import type { Health, HealthItem } from "../../protocol/local/answers.ts";
import type { Reason, WhyReport } from "../../protocol/documents/reconcile.ts";
import { IDENTITY_LOST } from "../../protocol/local/identity-lost.ts";
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
 * a reason that no check finds is an item of its own and degrades the verdict. `since` is when a check without a time of its own was first seen failing.
 */
export function judge(
  input: HealthInput & { readonly now: number },
  reasons: readonly Reason[],
  since: (name: string) => number,
): Judgement {
  const health = buildHealth(input);
  const wrong = reasons.filter(({ notice }) => notice !== true);
  const failing = health.items.filter(isFailing);
  const named = failing.filter((item) => wrong.some((reason) => isAbout(item, reason)));
  const found = failing.filter((item) => !named.includes(item)).map((item) => reasonOf(item, input.now, since));
  const unseen = wrong.filter((reason) => !named.some((item) => item.name !== "documents" && isAbout(item, reason)));
  return {
    health: withReasons(health, unseen),
    why: { schema: 1, reasons: [...reasons, ...found] },
  };
}

/** Adds the reasons that no other check names: to the check of the documents if that fails, else as an item of their own. */
function withReasons(health: Health, [first, ...others]: readonly Reason[]): Health {
  if (first === undefined) return health;
  const item = itemOf(first, others.length + 1);
  const isTheirs = (one: HealthItem): boolean => one.name === "documents" && isFailing(one);
  if (health.items.some(isTheirs)) {
    const items = health.items.map((one) =>
      isTheirs(one) ? { ...one, message: `${one.message}; ${item.message}` } : one,
    );
    return { ...health, items };
  }
  return { ...health, verdict: health.verdict === "ok" ? "degraded" : health.verdict, items: [...health.items, item] };
}

function isFailing({ status }: HealthItem): boolean {
  return status === "warn" || status === "fail";
}

/** Reports whether a reason and a check name the same finding. */
function isAbout({ name }: HealthItem, { section, code }: Reason): boolean {
  switch (name) {
    case "documents":
      return true;
    case "control-plane":
      return code === "deleted" || code === IDENTITY_LOST.code;
    case "overlay":
      return code === "overlay-down";
    default:
      return section === name || code === name;
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
  // The message may begin with the path of its item already.
  const text = message.startsWith(`${item}: `) ? message : `${item}: ${message}`;
  return { name: "config", status: "warn", message: text.slice(0, 2048) + more, since };
}
