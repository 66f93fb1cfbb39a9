import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decide, type Effect, type Event } from "../../../../../src/agent/containers/supervision/decide.ts";
import {
  beginning,
  isBusy,
  standsAt,
  wakeAt,
  type Found,
  type Goal,
  type Job,
  type Standing,
} from "../../../../../src/agent/containers/model/standing.ts";
import { runs } from "../../../../support/sample.ts";

type Kept = Extract<Goal, { is: "kept" }>;

const service = (change: Partial<Kept> = {}): Kept => ({
  is: "kept",
  hash: "a",
  execType: "service",
  enabled: true,
  engineRestarts: false,
  heldUntil: undefined,
  obstacle: undefined,
  ...change,
});
const running = (hash = "a", id = "1"): Found => ({ id, hash, is: "running" });
const stopped = (hash = "a", id = "1"): Found => ({ id, hash, is: "stopped" });

/** Events one after the other, each at its time. */
function run(from: Standing, ...events: readonly (readonly [Event, number])[]) {
  let standing = from;
  const effects: Effect[] = [];
  for (const [event, now] of events) {
    const [next, more] = decide(standing, event, now);
    standing = next;
    effects.push(...more);
  }
  return { standing, effects };
}
const begun = (effects: readonly Effect[]): readonly Job[] =>
  effects.flatMap((one) => (one.do === "begin" ? [one.job] : []));
const failed = (number: number, found?: Found): Event => ({
  is: "ended",
  number,
  result: { is: "failed", reason: "no such image", isEngine: false },
  found,
});
const done = (number: number, found?: Found): Event => ({ is: "ended", number, result: { is: "done" }, found });

describe("a service", () => {
  test("that runs as wanted is left alone", () => {
    const { standing, effects } = run(beginning(running(), undefined), [{ is: "wanted", goal: service() }, 0]);
    expect(effects).toEqual([]);
    expect(standsAt(standing, 0)).toEqual({ state: "running" });
  });

  test("that nobody has defined yet is left alone in any state", () => {
    const { effects } = run(
      beginning(running(), undefined),
      [{ is: "found", found: running() }, 0],
      [{ is: "tick" }, 1],
    );
    expect(effects).toEqual([]);
  });

  test("is retried with exponential backoff after failed starts, at once when its definition changes, and never when disabled", () => {
    const first = run(beginning(undefined, undefined), [{ is: "wanted", goal: service() }, 0], [failed(1), 0]);
    expect(standsAt(first.standing, 0)).toEqual({ state: "backoff", reason: "no such image" });
    expect(wakeAt(first.standing, 0)).toBe(5000);
    const second = run(first.standing, [{ is: "tick" }, 5000], [failed(2), 5000]);
    expect(wakeAt(second.standing, 5000)).toBe(15_000);
    let [late, now] = [second.standing, 15_000];
    for (let number = 3; number <= 9; number += 1) {
      late = run(late, [{ is: "tick" }, now], [failed(number), now]).standing;
      now = wakeAt(late, now) ?? 0;
    }
    expect(now).toBe(15_000 + 20_000 + 40_000 + 80_000 + 160_000 + 320_000 + 600_000 + 600_000);
    expect(begun(run(second.standing, [{ is: "wanted", goal: service({ hash: "b" }) }, 6000]).effects)).toHaveLength(1);
    const off = run(
      second.standing,
      [{ is: "wanted", goal: service({ enabled: false }) }, 6000],
      [{ is: "tick" }, 15_000],
    );
    expect(off.effects).toEqual([]);
    expect(standsAt(off.standing, 15_000)).toEqual({ state: "idle" });
  });

  test("keeps running while the image of its successor is unavailable", () => {
    const { standing } = run(
      beginning(running("old"), undefined),
      [{ is: "wanted", goal: service() }, 0],
      [failed(1, running("old")), 10],
    );
    expect(standsAt(standing, 10)).toEqual({ state: "running", reason: "no such image" });
  });

  test("has its pull cancelled when disabled, and its start not by a mere change", () => {
    const pulling = run(beginning(undefined, undefined), [{ is: "wanted", goal: service() }, 0]);
    expect(run(pulling.standing, [{ is: "wanted", goal: service({ enabled: false }) }, 1]).effects).toEqual([
      { do: "cancel", number: 1 },
    ]);
    const creating = run(pulling.standing, [{ is: "phase", number: 1, phase: "creating" }, 1]);
    expect(run(creating.standing, [{ is: "wanted", goal: service({ hash: "b" }) }, 2]).effects).toEqual([]);
    expect(run(creating.standing, [{ is: "asked", to: "stop" }, 2]).effects).toContainEqual({
      do: "cancel",
      number: 1,
    });
  });

  test("that exits starts again without a pull, sooner than after a failed start", () => {
    const up = run(beginning(undefined, undefined), [{ is: "wanted", goal: service() }, 0], [done(1, running()), 0]);
    const ended = run(up.standing, [{ is: "exited", found: stopped(), code: 3 }, 20_000]);
    expect(standsAt(ended.standing, 20_000)).toEqual({ state: "backoff", reason: "it ended with exit code 3" });
    expect(wakeAt(ended.standing, 20_000)).toBe(20_100);
    const [again] = begun(run(ended.standing, [{ is: "tick" }, 20_100]).effects);
    expect(again).toMatchObject({ kind: "start", isCrash: true });
  });

  test.each([
    [9999, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000]],
    [10_000, [100, 100, 100]],
  ])(
    "that exits %d ms after each start waits with exponential backoff unless it ran for ten seconds",
    (ranMs, expected) => {
      let [{ standing, effects }, now] = [
        run(beginning(undefined, undefined), [{ is: "wanted", goal: service() }, 0]),
        0,
      ];
      const waits = expected.map(() => {
        const number = begun(effects)[0]?.number ?? 0;
        now += ranMs;
        const up = run(standing, [done(number, running()), now - ranMs]).standing;
        const ended = run(up, [{ is: "exited", found: stopped(), code: 1 }, now]).standing;
        const at = wakeAt(ended, now) ?? 0;
        const wait = at - now;
        now = at;
        ({ standing, effects } = run(ended, [{ is: "tick" }, now]));
        return wait;
      });
      expect(waits).toEqual(expected);
    },
  );

  test("that exits before the first poll waits as one that exits", () => {
    const { standing, effects } = run(
      beginning(undefined, undefined),
      [{ is: "wanted", goal: service() }, 0],
      [done(1, { ...stopped(), exitCode: 1 }), 5],
    );
    expect(begun(effects)).toHaveLength(1);
    expect(standing).toMatchObject({ exits: 1, lastExitCode: 1, retry: { at: 105, after: "crash" } });
  });

  test("is restarted by the engine if its policy says so, and stopped there when disabled meanwhile", () => {
    const goal = service({ engineRestarts: true });
    const crashed = run(
      beginning(running(), undefined),
      [{ is: "wanted", goal }, 0],
      [{ is: "exited", found: stopped(), code: 1 }, 50],
      [{ is: "tick" }, 1000],
    );
    expect(crashed.effects).toEqual([]);
    expect(crashed.standing.exits).toBe(1);
    const off = run(crashed.standing, [{ is: "wanted", goal: { ...goal, enabled: false } }, 1000]);
    expect(begun(off.effects)).toMatchObject([{ kind: "stop" }]);
    const back = run(crashed.standing, [{ is: "found", found: running() }, 1000]);
    expect(standsAt(back.standing, 1000)).toEqual({ state: "running" });
  });

  test("that the engine does not restart, as after docker kill, is started five seconds later", () => {
    const goal = service({ engineRestarts: true });
    const killed = run(
      beginning(running(), undefined),
      [{ is: "wanted", goal }, 0],
      [{ is: "exited", found: stopped(), code: 137 }, 60_000],
    );
    expect(standsAt(killed.standing, 60_000)).toEqual({
      state: "backoff",
      reason: "it ended with exit code 137; the container engine starts it again",
    });
    const requested = run(killed.standing, [{ is: "tick" }, 65_100]);
    expect(begun(requested.effects)).toMatchObject([{ kind: "tidy" }]);
    const again = run(requested.standing, [done(begun(requested.effects)[0]?.number ?? 0, stopped()), 65_200]);
    expect(begun(again.effects)).toMatchObject([{ kind: "start" }]);
    const left = run(requested.standing, [
      done(begun(requested.effects)[0]?.number ?? 0, { ...stopped(), is: "restarting" }),
      65_200,
    ]);
    expect(left.effects).toEqual([]);
    expect(wakeAt(left.standing, 65_200)).toBe(65_200 + 75_000);
  });

  test.each(["restart", "start"] as const)("in a crash loop of the engine starts at once on request (%s)", (to) => {
    const goal = service({ engineRestarts: true });
    const looping: Found = { ...stopped(), is: "restarting" };
    const crashed = run(
      beginning(running(), undefined),
      [{ is: "wanted", goal }, 0],
      [{ is: "exited", found: looping, code: 3 }, 1000],
    ).standing;
    const requested = run(crashed, [{ is: "asked", to }, 2000]);
    expect(begun(requested.effects)).toMatchObject([{ kind: "restart" }]);
    // Also during the request on its state.
    const tidying = run(crashed, [{ is: "tick" }, 7000]);
    const meanwhile = run(
      tidying.standing,
      [{ is: "asked", to }, 7001],
      [done(begun(tidying.effects)[0]?.number ?? 0, looping), 7002],
    );
    expect(begun(meanwhile.effects)).toMatchObject([{ kind: "restart" }]);
    const up = run(requested.standing, [done(begun(requested.effects)[0]?.number ?? 0, running()), 3000]).standing;
    expect(up.isRestarting).toBe(false);
  });

  test("that was removed before the first poll is not left to the engine, which has nothing to restart", () => {
    const { standing } = run(
      beginning(undefined, undefined),
      [{ is: "wanted", goal: service({ engineRestarts: true }) }, 0],
      [done(1, undefined), 5],
    );
    expect(standing.retry).toMatchObject({ at: 105, after: "crash" });
  });

  test("stopped at the engine stays stopped, and started there keeps running", () => {
    const up = run(beginning(running(), undefined), [{ is: "wanted", goal: service() }, 0]).standing;
    const off = run(
      up,
      [{ is: "exited", found: stopped(), code: 0 }, 1],
      [{ is: "stopped", id: "1" }, 1],
      [{ is: "stopped-outside", id: "1" }, 3001],
    );
    expect(off.effects).toEqual([{ do: "note-by-hand", hash: "a" }]);
    expect(run(off.standing, [{ is: "tick" }, 1e6]).effects).toEqual([]);
    const on = run(off.standing, [{ is: "found", found: running() }, 2]);
    expect(on.effects).toEqual([{ do: "note-by-hand", hash: undefined }]);
  });

  test.each([
    ["before its name is put right", 2, 3001],
    ["while its name is put right", 3002, 3001],
  ])("stopped at the engine stays stopped, known as such %s", (_what, endsAt, judgedAt) => {
    const untidy: Found = { ...running(), isUntidy: true };
    const up = run(beginning(untidy, undefined), [{ is: "wanted", goal: service() }, 0]);
    expect(begun(up.effects)).toMatchObject([{ kind: "tidy" }]);
    const judged: [Event, number] = [{ is: "stopped-outside", id: "1" }, judgedAt];
    const ended: [Event, number] = [done(1, stopped()), endsAt];
    const off = run(
      up.standing,
      [{ is: "exited", found: stopped(), code: 0 }, 1],
      [{ is: "stopped", id: "1" }, 1],
      ...(endsAt < judgedAt ? [ended, judged] : [judged, ended]),
    );
    expect(off.effects).toEqual([{ do: "note-by-hand", hash: "a" }]);
    expect(run(off.standing, [{ is: "tick" }, 1e6]).effects).toEqual([]);
  });

  test("stopped and started again at the engine while its name is put right runs on", () => {
    const up = run(beginning({ ...running(), isUntidy: true }, undefined), [{ is: "wanted", goal: service() }, 0]);
    const on = run(
      up.standing,
      [{ is: "stopped", id: "1" }, 1],
      [{ is: "found", found: running() }, 2],
      [done(1, running()), 3],
      [{ is: "stopped-outside", id: "1" }, 3001],
      [{ is: "tick" }, 1e6],
    );
    expect(on.effects).toEqual([]);
    expect(on.standing.byHand).toBeUndefined();
    // The observation may come with the end.
    const late = run(up.standing, [{ is: "stopped", id: "1" }, 1], [done(1, running()), 3]);
    expect(run(late.standing, [{ is: "stopped-outside", id: "1" }, 3001], [{ is: "tick" }, 1e6]).effects).toEqual([]);
  });

  test("that ended while its name was put right is not started before it is known whether it was stopped", () => {
    const up = run(beginning({ ...running(), isUntidy: true }, undefined), [{ is: "wanted", goal: service() }, 0]);
    const off = run(
      up.standing,
      [done(1, stopped()), 1],
      [{ is: "stopped", id: "1" }, 2],
      [{ is: "stopped-outside", id: "1" }, 3001],
      [{ is: "tick" }, 1e6],
    );
    expect(off.effects).toEqual([{ do: "note-by-hand", hash: "a" }]);
    const crashed = run(up.standing, [done(1, stopped()), 1], [{ is: "tick" }, 1e6]);
    expect(begun(crashed.effects)).toMatchObject([{ kind: "start" }]);
  });

  test("stopped at the engine while its name could not be put right stays stopped", () => {
    const up = run(beginning({ ...running(), isUntidy: true }, undefined), [{ is: "wanted", goal: service() }, 0]);
    const failed = { is: "failed", reason: "the name is taken", isEngine: false } as const;
    const off = run(
      up.standing,
      [{ is: "stopped", id: "1" }, 1],
      [{ is: "ended", number: 1, result: failed, found: stopped() }, 2],
      [{ is: "stopped-outside", id: "1" }, 3001],
      [{ is: "tick" }, 1e6],
    );
    expect(off.effects).toEqual([{ do: "note-by-hand", hash: "a" }]);
  });

  test.each([true, false])("stopped with its engine runs again (the engine restarts it: %s)", (engineRestarts) => {
    const goal = service({ engineRestarts });
    const up = run(beginning(running(), undefined), [{ is: "wanted", goal }, 0]).standing;
    const off = run(up, [{ is: "exited", found: stopped(), code: 0 }, 1], [{ is: "stopped", id: "1" }, 1]);
    expect(off.effects).toEqual([]);
    expect(run(off.standing, [{ is: "tick" }, 3000]).effects).toEqual([]);
    const down = run(off.standing, [{ is: "stopped-with-engine", id: "1" }, 3001]);
    expect(down.effects).toEqual([]);
    expect(down.standing.byHand).toBeUndefined();
    expect(begun(run(down.standing, [{ is: "engine-well" }, 4000]).effects)).toMatchObject([{ kind: "start" }]);
    const restarted = run(down.standing, [{ is: "found", found: running() }, 4000], [{ is: "engine-well" }, 4000]);
    expect(restarted.effects).toEqual([]);
    expect(restarted.standing.retry).toBeUndefined();
    expect(begun(run(down.standing, [{ is: "tick" }, 15_001]).effects)).toMatchObject([{ kind: "start" }]);
    // Undiscovered, so it does not stay down.
    expect(begun(run(off.standing, [{ is: "tick" }, 15_001]).effects)).toMatchObject([{ kind: "start" }]);
    // The engine has restarted it meanwhile.
    const back = run(off.standing, [{ is: "found", found: running() }, 2], [{ is: "stopped-outside", id: "1" }, 3001]);
    expect(back.effects).toEqual([]);
    expect(back.standing.byHand).toBeUndefined();
  });

  test("that was removed waits for a pass to create it again", () => {
    const up = run(beginning(running(), undefined), [{ is: "wanted", goal: service() }, 0]).standing;
    const gone = run(up, [{ is: "found", found: undefined }, 1], [{ is: "tick" }, 2]);
    expect(gone.effects).toEqual([]);
    expect(gone.standing.isLost).toBe(true);
    expect(begun(run(gone.standing, [{ is: "wanted", goal: service() }, 3]).effects)).toHaveLength(1);
  });

  test("that is held starts when its time has come, and at once on request", () => {
    const held = run(beginning(undefined, undefined), [{ is: "wanted", goal: service({ heldUntil: 75_000 }) }, 0]);
    expect(held.effects).toEqual([]);
    expect(wakeAt(held.standing, 0)).toBe(75_000);
    expect(begun(run(held.standing, [{ is: "tick" }, 75_000]).effects)).toHaveLength(1);
    expect(begun(run(held.standing, [{ is: "asked", to: "start" }, 1]).effects)).toHaveLength(1);
  });

  test("whose start failed while the engine was down is retried as soon as it is up", () => {
    const away: Event = {
      is: "ended",
      number: 1,
      result: { is: "failed", reason: "no socket", isEngine: true },
      found: undefined,
    };
    const { standing } = run(beginning(undefined, undefined), [{ is: "wanted", goal: service() }, 0], [away, 0]);
    expect(begun(run(standing, [{ is: "engine-well" }, 10]).effects)).toHaveLength(1);
  });
});

test("a run on demand that cannot be started is not retried", () => {
  const goal = service({ execType: "onDemand" });
  const { standing, effects } = run(
    beginning(undefined, undefined),
    [{ is: "wanted", goal }, 0],
    [{ is: "asked", to: "start" }, 1],
    [failed(1), 2],
    [{ is: "tick" }, 1e7],
  );
  expect(begun(effects)).toHaveLength(1);
  expect(standing.lastFailure).toBe("no such image");
});

test("skips a recurring run that is due during another", () => {
  const goal = service({ execType: "recurring" });
  const on = run(
    beginning(undefined, undefined),
    [{ is: "wanted", goal }, 0],
    [{ is: "due" }, 1],
    [done(1, running()), 2],
  );
  const { effects } = run(
    on.standing,
    [{ is: "due" }, 3],
    [{ is: "exited", found: stopped(), code: 0 }, 4],
    [{ is: "tick" }, 5],
  );
  expect(effects).toEqual([]);
});

/** An engine of one definition, whose jobs succeed or fail when the test continues them. */
const commands = fc.oneof(
  fc.record({
    is: fc.constant("wanted"),
    hash: fc.constantFrom("a", "b"),
    enabled: fc.boolean(),
    type: fc.constantFrom("service", "recurring", "onDemand"),
    engineRestarts: fc.boolean(),
  }),
  fc.record({ is: fc.constantFrom("suspended", "gone") }),
  fc.record({ is: fc.constant("asked"), to: fc.constantFrom("start", "stop", "restart") }),
  fc.record({ is: fc.constant("due") }),
  fc.record({ is: fc.constant("work"), fails: fc.boolean() }),
  fc.record({
    is: fc.constantFrom("exit", "removed", "stopped-outside", "started-outside", "wait", "creating"),
    ends: fc.boolean(),
  }),
);

test("in any order of events, does one thing at a time, starts nothing forbidden, and ends with what is wanted", () => {
  fc.assert(
    fc.property(fc.array(commands, { maxLength: 40 }), (list) => {
      let standing = beginning(undefined, undefined);
      let now = 0;
      let job: Job | undefined;
      let isCancelled = false;
      let found: Found | undefined;
      let count = 0;
      const take = (event: Event): void => {
        const [next, effects] = decide(standing, event, now);
        standing = next;
        for (const effect of effects) {
          if (effect.do === "cancel") isCancelled = effect.number === job?.number;
          if (effect.do !== "begin") continue;
          expect(job).toBe(undefined);
          job = effect.job;
          isCancelled = false;
          const { goal, byHand } = standing;
          if (job.kind !== "start" && job.kind !== "restart") continue;
          if (goal.is !== "kept") throw new Error(`${goal.is} was started`);
          expect(goal.enabled).toBe(true);
          if (goal.execType === "service") expect(byHand).not.toBe(goal.hash);
        }
      };
      const finish = (fails: boolean): void => {
        if (job === undefined) return;
        const { kind, number, hash = "" } = job;
        const result = isCancelled
          ? ({ is: "cancelled" } as const)
          : fails
            ? ({ is: "failed", reason: "x", isEngine: false } as const)
            : ({ is: "done" } as const);
        if (result.is === "done") {
          if (kind === "start" || kind === "restart") found = { id: String((count += 1)), hash, is: "running" };
          else if (kind === "stop" && found !== undefined) found = { ...found, is: "stopped" };
          else if (kind === "remove") found = undefined;
        }
        job = undefined;
        take({ is: "ended", number, result, found });
      };
      for (const one of list) {
        now += 10;
        switch (one.is) {
          case "wanted":
            if (!("hash" in one)) break;
            take({
              is: "wanted",
              goal: service({
                hash: one.hash,
                enabled: one.enabled,
                execType: one.type,
                engineRestarts: one.engineRestarts,
              }),
            });
            break;
          case "suspended":
          case "gone":
            take({ is: "wanted", goal: { is: one.is } });
            break;
          case "asked":
            if ("to" in one) take({ is: "asked", to: one.to as "start" });
            break;
          case "due":
            take({ is: "due" });
            break;
          case "work":
            finish("fails" in one && one.fails);
            break;
          case "creating":
            if (job?.kind === "start") take({ is: "phase", number: job.number, phase: "creating" });
            break;
          case "exit":
            if (found?.is !== "running" || job !== undefined) break;
            found = { ...found, is: "stopped" };
            take({ is: "exited", found, code: 1 });
            break;
          case "stopped-outside":
            if (found?.is !== "running" || (job !== undefined && job.kind !== "tidy")) break;
            found = { ...found, is: "stopped" };
            take({ is: "exited", found, code: 0 });
            take({ is: "stopped", id: found.id });
            take({ is: "ends" in one && one.ends ? "stopped-with-engine" : "stopped-outside", id: found.id });
            break;
          case "started-outside":
            if (found?.is !== "stopped" || (job !== undefined && job.kind !== "tidy")) break;
            found = { ...found, is: "running" };
            take({ is: "found", found });
            break;
          case "removed":
            if (job !== undefined) break;
            found = undefined;
            take({ is: "found", found });
            break;
          default:
            now += 700_000;
            take({ is: "tick" });
        }
      }
      // Once everything works, it converges.
      for (let turn = 0; turn < 20; turn += 1) {
        finish(false);
        now = wakeAt(standing, now) ?? now;
        take({ is: "tick" });
      }
      expect(job).toBe(undefined);
      const { goal, byHand, isLost } = standing;
      if (goal.is === "suspended" || (goal.is === "kept" && !goal.enabled))
        expect(isBusy({ ...standing, found })).toBe(false);
      if (goal.is === "kept" && goal.enabled && goal.execType === "service" && !isLost) {
        expect(found?.is === "running" && found.hash === goal.hash).toBe(byHand !== goal.hash);
      }
    }),
    { numRuns: runs(2000) },
  );
});

describe("a clock that is set back", () => {
  const t = Date.UTC(2026, 5, 1);
  const back = t - 7_200_000;

  test("runs what is due at once, and not two hours later", () => {
    const { standing } = run(
      beginning(undefined, undefined),
      [{ is: "wanted", goal: service() }, t],
      [{ is: "ended", number: 1, result: { is: "failed", reason: "no", isEngine: false }, found: undefined }, t],
    );
    expect(wakeAt(standing, t)).toBe(t + 5000);
    expect(run(standing, [{ is: "tick" }, t + 4000]).effects).toEqual([]);
    const after = run(standing, [{ is: "tick" }, back + 5000]);
    expect(after.effects.map((effect) => effect.do)).toEqual(["begin"]);
  });

  test("holds a half-written definition no longer than intended", () => {
    const goal = service({ heldUntil: t + 75_000 });
    const { standing, effects } = run(beginning(undefined, undefined), [{ is: "wanted", goal }, t]);
    expect(effects).toEqual([]);
    expect(wakeAt(standing, t)).toBe(t + 75_000);
    expect(run(standing, [{ is: "tick" }, back + 75_000]).effects.map((effect) => effect.do)).toEqual(["begin"]);
  });
});
