import fc from "fast-check";
import { expect, test } from "vitest";
import { Fifo } from "../../../../src/lib/async/fifo.ts";

test("is an array with access to its ends only", () => {
  const steps = fc.array(fc.oneof(fc.nat({ max: 400 }), fc.constant("shift" as const)), { maxLength: 60 });
  fc.assert(
    fc.property(fc.array(fc.integer(), { maxLength: 200 }), steps, (start, plan) => {
      const [model, fifo] = [[...start], new Fifo(start)];
      let next = 0;
      for (const step of plan) {
        if (step === "shift") for (let i = 0; i < 90; i += 1) expect(fifo.shift()).toBe(model.shift());
        else
          for (let i = 0; i < step; i += 1) {
            model.push(next);
            fifo.push(next);
            next += 1;
          }
        expect([...fifo]).toEqual(model);
        expect([fifo.length, fifo.at(0), fifo.at(7), fifo.at(-1), fifo.last()]).toEqual([
          model.length,
          model[0],
          model[7],
          undefined,
          model.at(-1),
        ]);
      }
    }),
  );
});
