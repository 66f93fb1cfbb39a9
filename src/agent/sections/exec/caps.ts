import { isSameLimits } from "../../../host/process/cgroup-texts.ts";
import type { ResourceLimits } from "../../../protocol/sections/exec/config.ts";
import type { Issue, Step } from "../../reconcile/section.ts";

/** Observed limits of all containers together. */
export interface CapsSeen {
  /** Undefined if the control group does not exist. */
  readonly actual: ResourceLimits | undefined;
  /** Limits last set since the agent started, the result, and the unsupported ones. */
  readonly last:
    | {
        readonly wanted: ResourceLimits;
        readonly actual: ResourceLimits | undefined;
        readonly warnings: readonly string[];
        /** Reason why the machine refused the limits; a later attempt may succeed. */
        readonly failure?: string;
      }
    | undefined;
}

export type CapsStep = Step & { readonly kind: "limit containers"; readonly limits: ResourceLimits };

/** Plans the step that sets the common limits; empty if they are equal. Pure. */
export function planCaps(limits: ResourceLimits, caps: CapsSeen | undefined): readonly CapsStep[] {
  if (caps === undefined) return [];
  const { actual = {}, last } = caps;
  if (isSameLimits(actual, limits)) return [];
  // Unsupported limits are retried only after the desired limits or the machine changed.
  const isTried = last !== undefined && isSameLimits(last.wanted, limits);
  if (isTried && isSameLimits(last.actual ?? {}, actual)) return [];
  return [{ kind: "limit containers", subject: "limits", guarded: false, limits }];
}

/** Returns why the limits are not applied; the containers run without them. Pure. */
export function capsWaits(limits: ResourceLimits, caps: CapsSeen | undefined): readonly Issue[] {
  const last = caps?.last;
  if (last?.failure === undefined || !isSameLimits(last.wanted, limits)) return [];
  return [{ path: "exec.limits", code: "limits-refused", message: `exec.limits: ${last.failure}`.slice(0, 1024) }];
}

/** Lists limits that this machine does not support; the containers run without them. Pure. */
export function capsNotices(limits: ResourceLimits, caps: CapsSeen | undefined): readonly Issue[] {
  const last = caps?.last;
  if (last === undefined || !isSameLimits(last.wanted, limits)) return [];
  return last.warnings.map((warning) => ({
    path: "exec.limits",
    code: "limits-unsupported",
    message: `exec.limits: ${warning}`.slice(0, 1024),
  }));
}
