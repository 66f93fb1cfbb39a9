import { expect, test } from "vitest";
import type { InstalledVersion } from "../../../src/host/releases/versions.ts";
import type { UpgradeRequest, UpgradeStanding } from "../../../src/protocol/documents/release.ts";
import { decide } from "../../../src/upgrade/decide.ts";

const [OLD, NEW] = ["0.1.20260101-0000", "0.1.20260202-0000"] as const;
const request: UpgradeRequest = { from: "/m.jws", by: "operator", skipUnattended: true, isForced: false };
const trial = { from: OLD, since: 1, bootId: "b", before: {} };

const base: InstalledVersion = {
  version: OLD,
  path: "/base",
  isBase: true,
  isWhole: true,
  trial: undefined,
  probationUntil: undefined,
  isAside: false,
  starts: 0,
  failed: undefined,
};
const placed = (more: Partial<InstalledVersion> = {}): InstalledVersion => ({
  ...base,
  version: NEW,
  path: `/v/${NEW}`,
  isBase: false,
  ...more,
});
const failed = { code: "given-up", message: "why" };
const at = (step: UpgradeStanding["step"], to: string | undefined = NEW): UpgradeStanding => ({
  state: "IN_PROGRESS",
  from: OLD,
  begunAt: 1,
  ...(step === undefined ? {} : { step }),
  ...(to === undefined ? {} : { to }),
});
const over = (state: "COMPLETED" | "FAILED"): UpgradeStanding => ({
  state,
  from: OLD,
  to: NEW,
  begunAt: 1,
  completedAt: 2,
});

const table: readonly (readonly [string, UpgradeStanding | undefined, InstalledVersion[], boolean, string])[] = [
  ["nothing ever happened", undefined, [], false, "rest"],
  ["something was asked for", undefined, [], true, "begin"],
  ["the last one went well", over("COMPLETED"), [placed({ probationUntil: 9 })], false, "rest"],
  ["the last one failed", over("FAILED"), [placed({ failed })], false, "rest"],
  ["the last one failed, and its marks are still there", over("FAILED"), [placed({ trial, failed })], false, "rest"],
  ["and the next is asked for", over("FAILED"), [placed({ failed })], true, "begin"],
  ["a trial of which nothing is known", undefined, [placed({ trial })], false, "adopt"],
  ["the same with a mark that cannot be read", undefined, [placed({ trial: "damaged" })], false, "adopt"],
  ["the same where an older upgrade is over", over("COMPLETED"), [placed({ trial })], true, "adopt"],
  ["a trial without files", undefined, [placed({ trial, isWhole: false })], false, "rest"],
  ["fetching", at("fetching", undefined), [], true, "prepare"],
  ["fetching what is known", at("fetching"), [], true, "prepare"],
  ["verifying", at("verifying"), [], true, "prepare"],
  ["unpacking", at("unpacking"), [], true, "prepare"],
  ["testing", at("testing"), [], true, "prepare"],
  ["while the old one is tried", at("comparing"), [placed({ trial })], false, "judge"],
  [
    "testing what failed before and is insisted on",
    at("testing"),
    [placed({ failed, isWhole: false })],
    true,
    "prepare",
  ],
  ["no step", at(undefined), [], true, "prepare"],
  ["fetching, and nobody knows what", at("fetching"), [], false, "abandon"],
  ["switching before the mark", at("switching"), [], true, "switch"],
  ["switching after the mark", at("switching"), [placed({ trial, isWhole: false })], true, "switch"],
  ["switching after the rename", at("switching"), [placed({ trial })], true, "switch"],
  ["switching, given up meanwhile", at("switching"), [placed({ trial, failed })], true, "switch"],
  ["judging", at("judging"), [placed({ trial })], false, "judge"],
  ["judging with a mark that cannot be read", at("judging"), [placed({ trial: "damaged" })], false, "judge"],
  ["judging, and the request is still there", at("judging"), [placed({ trial })], true, "judge"],
  ["judging, given up by the launcher", at("judging"), [placed({ trial, failed })], false, "go-back"],
  ["judging, and its mark became the failure", at("judging"), [placed({ failed })], false, "go-back"],
  ["judging, proven", at("judging"), [placed({ probationUntil: 9 })], false, "complete"],
  ["judging, both marks there", at("judging"), [placed({ probationUntil: 9, trial })], false, "judge"],
  ["judging, given up on probation", at("judging"), [placed({ probationUntil: 9, failed })], false, "go-back"],
  ["judging, and no mark is left", at("judging"), [placed()], false, "go-back"],
  ["judging, and it is not there", at("judging"), [], false, "go-back"],
  ["judging, and it is in pieces", at("judging"), [placed({ trial, isWhole: false })], false, "go-back"],
  ["going back before the mark", at("going-back"), [placed({ trial })], false, "go-back"],
  ["going back after the mark", at("going-back"), [placed({ trial, failed })], false, "go-back"],
  ["going back, and it is gone", at("going-back"), [], false, "go-back"],
];

test.each(table)("%s", (_what, standing, versions, isAsked, next) => {
  const found = decide({ standing, versions: [...versions, base], request: isAsked ? request : undefined });
  expect(found.do).toBe(next);
  if ("version" in found) expect(found.version).toBe(NEW);
});

test("never upgrades to the package's own version", () => {
  const own = { ...base, version: NEW, trial };
  expect(decide({ standing: at("judging"), versions: [own], request: undefined }).do).toBe("go-back");
});
