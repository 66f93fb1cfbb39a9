import { join } from "node:path";
import { mkdirSync } from "node:fs";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { Engine, type EngineOptions } from "../../../../src/agent/reconcile/engine.ts";
import type { Reconciler } from "../../../../src/agent/reconcile/section.ts";
import type { Standing } from "../../../../src/agent/reconcile/section-status.ts";
import type { CommitOptions } from "../../../../src/agent/reconcile/commit.ts";
import { Checkpoint } from "../../../../src/checkpoint/checkpoint.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { testCommit } from "../../../support/reconcile/commit.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { tempDir } from "../../../support/temp-dir.ts";

/** An engine over the test's sections, with a fake clock and a checkpoint on a real disk. */
export function engineRig(
  sections: readonly Reconciler[],
  options: Partial<EngineOptions> & {
    readonly commitOptions?: Partial<CommitOptions>;
    readonly dir?: string;
    readonly clock?: FakeClock;
  } = {},
) {
  const { commitOptions, dir = join(tempDir(), "desired"), clock = new FakeClock(), ...engineOptions } = options;
  mkdirSync(dir, { recursive: true });
  const checkpoint = engineOptions.checkpoint ?? new Checkpoint(hostFiles(), dir);
  const onRelease = (): void => engine.reevaluate("commit");
  const commit = testCommit(dir, clock, { checkpoint, onRelease, ...commitOptions });
  const faults: string[] = [];
  let reports = 0;
  const engine: Engine = new Engine({
    clock,
    random: () => 1,
    log: pino({ level: "silent" }),
    sections,
    checkpoint,
    commit,
    onReport: () => {
      reports += 1;
    },
    onFault: (code) => faults.push(code),
    ...engineOptions,
  });
  onTestFinished(async () => {
    await engine.close();
    commit.close();
  });
  let version = 0;
  return {
    engine,
    clock,
    checkpoint,
    commit,
    dir,
    faults,
    reports: () => reports,
    /** Sets the desired configuration and waits until the engine has nothing left to do at once. */
    want: async (config: Readonly<Record<string, unknown>>, isActive = true): Promise<void> => {
      version += 1;
      engine.set({ version: { node: version }, config, isActive });
      await engine.idle();
    },
    standing: (section = "model"): Standing => {
      const standing = engine.standings.find((one) => one.section === section);
      if (standing === undefined) throw new Error(`${section} was never tried`);
      return standing;
    },
  };
}
