import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Conditions, testOf } from "../../../../../src/controller/access/policies/conditions.ts";

const ENV = "tg:node:tags:env";
const SITE = "tg:node:tags:site";
const holds = (conditions: Conditions, tags: Record<string, string>) => testOf(conditions)?.(tags);

describe("conditions", () => {
  const both = { eq: { [ENV]: ["prod", "stage"] }, ne: { [SITE]: ["berlin"] } };

  it.each([
    ["all", { env: "prod", site: "rome" }, true],
    ["all", { env: "stage" }, true],
    ["all", { env: "dev", site: "rome" }, false],
    ["all", { env: "prod", site: "berlin" }, false],
    ["all", {}, false],
    ["any", { env: "prod", site: "berlin" }, true],
    ["any", { env: "dev", site: "berlin" }, false],
    ["any", {}, true],
    ["none", { env: "dev", site: "berlin" }, true],
    ["none", { env: "prod", site: "berlin" }, false],
    ["none", {}, false],
  ] as const)("%s over %j: %s", (section, tags, expected) => {
    expect(holds({ [section]: both }, tags)).toBe(expected);
  });

  it("need all three sections", () => {
    const conditions = {
      all: { eq: { [ENV]: ["prod"] } },
      any: { eq: { [SITE]: ["rome"], "tg:node:tags:ring": ["1"] } },
      none: { eq: { "tg:node:tags:frozen": ["yes"] } },
    };
    expect(holds(conditions, { env: "prod", ring: "1" })).toBe(true);
    expect(holds(conditions, { env: "prod" })).toBe(false);
    expect(holds(conditions, { ring: "1" })).toBe(false);
    expect(holds(conditions, { env: "prod", ring: "1", frozen: "yes" })).toBe(false);
  });

  it("of an empty list: no value is in it", () => {
    expect(holds({ all: { eq: { [ENV]: [] } } }, { env: "prod" })).toBe(false);
    expect(holds({ all: { ne: { [ENV]: [] } } }, { env: "prod" })).toBe(true);
  });

  it("see only the tags of the object, with case", () => {
    expect(holds({ all: { eq: { "tg:node:tags:constructor": ["x"] } } }, {})).toBe(false);
    expect(holds({ all: { ne: { "tg:node:tags:toString": ["x"] } } }, {})).toBe(true);
    expect(holds({ all: { eq: { [ENV]: ["prod"] } } }, { env: "Prod", ENV: "prod" })).toBe(false);
  });

  it.each([
    undefined,
    null,
    {},
    { all: null, any: null, none: null },
    { all: { eq: null, ne: null }, any: { eq: {}, ne: {} }, none: {} },
  ])("%j are none", (conditions) => {
    expect(testOf(conditions)).toBeUndefined();
  });

  it("are refused for other keys, other members and too many entries", () => {
    const refused = [
      { all: { eq: { "tg:node:name": ["a"] } } },
      { all: { eq: { "tg:node:tags:": ["a"] } } },
      { all: { eq: { "tg:node:tags:a b": ["a"] } } },
      { all: { eq: { [ENV]: "prod" } } },
      { all: { eq: { [ENV]: [1] } } },
      { all: { gt: { [ENV]: ["a"] } } },
      { every: {} },
      { all: { eq: { [ENV]: Array.from({ length: 65 }, String) } } },
      { all: { eq: Object.fromEntries(Array.from({ length: 33 }, (_, at) => [`tg:node:tags:t${at}`, ["a"]])) } },
    ];
    for (const conditions of refused)
      expect([conditions, Conditions.safeParse(conditions).success]).toEqual([conditions, false]);
  });

  it("swap eq for ne when a single entry is negated", () => {
    const tags = fc.dictionary(fc.constantFrom("env", "site"), fc.constantFrom("a", "b"));
    const tests = fc.dictionary(fc.constantFrom(ENV, SITE), fc.uniqueArray(fc.constantFrom("a", "b", "c")), {
      minKeys: 1,
      maxKeys: 1,
    });
    fc.assert(
      fc.property(tags, tests, (given, test) => {
        const plain = holds({ all: { eq: test } }, given);
        expect(holds({ all: { ne: test } }, given)).toBe(!plain);
        expect(holds({ none: { eq: test } }, given)).toBe(!plain);
        expect(holds({ any: { eq: test } }, given)).toBe(plain);
      }),
    );
  });
});
