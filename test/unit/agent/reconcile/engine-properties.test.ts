import fc from "fast-check";
import { expect, test } from "vitest";
import { reconciler } from "../../../../src/agent/reconcile/section.ts";
import { HostError } from "../../../../src/errors.ts";
import { MemoryMachine, modelSection } from "../../../support/reconcile/model-section.ts";
import { runs } from "../../../support/sample.ts";
import { engineRig } from "./rig.ts";

const state = fc.dictionary(fc.constantFrom("a", "b", "c", "d", "e", "f"), fc.constantFrom("1", "2", "3"));
const signal = new AbortController().signal;

function machineOf(values: Readonly<Record<string, string>>): MemoryMachine {
  const machine = new MemoryMachine();
  for (const [subject, value] of Object.entries(values)) machine.values.set(subject, value);
  return machine;
}

test("from any desired and actual state: after a pass the plan is empty, and another pass has zero steps", async () => {
  await fc.assert(
    fc.asyncProperty(state, state, fc.boolean(), async (actual, desired, guarded) => {
      const machine = machineOf(actual);
      const rig = engineRig([reconciler(modelSection(machine, { isGuarded: (subject) => guarded && subject < "c" }))]);
      rig.engine.start();
      await rig.want({ model: desired });
      expect(Object.fromEntries(machine.values)).toEqual(desired);
      expect(await rig.engine.preview({ model: desired }, true, signal)).toMatchObject([{ total: 0 }]);
      await rig.want({ model: { ...desired } });
      expect(rig.standing()).toMatchObject({ outcome: { state: "converged" }, steps: 0 });
      await rig.engine.close();
    }),
    { numRuns: runs(60) },
  );
});

test("versions that arrive during passes always end at the newest", async () => {
  const later = fc.array(fc.tuple(fc.nat(6), state), { minLength: 1, maxLength: 6 });
  await fc.assert(
    fc.asyncProperty(state, state, later, fc.boolean(), async (actual, first, rest, guarded) => {
      const machine = machineOf(actual);
      const rig = engineRig([reconciler(modelSection(machine, { isGuarded: () => guarded }))]);
      const queue = [...rest];
      let version = 1;
      let untilNext = queue[0]?.[0] ?? 0;
      const push = (): void => {
        const next = queue.shift();
        if (next === undefined) return;
        version += 1;
        untilNext = queue[0]?.[0] ?? 0;
        rig.engine.set({ version: { node: version }, config: { model: next[1] }, isActive: true });
      };
      machine.after = () => {
        untilNext -= 1;
        if (untilNext < 0) push();
      };
      rig.engine.start();
      rig.engine.set({ version: { node: version }, config: { model: first }, isActive: true });
      await rig.engine.idle();
      while (queue.length > 0) {
        push();
        await rig.engine.idle();
      }
      expect(Object.fromEntries(machine.values)).toEqual(rest.at(-1)?.[1]);
      expect(rig.standing()).toMatchObject({ version: { node: version }, outcome: { state: "converged" } });
      await rig.engine.close();
    }),
    { numRuns: runs(60) },
  );
});

test("faults at any step leave the other items correct, are reported, and heal without help", async () => {
  await fc.assert(
    fc.asyncProperty(
      state,
      state,
      fc.array(fc.nat(12), { maxLength: 5 }),
      fc.boolean(),
      async (actual, desired, at, guarded) => {
        const machine = machineOf(actual);
        const rig = engineRig([reconciler(modelSection(machine, { isGuarded: () => guarded }))]);
        const faults = new Set(at);
        let count = 0;
        machine.before = () => {
          count += 1;
          if (faults.has(count)) throw new HostError("injected", "injected");
        };
        rig.engine.start();
        await rig.want({ model: desired });
        // A change that could cut the node off is refused after its third failure, and the machine restored.
        const isRefused = (): boolean => rig.commit.heldChange.current?.attempts === 3;
        for (let tries = 0; tries < 20 && rig.standing().outcome.state !== "converged" && !isRefused(); tries += 1) {
          expect(rig.standing()).toMatchObject({ outcome: { state: "failed", error: { code: "injected" } } });
          // Only to the next attempt, or its window would end before it has done anything.
          await rig.clock.advance(Math.max(2000, (rig.standing().nextAttempt ?? 0) - rig.clock.now()));
          await rig.engine.idle();
        }
        if (isRefused()) {
          // A failed rollback is retried by itself, too.
          for (let tries = 0; tries < 5 && (await rig.checkpoint.isPending()); tries += 1) {
            await rig.clock.advance(10_000);
            await rig.engine.idle();
          }
          expect(await rig.checkpoint.isPending()).toBe(false);
          expect(Object.fromEntries(machine.values)).toEqual(actual);
          await rig.engine.close();
          return;
        }
        expect(Object.fromEntries(machine.values)).toEqual(desired);
        expect(rig.standing()).toMatchObject({ outcome: { state: "converged" }, failures: 0, drift: { count: 0 } });
        expect(await rig.checkpoint.isPending()).toBe(false);
        await rig.engine.close();
      },
    ),
    // In the example the rollback of the third failure fails as well.
    { numRuns: runs(80), examples: [[{}, { a: "1", f: "1" }, [1, 4, 8, 10, 11], true]] },
  );
});
