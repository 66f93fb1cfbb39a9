import type { Restorable } from "../checkpoint/checkpoint.ts";

/** Whoever can take back a step of a section without the agent, by the section's name. */
export function listRestorables(): readonly Restorable[] {
  return [];
}
