import fc from "fast-check";
import { expect, it } from "vitest";
import type { z } from "zod";
import { describeIssues } from "../../src/protocol/channel/envelope.ts";
import { nearValidValues, validValues } from "./arbitrary.ts";
import { runs } from "./sample.ts";

/** Bodies that a closed section accepts, and others with the lines of their refusal. */
export interface SectionTable {
  readonly good: readonly unknown[];
  readonly bad: readonly (readonly [body: unknown, ...lines: string[]])[];
}

/** Registers the tests of a closed section: its tables, and that it keeps every body that it accepts unchanged. */
export function closedSection(name: string, schema: z.ZodType, { good, bad }: SectionTable): void {
  const linesOf = (body: unknown): string[] => {
    const { error } = schema.safeParse(body);
    return error === undefined ? [] : describeIssues(error, name);
  };

  it.each(good.map((body) => [body] as const))("accepts %j as it is", (body) => {
    expect(linesOf(body)).toEqual([]);
    expect(schema.parse(body)).toEqual(body);
  });

  it.each(bad.map(([body, ...lines]) => [body, lines] as const))("refuses %j: %j", (body, lines) => {
    expect(linesOf(body)).toEqual(lines);
  });

  it.each([[null], [[]], ["x"], [7], [true]])("refuses %j in its place", (body) => {
    expect(linesOf(body)).toEqual([`${name}: must be an object`]);
  });

  it("keeps every body that it accepts", () => {
    let accepted = 0;
    fc.assert(
      fc.property(validValues(schema), (body) => {
        const parsed = schema.safeParse(body);
        if (!parsed.success) return;
        accepted += 1;
        expect(parsed.data).toEqual(body);
      }),
      { numRuns: runs(1000) },
    );
    expect(accepted).toBeGreaterThan(0);
  });

  it("never throws, and leads every line with a path", () => {
    fc.assert(
      fc.property(nearValidValues(schema), ({ value }) => {
        for (const line of linesOf(value)) expect(line).toMatch(new RegExp(`^${name}[.:]`));
      }),
      { numRuns: runs(1000) },
    );
  });
}
