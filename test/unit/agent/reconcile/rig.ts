import { join } from "node:path";
import { mkdirSync } from "node:fs";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { Engine, type EngineOptions } from "../../../../src/agent/reconcile/engine.ts";
import type { Reconciler } from "../../../../src/agent/reconcile/section.ts";
import type { Standing } from "../../../../src/agent/reconcile/standing.ts";
import { Checkpoint, confirmAtOnce } from "../../../../src/checkpoint/checkpoint.ts";
import { hostFiles } from "../../../../src/host/files.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { tempDir } from "../../../support/temp-dir.ts";

/** An engine over sections of a test's own, on a clock that the test moves and with a checkpoint on a real disk. */
export function engineRig(sections: readonly Reconciler[], options: Partial<EngineOptions> = {}) {
  const clock = new FakeClock();
  const dir = join(tempDir(), "desired");
  mkdirSync(dir);
  const checkpoint = new Checkpoint(hostFiles(), dir);
  const faults: string[] = [];
  let reports = 0;
  const engine = new Engine({
    clock,
    random: () => 1,
    log: pino({ level: "silent" }),
    sections,
    checkpoint,
    confirmation: confirmAtOnce,
    onReport: () => {
      reports += 1;
    },
    onFault: (code) => faults.push(code),
    ...options,
  });
  onTestFinished(() => engine.close());
  let version = 0;
  return {
    engine,
    clock,
    checkpoint,
    dir,
    faults,
    reports: () => reports,
    /** Desires this and waits until the engine has nothing left to do at once. */
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
