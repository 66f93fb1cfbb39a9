import { isSameLimits } from "../../../host/process/cgroup-texts.ts";
import type { ResourceLimits } from "../../../protocol/sections/exec/config.ts";
import type { Issue, Step } from "../../reconcile/section.ts";

/** The limits of all containers together as the machine has them. */
export interface CapsSeen {
  /** Undefined while there is no group for them. */
  readonly actual: ResourceLimits | undefined;
  /** What was set last since the agent began, what the machine made of it, and what of it cannot be had here. */
  readonly last:
    | {
        readonly wanted: ResourceLimits;
        readonly actual: ResourceLimits | undefined;
        readonly warnings: readonly string[];
        /** Why the machine refused them, where it may take them another time. */
        readonly failure?: string;
      }
    | undefined;
}

export type CapsStep = Step & { readonly kind: "limit containers"; readonly limits: ResourceLimits };

/** The step from the limits that all containers have together to those they are to have. Pure; none when they are the same. */
export function planCaps(limits: ResourceLimits, caps: CapsSeen | undefined): readonly CapsStep[] {
  if (caps === undefined) return [];
  const { actual = {}, last } = caps;
  if (isSameLimits(actual, limits)) return [];
  // What this machine cannot limit is not tried again until something else is wanted, or changed.
  const isTried = last !== undefined && isSameLimits(last.wanted, limits);
  if (isTried && isSameLimits(last.actual ?? {}, actual)) return [];
  return [{ kind: "limit containers", subject: "limits", guarded: false, limits }];
}

/** Why the limits are not in force; the containers run all the same. Pure. */
export function capsWaits(limits: ResourceLimits, caps: CapsSeen | undefined): readonly Issue[] {
  const last = caps?.last;
  if (last?.failure === undefined || !isSameLimits(last.wanted, limits)) return [];
  return [{ path: "exec.limits", code: "limits-refused", message: `exec.limits: ${last.failure}`.slice(0, 1024) }];
}

/** What of the limits cannot be had on this machine; the containers run without. Pure. */
export function capsNotices(limits: ResourceLimits, caps: CapsSeen | undefined): readonly Issue[] {
  const last = caps?.last;
  if (last === undefined || !isSameLimits(last.wanted, limits)) return [];
  return last.warnings.map((warning) => ({
    path: "exec.limits",
    code: "limits-unsupported",
    message: `exec.limits: ${warning}`.slice(0, 1024),
  }));
}
