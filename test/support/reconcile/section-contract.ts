import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { PlannedStep, Prepared, Reconciler, View } from "../../../src/agent/reconcile/section.ts";
import { Issue } from "../../../src/protocol/documents/reconcile.ts";
import { runs } from "../sample.ts";
import { SHADOW_MAX_BYTES } from "../../../src/protocol/values/shadow.ts";

/** A section over a machine of its own, created for each run. */
export interface Subject<Disturbance> {
  readonly section: Reconciler;
  /** Changes the machine as another program, a crash or an earlier version might. */
  disturb(what: Disturbance): void | Promise<void>;
  /** Counts the section's entries on the machine. */
  count(): number | Promise<number>;
  close?(): Promise<void>;
}

export interface Arbitraries<Disturbance> {
  /** Values of the section in documents, with valid and invalid items. */
  readonly raws: fc.Arbitrary<unknown>;
  readonly disturbances: fc.Arbitrary<Disturbance>;
  /** Runs of each property; `runs(200)` when absent. */
  readonly numRuns?: number;
}

const signal = new AbortController().signal;

/**
 * Registers the tests that every section passes: it converges from any state, its steps may be repeated and reverted, and it never throws.
 */
export function contract<Disturbance>(
  name: string,
  make: () => Subject<Disturbance> | Promise<Subject<Disturbance>>,
  { raws, disturbances, numRuns = runs(200) }: Arbitraries<Disturbance>,
): void {
  const holds = <Values extends [unknown, ...unknown[]]>(
    arbitraries: { [Key in keyof Values]: fc.Arbitrary<Values[Key]> },
    check: (subject: Subject<Disturbance>, ...values: Values) => Promise<void>,
  ): Promise<void> =>
    fc.assert(
      fc.asyncProperty(fc.tuple<Values>(...arbitraries), async (values) => {
        const subject = await make();
        try {
          await check(subject, ...values);
        } finally {
          await subject.close?.();
        }
      }),
      { numRuns },
    );

  describe(`the section ${name}`, () => {
    test("converges from any state, and another pass has zero steps", async () => {
      await holds<[Disturbance, unknown]>([disturbances, raws], async (subject, there, raw) => {
        const { section } = subject;
        await subject.disturb(there);
        await converge(section, raw);
        expect(stepsOf(await look(section, structuredClone(raw)))).toEqual([]);
      });
    });

    test("converges from one value to another, to nothing, and back", async () => {
      await holds<[unknown, unknown]>([raws, raws], async ({ section }, one, other) => {
        for (const raw of [one, other, undefined, one]) await converge(section, raw);
      });
    });

    test("leaves nothing behind when nothing is desired", async () => {
      await holds<[Disturbance, unknown]>([disturbances, raws], async (subject, there, raw) => {
        await converge(subject.section, raw);
        await subject.disturb(there);
        await converge(subject.section, undefined);
        expect(await subject.count()).toBe(0);
      });
    });

    test("converges after a crash anywhere, with the step repeated that was cut off, and after what others did since", async () => {
      await holds<[unknown, unknown, number, Disturbance]>(
        [raws, raws, fc.nat(), disturbances],
        async (subject, before, raw, at, meanwhile) => {
          const { section } = subject;
          await converge(section, before);
          const steps = (await look(section, raw))?.steps ?? [];
          for (const { apply } of steps.slice(0, at % (steps.length + 1))) await apply(signal);
          await steps[Math.max(0, (at % (steps.length + 1)) - 1)]?.apply(signal);
          await converge(section, raw);
          await subject.disturb(meanwhile);
          await converge(section, raw);
        },
      );
    });

    test("reverts its steps by their stored undo, from any step on, also twice", async () => {
      await holds<[unknown, unknown, number]>([raws, raws, fc.nat()], async ({ section }, before, raw, at) => {
        await converge(section, before);
        const first = await look(section, raw);
        if (first === undefined) return;
        const undos = first.steps.map(({ undo }) => undo());
        // One undo may cover all later steps.
        const isCovered = first.steps.map(
          ({ step }, index) => !step.guarded || undos.slice(0, index + 1).some(isStored),
        );
        expect(isCovered).not.toContain(false);
        if (!undos.some(isStored)) return;
        const done = at % (first.steps.length + 1);
        for (const { apply } of first.steps.slice(0, done)) await apply(signal);
        for (const undo of undos.slice(0, done).filter(isStored).reverse()) {
          // As loaded from disk.
          const stored: unknown = JSON.parse(JSON.stringify(undo));
          await section.applyStored(stored, signal);
          await section.applyStored(stored, signal);
        }
        expect(stepsOf(await look(section, raw))).toEqual(stepsOf(first));
        expect(stepsOf(await look(section, before))).toEqual([]);
      });
    });

    test("never throws, for any document, and limits its issues", async () => {
      await holds<[unknown]>([fc.oneof(raws, fc.jsonValue({ maxDepth: 4 }))], async ({ section }, raw) => {
        const prepared = section.prepare(raw);
        for (const issue of [...prepared.rejected, ...prepared.notices]) {
          expect(Issue.parse(issue).path.split(".", 1)).toEqual([section.name]);
        }
        if (prepared.isUnusable) return;
        const view = await prepared.observe(signal);
        for (const issue of view.waits) Issue.parse(issue);
        expect(Buffer.byteLength(JSON.stringify(view.reported()))).toBeLessThan(SHADOW_MAX_BYTES);
      });
    });
  });
}

const isStored = (undo: unknown): boolean => undo !== null;

/** Applies a value as a pass does, and expects an empty plan; an invalid value changes nothing. */
async function converge(section: Reconciler, raw: unknown): Promise<void> {
  const prepared = section.prepare(raw);
  if (prepared.isUnusable) return;
  await applyAll((await prepared.observe(signal)).steps.filter(({ step }) => step.removes === true));
  await applyAll((await prepared.observe(signal)).steps);
  expect(stepsOf(await prepared.observe(signal))).toEqual([]);
}

async function applyAll(steps: readonly PlannedStep[]): Promise<void> {
  for (const { apply } of steps) await apply(signal);
}

async function look(section: Reconciler, raw: unknown): Promise<View | undefined> {
  const prepared: Prepared = section.prepare(raw);
  return prepared.isUnusable ? undefined : prepared.observe(signal);
}

/** As text, sorted. */
function stepsOf(view: View | undefined): readonly string[] {
  return (view?.steps ?? []).map(({ step: { kind, subject } }) => `${kind} ${subject}`).sort();
}
