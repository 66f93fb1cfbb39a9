import type { Reconciler } from "./reconcile/section.ts";

/** Every section that this node carries out, in the order in which they depend on each other. */
export function listSections(): readonly Reconciler[] {
  return [];
}
