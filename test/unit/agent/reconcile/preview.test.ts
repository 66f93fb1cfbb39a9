import { expect, test } from "vitest";
import { preview } from "../../../../src/agent/reconcile/preview.ts";
import { reconciler } from "../../../../src/agent/reconcile/section.ts";
import { ShownStep } from "../../../../src/protocol/documents/reconcile.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { MemoryMachine, modelSection } from "../../../support/reconcile/model-section.ts";

const forever = new AbortController().signal;

test("a step carries the detail of its section, cut to its limit, or none", async () => {
  const section = modelSection(new MemoryMachine());
  const shown = async (describe?: () => string): Promise<unknown> => {
    const work = [
      { section: reconciler(describe === undefined ? section : { ...section, describe }), raw: { a: "1" } },
    ];
    const [plan] = await preview(work, new FakeClock(), forever);
    return plan?.steps[0];
  };
  expect(await shown()).not.toHaveProperty("detail");
  expect(await shown(() => "tcp 1 → 2")).toMatchObject({ detail: "tcp 1 → 2" });
  const long = ShownStep.parse(await shown(() => "x".repeat(10_000)));
  expect(long.detail).toHaveLength(512);
  expect(long.detail).toMatch(/x…$/);
});
