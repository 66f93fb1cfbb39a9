import { expect, test } from "vitest";
import { eventsOf, standingNow, upgradeFacts } from "../../../../src/agent/upgrades/reports.ts";
import type { UpgradeStanding } from "../../../../src/protocol/documents/release.ts";

const [OLDEST, OLD, NEW] = ["0.1.20260101-0000", "0.1.20260202-0000", "0.1.20260303-0000"] as const;
const STAGED: UpgradeStanding = { state: "STAGED", from: OLD, to: NEW, begunAt: 1 };

test("a staged release is in the shadow, without an event", () => {
  const standing = standingNow(STAGED, [], OLD);
  expect(upgradeFacts({ ...(standing && { standing }) })).toEqual({
    "node.upgrade.state": "STAGED",
    "node.upgrade.from": OLD,
    "node.upgrade.version": NEW,
  });
  expect(eventsOf(standing, [])).toEqual({ raises: [], clears: [] });
});

test("a version abandoned while another is staged is a failed upgrade", () => {
  const failed = { code: "crashed", message: "it ended three times" };
  expect(standingNow(STAGED, [{ version: OLD, isBase: false, starts: 3, failed }], OLDEST)).toEqual({
    state: "FAILED",
    from: OLDEST,
    to: OLD,
    begunAt: 1,
    reason: failed,
    starts: 3,
  });
});
