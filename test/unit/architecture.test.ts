import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, test } from "vitest";

/** Which folders a folder may import from, itself aside; `errors.ts` and `lib/` are open to all. */
const arrows: Readonly<Record<string, readonly string[]>> = {
  "main.ts": ["agent", "overlay", "guard", "controller", "transfer", "upgrade", "cli", "host"],
  agent: ["checkpoint", "protocol", "host"],
  overlay: ["checkpoint", "protocol", "host"],
  guard: ["checkpoint", "protocol", "host"],
  upgrade: ["checkpoint", "protocol", "host"],
  controller: ["protocol", "host"],
  transfer: ["protocol", "host"],
  cli: ["protocol", "host"],
  checkpoint: ["protocol", "host"],
  protocol: [],
  // A driver speaks the wire form of what it drives: the overlay its table.
  host: ["protocol"],
  lib: [],
  "errors.ts": [],
};

/** Below `agent/`, what stands in its root wires the rest; sections and triggers never import one another's kind. */
const agentArrows: Readonly<Record<string, readonly string[]>> = {
  identity: ["session"],
  session: ["identity"],
  shadow: ["identity", "session"],
  reconcile: [],
  // What becomes of containers is decided on what their keeper knows.
  sections: ["reconcile", "compute"],
  compute: [],
  // Diagnostics answer with the readings and the checks that telemetry has.
  triggers: ["compute", "telemetry"],
  streams: ["compute", "session"],
  "data-store": [],
  telemetry: ["session"],
  "local-api": [],
};

const modules = globSync("src/**/*.ts").map((path) => ({
  path,
  imports: [...readFileSync(path, "utf8").matchAll(/(?:from|import)\s*\(?\s*"(\.[^"]+)"/g)].map(([, to]) =>
    normalize(join(dirname(path), to ?? "")),
  ),
}));

const part = (path: string, depth: number): string => path.split("/")[depth] ?? "";

test("imports point one way between the folders of src/", () => {
  const wrong = modules.flatMap(({ path, imports }) =>
    imports
      .map((to) => [part(path, 1), part(to, 1), to] as const)
      .filter(([from, to]) => from !== to && to !== "lib" && to !== "errors.ts" && !arrows[from]?.includes(to))
      .map(([, , to]) => `${path} → ${to}`),
  );
  expect(modules.length).toBeGreaterThan(50);
  expect(wrong).toEqual([]);
});

test("and between the parts of the agent", () => {
  const wrong = modules.flatMap(({ path, imports }) =>
    imports
      .filter((to) => path.startsWith("src/agent/") && to.startsWith("src/agent/"))
      .filter((to) => path.split("/").length > 3 && part(path, 2) !== part(to, 2))
      .filter((to) => !agentArrows[part(path, 2)]?.includes(part(to, 2)))
      .map((to) => `${path} → ${to}`),
  );
  expect(wrong).toEqual([]);
});

test("every module is reached from the entry", () => {
  const reached = new Set<string>();
  const visit = (path: string): void => {
    if (reached.has(path)) return;
    reached.add(path);
    for (const to of modules.find((module) => module.path === path)?.imports ?? []) visit(to);
  };
  // The reference is built from the schemas by a script, outside the program.
  for (const entry of ["src/main.ts", "src/protocol/reference.ts"]) visit(entry);
  expect(modules.map(({ path }) => path).filter((path) => !reached.has(path))).toEqual([]);
});
