import type { InstalledVersion } from "../host/releases/versions.ts";
import type { UpgradeRequest, UpgradeStanding } from "../protocol/documents/release.ts";

/** Everything that says how far an upgrade has come: what lies on disk, and nothing else. */
export interface OnDisk {
  readonly standing: UpgradeStanding | undefined;
  readonly versions: readonly InstalledVersion[];
  /** The request that was taken and not done. */
  readonly request: UpgradeRequest | undefined;
}

export type Next =
  | { readonly do: "rest" }
  | { readonly do: "begin"; readonly request: UpgradeRequest }
  /** A version is on trial, and nothing says since when it is being upgraded to. */
  | { readonly do: "adopt"; readonly version: string }
  | { readonly do: "prepare"; readonly request: UpgradeRequest; readonly standing: UpgradeStanding }
  | { readonly do: "switch"; readonly version: string; readonly standing: UpgradeStanding }
  | { readonly do: "judge"; readonly version: string; readonly standing: UpgradeStanding }
  | { readonly do: "complete"; readonly version: string; readonly standing: UpgradeStanding }
  | { readonly do: "go-back"; readonly version: string; readonly standing: UpgradeStanding }
  /** It was cut short where nothing says how to go on. */
  | { readonly do: "abandon"; readonly standing: UpgradeStanding };

/** What comes next, whoever was killed where. Pure. */
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
  // Without its mark it would never be judged, and without its files it cannot be.
  if (found.trial === undefined || !found.isWhole) return { do: "go-back", version: to, standing };
  return { do: "judge", version: to, standing };
}

/** What comes once the version is known and tested. */
const SWITCHED: ReadonlySet<string> = new Set(["switching", "judging", "comparing", "going-back"]);
