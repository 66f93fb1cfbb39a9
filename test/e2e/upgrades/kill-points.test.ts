import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { EXIT } from "../../../src/upgrade/main.ts";
import { aControlPlane } from "../../support/control-plane/answering-control-plane.ts";
import { inLanes } from "../../support/network/lanes.ts";
import { isDue, sampleOf } from "../../support/sample.ts";
import { describePoint, pointsOf, recordCalls, runKilled, type Launch } from "../../support/kills/strace.ts";
import { NEW, OLD, UpgradeStage, type Behaviour } from "../../support/upgrades/upgrade-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const LIMIT_MS = 3_600_000;
/** Each run mostly waits: for its tracer, for the judge, for starts. */
const LANES = 3;

interface Upgrading extends Launch {
  readonly stage: UpgradeStage;
}

/** A good version has all the time that a busy machine needs. */
const windowOf = (behaviour: Behaviour): number => (behaviour === "good" ? 60_000 : 2500);

async function upgradingTo(behaviour: Behaviour, controlPlane: string): Promise<Upgrading> {
  const stage = new UpgradeStage(controlPlane);
  stage.boot();
  await waitFor("the old version answers", async () => (await stage.answers()) === OLD);
  stage.request(NEW, behaviour);
  return {
    stage,
    stateDir: stage.versions,
    args: stage.program({ windowMs: windowOf(behaviour) }, { isTraced: true }),
  };
}

/**
 * Calls whose number depends on how often the verifier polls, since reading opens too and each wakes a thread. What they
 * change is cut off all the same, before and after: at the one before them, and as they are synced.
 */
const UNCOUNTABLE: ReadonlySet<string> = new Set(["write", "openat", "open"]);

/** Expects a consistent end: the reported outcome, the running version and the files agree. */
async function checkOver({ stage }: Upgrading, behaviour: Behaviour): Promise<void> {
  const standing = stage.standing();
  const runs = await waitFor("an agent answers", () => stage.answers());
  const names = readdirSync(stage.versions);
  expect(names.filter((name) => /\.(?:trial|aside|tmp)$|^request\.json$/.test(name))).toEqual([]);
  // Once as it is switched to or comes back from the old version's turn, once at the boot after the kill, and once after that turn, of which
  // there is one: what it showed counts for longer than this takes.
  expect(stage.starts(NEW)).toBeLessThanOrEqual(3);
  if (standing === undefined) {
    // Killed before it had made the request its own, which lies there still.
    expect(runs).toBe(OLD);
    return;
  }
  if (standing.state === "COMPLETED") {
    expect([behaviour, runs, standing.to]).toEqual(["good", NEW, NEW]);
    expect(names).toContain(`${NEW}.probation`);
  } else {
    expect([standing.state, runs]).toEqual(["FAILED", OLD]);
    expect(standing.reason).toBeDefined();
    if (behaviour !== "good") expect(names).toContain(`${NEW}.failed`);
  }
}

/** Kills the upgrade's program wherever it changes something, and lets the machine lose its power at the same moment. */
async function killEverywhere(behaviour: Behaviour, size: number): Promise<void> {
  const controlPlane = `ws://127.0.0.1:${(await aControlPlane("greets")).port}`;
  const whole = await upgradingTo(behaviour, controlPlane);
  const calls = await recordCalls(whole, behaviour === "good" ? 0 : EXIT.failed);
  const points = pointsOf(calls, whole).filter(({ name }) => !UNCOUNTABLE.has(name));
  await checkOver(whole, behaviour);
  await whole.stage.halt();
  expect(points.length).toBeGreaterThan(30);
  const ends = { completed: 0, failed: 0 };
  await inLanes(sampleOf(points, size, behaviour), LANES, async (point) => {
    let last: Upgrading | undefined;
    const launch = async (): Promise<Upgrading> => {
      await last?.stage.halt();
      last = await upgradingTo(behaviour, controlPlane);
      return last;
    };
    const killed = await runKilled(launch, point);
    const { stage } = killed;
    try {
      await stage.halt();
      stage.boot();
      // Before anything goes on, something runs that can; what is on trial has its three starts.
      const isOld = async (): Promise<boolean> => (await stage.answers()) === OLD;
      await (behaviour === "exits" ? waitFor("the old one runs", isOld) : waitFor("one runs", () => stage.answers()));
      const { code, output } = await stage.upgrade({ windowMs: windowOf(behaviour) });
      expect([0, 3], output).toContain(code);
      await checkOver(killed, behaviour);
      ends[stage.standing()?.state === "COMPLETED" ? "completed" : "failed"] += 1;
      expect(existsSync(join(stage.run, "upgrade-request.json"))).toBe(false);
      await stage.halt();
    } catch (error) {
      const left = JSON.stringify({ standing: stage.standing(), names: readdirSync(stage.versions) });
      throw new Error(`killed at ${describePoint(point)}: ${left}`, { cause: error });
    }
  });
  // A good version is not lost over it, and a bad one does not get through.
  if (behaviour === "good") expect(ends.failed).toBe(0);
  else expect(ends.completed).toBe(0);
}

test("an upgrade killed anywhere ends with the new version", async () => killEverywhere("good", 3), LIMIT_MS);

test.runIf(isDue("killed upgrades: exits"))(
  "an upgrade to one that exits, killed anywhere, ends with the old",
  async () => killEverywhere("exits", 2),
  LIMIT_MS,
);

test.runIf(isDue("killed upgrades: never reaches"))(
  "so does one to a version without a session, killed while the old one is compared, too",
  async () => killEverywhere("never reaches", 2),
  LIMIT_MS,
);

test.runIf(isDue("killed upgrades: loses"))(
  "and so does one to a version that lacks what worked before",
  async () => killEverywhere("loses", 2),
  LIMIT_MS,
);
