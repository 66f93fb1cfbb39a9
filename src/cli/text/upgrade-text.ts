import type { UpgradeStanding } from "../../protocol/documents/release.ts";

/** Formats the state of an upgrade as one line. */
export function standingText({ state, step, from, to, reason }: UpgradeStanding): string {
  const fromTo = to === undefined ? `from ${from}` : `from ${from} to ${to}`;
  switch (state) {
    case "IN_PROGRESS":
      return `upgrade ${fromTo}: ${step ?? "in progress"}`;
    case "STAGED":
      return `${to ?? "a release"} is staged: 'holdfast upgrade' switches to it`;
    case "COMPLETED":
      return `upgraded ${fromTo}`;
    case "FAILED":
      return `the upgrade ${fromTo} failed${reason === undefined ? "" : `: ${reason.code}: ${reason.message}`}`;
  }
}
