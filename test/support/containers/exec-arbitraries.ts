import fc from "fast-check";
import { systemClock } from "../../../src/host/clock.ts";
import { execStage } from "./exec-stage.ts";
import { ModelEngine } from "./model-engine.ts";
import type { Subject } from "../reconcile/section-contract.ts";

const IMAGE = "registry.test/team/box";
const IDS = ["a1", "b2", "c3"] as const;

/** A change of existing containers by another program. */
export interface ExecDisturbance {
  readonly at: number;
  readonly does: "remove" | "exit" | "stop";
}

/** Sections `exec` of a few definitions, some of them malformed. */
export function rawExecs(): fc.Arbitrary<unknown> {
  const command = fc.record(
    {
      id: fc.constantFrom<unknown>(...IDS, "!", 7),
      name: fc.constantFrom("one", "two", "three"),
      enabled: fc.boolean(),
      execType: fc.constantFrom("service", "service", "recurring", "onDemand", "other"),
      image: fc.record({ repository: fc.constant(IMAGE), tag: fc.constantFrom("1", "2", "absent") }),
      schedule: fc.constantFrom("rate(1 hour)", "0 3 * * *"),
      variables: fc.array(fc.record({ name: fc.constant("A"), value: fc.constantFrom("1", "2") }), { maxLength: 1 }),
      limits: fc.constantFrom({}, { cpuMax: 10 }, { cpuMax: 20 }),
    },
    { requiredKeys: ["id", "name", "execType", "image"] },
  );
  return fc.oneof(
    {
      arbitrary: fc.record({ commands: fc.uniqueArray(command, { maxLength: 3, selector: ({ id }) => id }) }),
      weight: 9,
    },
    { arbitrary: fc.constantFrom<unknown>(undefined, {}, { commands: 1 }), weight: 1 },
  );
}

export const execDisturbances: fc.Arbitrary<ExecDisturbance> = fc.record({
  at: fc.nat(2),
  does: fc.constantFrom("remove", "exit", "stop"),
});

/** The section over a model of an engine that has two of three tags. */
export function execSubject(): Subject<ExecDisturbance> {
  const model = new ModelEngine();
  for (const tag of ["1", "2"]) {
    model.registry.set(`${IMAGE}:${tag}`, `sha256:${tag}`);
    model.images.set(`${IMAGE}:${tag}`, `sha256:${tag}`);
  }
  const stage = execStage({ open: () => model, clock: systemClock() });
  return {
    section: stage.section,
    async disturb({ at, does }) {
      const one = [...model.containers.values()][at];
      if (one === undefined) return;
      if (does === "remove") model.remove(one.id);
      else if (does === "exit") model.exit(one.id, 1);
      else await model.engine.stopContainer(one.id, 1, new AbortController().signal);
    },
    count: () => model.containers.size + stage.ledger.containers.size + stage.ledger.definitions.size,
    close: () => stage.close(),
  };
}
