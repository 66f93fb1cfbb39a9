import fc from "fast-check";
import { reconciler } from "../../../../src/agent/reconcile/section.ts";
import { MemoryMachine, modelSection } from "../../../support/reconcile/model-section.ts";
import { contract, type Subject } from "../../../support/reconcile/section-contract.ts";

const subjects = fc.constantFrom("a", "b", "c", "d", "e", "f");
const values = fc.constantFrom("1", "2", "3");

function model(isGuarded: (subject: string) => boolean): Subject<Readonly<Record<string, string>>> {
  const machine = new MemoryMachine();
  return {
    section: reconciler(modelSection(machine, { isGuarded })),
    disturb(there) {
      machine.values.clear();
      for (const [subject, value] of Object.entries(there)) machine.values.set(subject, value);
    },
    count: () => machine.values.size,
  };
}

const arbitraries = {
  raws: fc.oneof(
    { weight: 9, arbitrary: fc.dictionary(subjects, fc.oneof({ weight: 5, arbitrary: values }, fc.integer())) },
    fc.constantFrom(undefined, null, 7, []),
  ),
  disturbances: fc.dictionary(subjects, values),
};

contract("model", () => model(() => false), arbitraries);
contract("model with guarded steps", () => model((subject) => subject < "c"), arbitraries);
