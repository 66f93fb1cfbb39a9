import type { InstalledVersion } from "../host/releases/versions.ts";
import type { UpgradeRequest, UpgradeStanding } from "../protocol/documents/release.ts";

/** The complete state of an upgrade on disk. */
export interface OnDisk {
  readonly standing: UpgradeStanding | undefined;
  readonly versions: readonly InstalledVersion[];
  /** The accepted request that is not finished. */
  readonly request: UpgradeRequest | undefined;
}

export type Next =
  | { readonly do: "rest" }
  | { readonly do: "begin"; readonly request: UpgradeRequest }
  /** A version is on trial without a record of its upgrade. */
  | { readonly do: "adopt"; readonly version: string }
  | { readonly do: "prepare"; readonly request: UpgradeRequest; readonly standing: UpgradeStanding }
  | { readonly do: "switch"; readonly version: string; readonly standing: UpgradeStanding }
  | { readonly do: "judge"; readonly version: string; readonly standing: UpgradeStanding }
  | { readonly do: "complete"; readonly version: string; readonly standing: UpgradeStanding }
  | { readonly do: "go-back"; readonly version: string; readonly standing: UpgradeStanding }
  /** The upgrade was interrupted at a point from which it cannot continue. */
  | { readonly do: "abandon"; readonly standing: UpgradeStanding };

/** Decides the next step of an upgrade, regardless of interruptions. Pure. */
export function decide({ standing, versions, request }: OnDisk): Next {
  if (standing?.state !== "IN_PROGRESS") {
    const onTrial = versions.find(
      ({ trial, failed, isWhole }) => trial !== undefined && failed === undefined && isWhole,
    );
    if (onTrial !== undefined) return { do: "adopt", version: onTrial.version };
    return request === undefined ? { do: "rest" } : { do: "begin", request };
  }
  const { step, to } = standing;
  if (to === undefined || step === undefined || !SWITCHED.has(step)) {
    return request === undefined ? { do: "abandon", standing } : { do: "prepare", request, standing };
  }
  if (step === "switching") return { do: "switch", version: to, standing };
  const found = versions.find(({ version, isBase }) => version === to && !isBase);
  if (step === "going-back" || found === undefined || found.failed !== undefined) {
    return { do: "go-back", version: to, standing };
  }
  if (found.trial === undefined && found.probationUntil !== undefined) return { do: "complete", version: to, standing };
  // Without its mark the version would never be judged; without its files it cannot be.
  if (found.trial === undefined || !found.isWhole) return { do: "go-back", version: to, standing };
  return { do: "judge", version: to, standing };
}

/** Steps after the version is known and tested. */
const SWITCHED: ReadonlySet<string> = new Set(["switching", "judging", "comparing", "going-back"]);
