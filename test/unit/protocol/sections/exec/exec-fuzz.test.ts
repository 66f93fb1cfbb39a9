import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { hideSecrets } from "../../../../../src/protocol/documents/secrets.ts";
import type { ExecConfig } from "../../../../../src/protocol/sections/exec/config.ts";
import { ExecSection } from "../../../../../src/protocol/sections/exec/exec.ts";
import type { ConfigIssue } from "../../../../../src/protocol/sections/common/issue.ts";
import { readExec } from "../../../../../src/protocol/sections/exec/read.ts";
import { nearValidValues, validValues } from "../../../../support/arbitrary.ts";
import { runs } from "../../../../support/sample.ts";

/** Sections with valid fields, without unsupported features. */
const sections = validValues(ExecSection).map((value): unknown =>
  JSON.parse(JSON.stringify(value, (key, inner: unknown) => (key === "requires" ? undefined : inner))),
);

const word = fc.constantFrom(
  "id",
  "name",
  "execType",
  "image",
  "mounts",
  "variables",
  "VRF",
  "limits",
  "config",
  "value",
);
const odd = fc.oneof(
  nearValidValues(ExecSection).map(({ value }) => value),
  fc.jsonValue({ maxDepth: 4 }),
  fc.anything({ maxDepth: 3 }),
  fc.record(
    {
      commands: fc.oneof(fc.array(fc.dictionary(word, fc.jsonValue())), fc.jsonValue()),
      volumes: fc.oneof(fc.array(fc.dictionary(word, fc.jsonValue())), fc.jsonValue()),
      limits: fc.jsonValue(),
    },
    { requiredKeys: [] },
  ),
);

/** Reports whether a path exists in the document, up to a missing last field. */
function leadsSomewhere(raw: unknown, path: string): boolean {
  const [section, ...steps] = path.split(".");
  if (section !== "exec") return false;
  let here: unknown = raw;
  for (const step of steps.slice(0, -1)) {
    if (typeof here !== "object" || here === null || !Object.hasOwn(here, step)) return false;
    here = Reflect.get(here, step);
  }
  return true;
}

function checkIssues(raw: unknown, issues: readonly ConfigIssue[]): void {
  for (const { path, code, message } of issues) {
    expect(code).toMatch(/^E_[A-Z_0-9]+$/);
    expect(message.startsWith(`${path}: `)).toBe(true);
    expect(message.length).toBeLessThan(1024);
    expect([path, leadsSomewhere(raw, path)]).toEqual([path, true]);
  }
}

/** Checks the invariants that users of the parser rely on. */
function checkConfig({ containers, volumes, left = [] }: ExecConfig): void {
  const names = containers.map(({ name }) => name.toLowerCase());
  const ids = containers.map(({ id }) => id.toLowerCase());
  expect([new Set(names).size, new Set(ids).size]).toEqual([names.length, ids.length]);
  expect(ids).toEqual([...ids].sort());
  expect(left.filter((id) => ids.includes(id.toLowerCase()))).toEqual([]);
  const ports = containers.filter(({ enabled }) => enabled).flatMap(({ portMappings }) => portMappings);
  const places = ports.map(({ protocol, iface, hostPort }) => `${protocol} ${iface} ${hostPort}`);
  expect(new Set(places).size).toBe(places.length);
  for (const { id, name, limits, ulimits, healthCheck, mounts, capabilities, variables } of containers) {
    expect(id).toMatch(/^[A-Za-z0-9][A-Za-z0-9_.-]*$/);
    expect(name).toMatch(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/);
    expect(capabilities.add).not.toContain("ALL");
    expect(limits.memHighBytes ?? 0).toBeLessThanOrEqual(limits.memMaxBytes ?? Infinity);
    for (const { soft, hard } of ulimits) expect(hard === -1 || (soft !== -1 && soft <= hard)).toBe(true);
    expect(healthCheck?.intervalSeconds ?? 1).toBeGreaterThanOrEqual(1);
    for (const { dest, source, kind } of mounts) {
      expect(dest).toMatch(/^\/./);
      expect(dest.split("/")).not.toContain("..");
      expect(kind === "bind").toBe(source.startsWith("/"));
    }
    expect(variables.map(({ name }) => name)).toEqual([...new Set(variables.map(({ name }) => name))].sort());
  }
  for (const { location = "" } of volumes) {
    expect(location.startsWith("/")).toBe(false);
    expect(location.split("/")).not.toContain("..");
  }
}

/** Reorders every list of the section; variables keep their order, since of two with one name the later counts. */
function shuffled(value: unknown, isVariables = false): unknown {
  if (Array.isArray(value)) {
    const inner = value.map((item) => shuffled(item));
    return isVariables ? inner : inner.toReversed();
  }
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, shuffled(inner, key === "variables")]));
}

const withoutPaths = (config: ExecConfig): unknown =>
  JSON.parse(JSON.stringify(config, (key, inner: unknown) => (key === "path" ? undefined : inner)));

describe("a section with valid fields", () => {
  it("is accepted by the API unchanged or refused by path; a node skips nothing of an accepted one", () => {
    fc.assert(
      fc.property(sections, (raw) => {
        const parsed = ExecSection.safeParse(raw);
        if (parsed.success) expect(parsed.data).toEqual(raw);
        else for (const { path } of parsed.error.issues) expect(path.length).toBeGreaterThan(0);
        const once = readExec(raw);
        expect(readExec(structuredClone(raw))).toEqual(once);
        checkIssues(raw, [...once.rejected, ...once.notices]);
        checkConfig(once.config);
        if (parsed.success) expect(once.rejected).toEqual([]);
      }),
      { numRuns: runs(200) },
    );
  });

  it("gets no health check without a warning", () => {
    const image = { repository: "a", tag: "1" };
    const one = { id: "00000000-0000-4000-8000-000000000000", name: "a", execType: "service", image };
    for (const command of [" ", "'open"]) {
      const { error } = ExecSection.safeParse({ commands: [{ ...one, healthCheck: { command } }] });
      expect(error?.issues.map(({ path }) => path.join("."))).toEqual(["commands.0.healthCheck.command"]);
    }
  });

  it("gives the same result for any order of its lists", () => {
    fc.assert(
      fc.property(sections, (raw) => {
        expect(withoutPaths(readExec(shuffled(raw)).config)).toEqual(withoutPaths(readExec(raw).config));
      }),
      { numRuns: runs(100) },
    );
  });
});

describe("a reader", () => {
  it("never throws, changes nothing, and names the path of everything that it skips", () => {
    fc.assert(
      fc.property(odd, (raw) => {
        const before = fc.stringify(raw);
        const { rejected, notices, config, isUnusable } = readExec(raw);
        checkIssues(raw, [...rejected, ...notices]);
        checkConfig(config);
        expect(fc.stringify(raw)).toBe(before);
        if (isUnusable === true) expect([config.containers, rejected.length > 0]).toEqual([[], true]);
      }),
      { numRuns: runs(500) },
    );
  });

  it("never prints the value of a variable, nor does what is shown", () => {
    const value = fc.oneof(
      fc.constant("hush"),
      fc.constant({ hush: "hush" }),
      fc.constant(["hush"]),
      fc.constant("hush\0"),
    );
    const variable = fc.record(
      { name: fc.oneof(fc.string(), fc.constant("A=B")), value, later: value },
      { requiredKeys: [] },
    );
    const variables = fc.oneof(fc.array(fc.oneof(variable, value)), value, fc.dictionary(fc.constant("A"), value));
    const key = fc.constantFrom("variables", "Variables", "VARIABLES");
    fc.assert(
      fc.property(key, variables, fc.boolean(), (name, list, isBelow) => {
        const part = { [name]: list };
        const raw = { commands: [{ id: "a", name: "a", ...(isBelow ? { config: part } : part) }] };
        const { rejected, notices } = readExec(raw);
        expect(JSON.stringify([rejected, notices])).not.toContain("hush");
        const texts = JSON.stringify(hideSecrets({ exec: raw })).replaceAll('"hush":', "");
        expect(texts).not.toContain("hush");
      }),
    );
  });
});
