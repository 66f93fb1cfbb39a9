import { createPublicKey } from "node:crypto";
import { formatCount, formatSpan } from "../../lib/text/durations.ts";
import { ReleaseKeys, UPGRADE_PATHS, UpgradeStanding } from "../../protocol/documents/release.ts";
import { fail, pass, skip, warn, type Check } from "./result.ts";
import type { CheckFamily } from "./tools.ts";

/** Maximum duration of an upgrade, in milliseconds. */
const MAX_UPGRADE_MS = 3_600_000;

export const upgradeChecks: CheckFamily = {
  name: "upgrade",
  async run({ reader, clock }) {
    const names = reader.list(UPGRADE_PATHS.versions) ?? [];
    const text = reader.read(`${UPGRADE_PATHS.versions}/upgrade.json`);
    const keys = reader.read(UPGRADE_PATHS.localKeys) ?? reader.read(`${UPGRADE_PATHS.package}/release-keys.json`);
    return [standingCheck(text, clock.now()), ...versionChecks(names), releaseKeysCheck(keys)];
  },
};

/** Judges the last upgrade. Pure. */
export function standingCheck(text: string | undefined, now: number): Check {
  if (text === undefined) return skip("standing", "none", "no upgrade was made here");
  const parsed = UpgradeStanding.safeParse(jsonOf(text));
  if (!parsed.success)
    return warn(
      "standing",
      "damaged-file",
      "the state of the last upgrade cannot be read",
      "the next upgrade writes it anew",
    );
  const { state, step, from, to, begunAt, reason, starts } = parsed.data;
  const fromTo = `${from} to ${to ?? "a version not known yet"}`;
  const age = now - begunAt * 1000;
  switch (state) {
    case "STAGED":
      return pass("standing", `${to ?? "a version"} is staged, and ${from} runs`);
    case "COMPLETED":
      return pass("standing", `${fromTo} is done`);
    case "FAILED":
      return warn(
        "standing",
        reason?.code ?? "upgrade-failed",
        `${fromTo} failed${starts === undefined ? "" : ` after ${starts} starts`}: ${reason?.message ?? "no reason is known"}`,
        "the version before runs; 'journalctl -u holdfast-upgrade' says more, and that version is not tried again unless forced",
      );
    case "IN_PROGRESS":
      return age < MAX_UPGRADE_MS
        ? pass("standing", `${fromTo}: ${step ?? "begun"}, ${formatSpan(age)}`)
        : warn(
            "standing",
            "upgrade-hangs",
            `${fromTo}: ${step ?? "begun"}, ${formatSpan(age)}`,
            "'systemctl start holdfast-upgrade' goes on with it",
          );
  }
}

/** Judges versions on trial or failed, by their marker files. Pure. */
export function versionChecks(names: readonly string[]): readonly Check[] {
  const marked = (mark: string): readonly string[] =>
    names.filter((name) => name.endsWith(mark)).map((name) => name.slice(0, -mark.length));
  return [
    ...marked(".trial").map((version) => pass(`version.${version}`, trialText(names.includes(`${version}.aside`)))),
    ...marked(".failed").map((version) =>
      warn(
        `version.${version}`,
        "version-failed",
        "it failed, and is not started again",
        "upgrade to a later one; the next that proves itself clears it away",
      ),
    ),
  ];
}

function trialText(isAside: boolean): string {
  return isAside
    ? "it is on trial, and laid aside for a moment: the old version is tried in its place"
    : "it is on trial: its guard judges it";
}

/** Judges the keys that verify releases. Pure. */
export function releaseKeysCheck(text: string | undefined): Check {
  if (text === undefined) return skip("release-keys", "not-installed", "this is no package's installation");
  const parsed = ReleaseKeys.safeParse(jsonOf(text));
  const isUsable = parsed.success && parsed.data.keys.every((key) => canBeUsed(key));
  if (isUsable) return pass("release-keys", `${formatCount(parsed.data.keys.length, "key")} may sign releases`);
  return fail(
    "release-keys",
    "bad-keys",
    "the keys of releases cannot be read: no upgrade is accepted",
    "correct /etc/holdfast/release-keys.json, or remove it to use the package's",
  );
}

function canBeUsed(key: { readonly kty: string; readonly crv: string; readonly x: string }): boolean {
  try {
    createPublicKey({ key: { kty: key.kty, crv: key.crv, x: key.x }, format: "jwk" });
    return true;
  } catch {
    return false;
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
