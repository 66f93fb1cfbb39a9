import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { z } from "zod";

const Links = z.record(z.string(), z.string()).default({});
const Lock = z.object({
  packages: z.record(
    z.string(),
    z.object({ dependencies: Links, optionalDependencies: Links, hasInstallScript: z.boolean().default(false) }),
  ),
});
const { packages } = Lock.parse(JSON.parse(readFileSync("package-lock.json", "utf8")));
/** The row of each production package: its purpose, and its number of packages, itself included. */
const TABLE = readFileSync("docs/decisions/0066-every-production-package-has-a-reason.md", "utf8");

/** Returns the lock file's path of a dependency: beside its user, or further up. */
function placeOf(from: string, name: string): string | undefined {
  for (let at = from; ; at = at.slice(0, Math.max(0, at.lastIndexOf("node_modules/") - 1))) {
    const path = `${at === "" ? "" : `${at}/`}node_modules/${name}`;
    if (packages[path] !== undefined || at === "") return packages[path] === undefined ? undefined : path;
  }
}

function broughtBy(path: string, found = new Set<string>()): ReadonlySet<string> {
  const entry = packages[path];
  if (entry === undefined || found.has(path)) return found;
  found.add(path);
  for (const name of Object.keys({ ...entry.dependencies, ...entry.optionalDependencies })) {
    const place = placeOf(path, name);
    if (place !== undefined) broughtBy(place, found);
  }
  return found;
}

const direct = Object.keys(packages[""]?.dependencies ?? {});
const brought = new Map(direct.map((name) => [name, broughtBy(`node_modules/${name}`)]));
const all = new Set<string>();
for (const paths of brought.values()) for (const path of paths) all.add(path);

test("every production package and its dependencies have a reason in the table", () => {
  const rows: unknown[] = [];
  for (const [, name, count] of TABLE.matchAll(/^\| `([^`]+)` +\| (\d+) +\| \S/gm)) rows.push([name, Number(count)]);
  expect(rows).toEqual(Array.from(brought, ([name, { size }]) => [name, size]));
  expect(/(\d+) packages in all/.exec(TABLE)?.[1]).toBe(String(all.size));
});

test("none of them runs a program at installation", () => {
  expect([...all].filter((path) => packages[path]?.hasInstallScript)).toEqual([]);
  expect(readFileSync(".npmrc", "utf8")).toMatch(/^ignore-scripts=true$/m);
});
