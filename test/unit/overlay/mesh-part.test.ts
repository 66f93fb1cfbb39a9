import { readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, test } from "vitest";

/** Modules that a module needs to be there before it runs: neither types nor what is fetched later. */
function neededBy(path: string): readonly string[] {
  const text = readFileSync(path, "utf8");
  return [...text.matchAll(/^(?:import|export) (?!type )[^;]*?from "([^"]+)";/gm)].map(([, from]) => from ?? "");
}

test("an overlay that knows no other node loads neither TLS nor HTTP/2", () => {
  const reached = new Set<string>();
  const builtins = new Map<string, string>();
  const visit = (path: string): void => {
    if (reached.has(path)) return;
    reached.add(path);
    for (const from of neededBy(path)) {
      if (from.startsWith("node:")) builtins.set(from, path);
      else if (from.startsWith(".")) visit(normalize(join(dirname(path), from)));
    }
  };
  visit("src/overlay/main.ts");
  expect(reached).toContain("src/overlay/mesh-part.ts");
  expect(reached).not.toContain("src/overlay/mesh/mesh.ts");
  expect([...builtins].filter(([name]) => /^node:(http2?|https|tls)$/.test(name))).toEqual([]);
});
