import type { InstalledVersion } from "../../host/releases/versions.ts";
import type { UpgradeStanding, UpgradeStatus } from "../../protocol/documents/release.ts";
import type { Reason } from "../../protocol/documents/reconcile.ts";
import type { ShadowMap, ShadowValue } from "../../protocol/values/shadow.ts";
import { UPGRADE_EVENT, type NodeAudit } from "../../protocol/documents/telemetry.ts";
import type { Clearing, EventInput, OpenEvent } from "../telemetry/events.ts";
import { defined } from "../../lib/defined.ts";

const ABOUT = { eventType: UPGRADE_EVENT, object: "upgrade" } as const;
const ABOUT_OS = { eventType: UPGRADE_EVENT, object: "os-update" } as const;
const MAX_TEXT = 1024;

/**
 * Returns the state of an upgrade whose version failed after it was confirmed, which the launcher reverts by itself. `own` is the running
 * version. The version that failed may be the one that staged the release. Pure.
 */
export function standingNow(
  standing: UpgradeStanding | undefined,
  versions: readonly Pick<InstalledVersion, "version" | "isBase" | "starts" | "failed">[],
  own: string,
): UpgradeStanding | undefined {
  if (standing?.state !== "COMPLETED" && standing?.state !== "STAGED") return standing;
  const fromTo = standing.state === "COMPLETED" ? standing : { from: own, to: standing.from };
  const found = versions.find(({ version, isBase }) => version === fromTo.to && !isBase);
  if (found?.failed === undefined) return standing;
  const { code, message } = found.failed;
  return { ...standing, ...fromTo, state: "FAILED", reason: { code, message }, starts: found.starts };
}

/** Returns the shadow's facts of upgrades. Pure. */
export function upgradeFacts({ standing, trial }: UpgradeStatus): ShadowMap {
  const facts: Record<string, ShadowValue | undefined> = {
    "node.upgrade.state": standing?.state,
    "node.upgrade.completed.tstamp": standing?.completedAt,
    "node.upgrade.from": standing?.from,
    "node.upgrade.version": standing?.to,
    "node.upgrade.step": standing?.state === "IN_PROGRESS" ? standing.step : undefined,
    "node.upgrade.reason": standing?.state === "FAILED" ? reasonText(standing) : undefined,
    "node.upgrade.os.reason":
      standing?.osReason === undefined ? undefined : `${standing.osReason.code}: ${standing.osReason.message}`,
    "node.upgrade.trial": trial === undefined ? undefined : "true",
  };
  const known: ShadowMap = {};
  for (const [key, value] of Object.entries(facts)) {
    if (value !== undefined) known[key] = value;
  }
  return known;
}

/** Returns the event that the operating system's packages were not updated, once per upgrade; only a success clears it. Pure. */
export function osEventsOf(
  standing: UpgradeStanding | undefined,
  open: readonly OpenEvent[],
): { readonly raises: readonly EventInput[]; readonly clears: readonly Clearing[] } {
  const reported = open.find(({ eventType, object }) => eventType === ABOUT_OS.eventType && object === ABOUT_OS.object);
  if (standing?.osReason === undefined) {
    const isUpdated = standing?.osUpdatedAt !== undefined && reported !== undefined;
    return { raises: [], clears: isUpdated ? [{ ...ABOUT_OS, message: "The operating system was updated" }] : [] };
  }
  const { osReason, begunAt } = standing;
  if (reported?.details["begunAt"] === begunAt) return { raises: [], clears: [] };
  const message = `The operating system was not updated: ${osReason.code}: ${osReason.message}`.slice(0, MAX_TEXT);
  return {
    raises: [{ ...ABOUT_OS, level: "WARNING", message, details: { begunAt, code: osReason.code } }],
    clears: reported === undefined ? [] : [{ ...ABOUT_OS, message: "Another update has been tried since" }],
  };
}

/**
 * Returns the event that the last upgrade failed, unless it is reported. A later failure is reported again; only a success clears it. Pure.
 */
export function eventsOf(
  standing: UpgradeStanding | undefined,
  open: readonly OpenEvent[],
): { readonly raises: readonly EventInput[]; readonly clears: readonly Clearing[] } {
  const reported = open.find(({ eventType, object }) => eventType === ABOUT.eventType && object === ABOUT.object);
  if (standing?.state === "COMPLETED") {
    const clearing = { ...ABOUT, message: `Upgraded from ${standing.from} to ${standing.to ?? "a newer version"}` };
    return { raises: [], clears: reported === undefined ? [] : [clearing] };
  }
  const { completedAt: at = 0 } = standing ?? {};
  if (standing?.state !== "FAILED" || reported?.details["completedAt"] === at) return { raises: [], clears: [] };
  const { from, to, reason, starts } = standing;
  const details = {
    completedAt: at,
    from,
    ...defined({ to }),
    ...(reason === undefined ? {} : { code: reason.code }),
    ...defined({ starts }),
  };
  const message = `The upgrade from ${from}${to === undefined ? "" : ` to ${to}`} failed: ${reasonText(standing)}`;
  const raised: EventInput = { ...ABOUT, level: "ERROR", message: message.slice(0, MAX_TEXT), details };
  return {
    raises: [raised],
    clears: reported === undefined ? [] : [{ ...ABOUT, message: "Another upgrade has been tried since" }],
  };
}

/** Returns the audit line of an unreported update of the operating system. Pure. */
export function osAuditOf(standing: UpgradeStanding | undefined, reported: number | undefined): NodeAudit | undefined {
  const at = standing?.osUpdatedAt;
  if (at === undefined || (reported !== undefined && reported >= at)) return undefined;
  const value = `OS Security Update applied on ${new Date(at * 1000).toUTCString()}`;
  return { category: "OS Update", value, timestamp: at };
}

/** Returns issues and notices of upgrades. Pure. */
export function upgradeReasons({ standing, trial }: UpgradeStatus): Reason[] {
  const reasons: Reason[] = [];
  if (standing?.state === "FAILED") {
    const since = (standing.completedAt ?? standing.begunAt) * 1000;
    const to = standing.to === undefined ? "" : ` to ${standing.to}`;
    const message = `the upgrade${to} failed, and ${standing.from} continues: ${reasonText(standing)}`;
    reasons.push({ section: "upgrade", code: "upgrade-failed", message, since, lastAttempt: since });
  }
  if (standing?.osReason !== undefined) {
    const since = standing.begunAt * 1000;
    const { code, message: why } = standing.osReason;
    const message = `the packages of the operating system were not updated: ${code}: ${why}`.slice(0, MAX_TEXT);
    reasons.push({ section: "upgrade", code: "os-update-failed", message, since, lastAttempt: since });
  }
  if (standing?.state === "IN_PROGRESS") {
    const since = standing.begunAt * 1000;
    const to = standing.to === undefined ? "" : ` to ${standing.to}`;
    const message = `an upgrade from ${standing.from}${to} is in progress${stepText(standing)}`;
    reasons.push({ section: "upgrade", code: "upgrading", message, since, lastAttempt: since, notice: true });
  }
  if (trial !== undefined) {
    const since = (trial.since ?? standing?.begunAt ?? 0) * 1000;
    reasons.push({
      section: "version",
      code: "on-trial",
      message: trialText(trial),
      since,
      lastAttempt: since,
      notice: true,
    });
  }
  return reasons;
}

/** Returns code and message of a failure. */
export function reasonText({ reason }: UpgradeStanding): string {
  return reason === undefined ? "unknown: no reason was recorded" : `${reason.code}: ${reason.message}`;
}

function stepText({ step }: UpgradeStanding): string {
  return step === undefined ? "" : `: ${step}`;
}

function trialText({ from }: NonNullable<UpgradeStatus["trial"]>): string {
  return `this version is not confirmed yet${from === undefined ? "" : `; otherwise ${from} is restored`}`;
}
