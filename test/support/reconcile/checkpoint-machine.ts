import { join } from "node:path";
import { pino } from "pino";
import { Engine } from "../../../src/agent/reconcile/engine.ts";
import { reconciler, type Reconciler } from "../../../src/agent/reconcile/section.ts";
import { Checkpoint } from "../../../src/checkpoint/checkpoint.ts";
import { systemClock } from "../../../src/host/clock.ts";
import type { Files } from "../../../src/host/files/files.ts";
import { testCommit } from "./commit.ts";
import { modelSection, type ModelMachine } from "./model-section.ts";

/** A machine whose values are the files of a directory. */
export function fileMachine(files: Files, dir: string): ModelMachine {
  return {
    async read() {
      const values = new Map<string, string>();
      for (const name of await files.list(dir)) values.set(name, (await files.read(join(dir, name))) ?? "");
      return values;
    },
    set: (subject, value) => files.writeAtomic(join(dir, subject), value, 0o600),
    remove: (subject) => files.remove(join(dir, subject)),
  };
}

/** Two sections over one directory's `one/` and `two/`, the second of which could cut the node off. */
export function fileSections(files: Files, dir: string): readonly Reconciler[] {
  return [
    reconciler(modelSection(fileMachine(files, join(dir, "one")), { name: "one" })),
    reconciler(
      modelSection(fileMachine(files, join(dir, "two")), { name: "two", isGuarded: (name) => name !== "plain" }),
    ),
  ];
}

/** Applies `config` to the machine in `dir` in one pass of the engine. */
export async function carry(files: Files, dir: string, config: Readonly<Record<string, unknown>>): Promise<void> {
  const checkpoint = new Checkpoint(files, join(dir, "desired"));
  const onRelease = (): void => engine.reevaluate("commit");
  const commit = testCommit(join(dir, "desired"), systemClock(), { checkpoint, disk: files, onRelease });
  const engine: Engine = new Engine({
    clock: systemClock(),
    random: Math.random,
    log: pino({ level: "silent" }),
    sections: fileSections(files, dir),
    checkpoint,
    commit,
    onReport: () => undefined,
    onFault: () => undefined,
  });
  engine.start();
  engine.set({ version: { node: 1 }, config, isActive: true });
  await engine.idle();
  // An interrupted change is retried when there is a session.
  commit.sessionOpened();
  await engine.idle();
  await engine.close();
  commit.close();
}
