import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { packageVersion } from "../../../src/lib/build-info.ts";

test("a build's package version holds its day and time", () => {
  expect(packageVersion({ version: "1.5.3", build: "20260228-093007.0123456789ab" })).toBe("1.5.20260228-0930");
});

test("a checkout has a package version of the same width, before every build", () => {
  const checkout = packageVersion({ version: "0.1.0", build: "source" });
  const build = packageVersion({ version: "0.1.0", build: "20260101-000100.0123456789ab" });
  expect(checkout).toBe("0.1.00000000-0000");
  expect(checkout.length).toBe(build.length);
  expect(checkout < build).toBe(true);
});

test("later builds compare as greater text", () => {
  const builds = ["20261231-235900.aa", "20270101-000000.aa", "20270101-000100.aa", "20270101-100000.aa"];
  const versions = builds.map((build) => packageVersion({ version: "1.5.0", build }));
  expect(versions.toSorted()).toEqual(versions);
  expect(new Set(versions).size).toBe(versions.length);
});

test("the version of this package has one digit for each part that is compared as text", () => {
  const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
  expect(version).toMatch(/^\d\.\d\.\d+$/);
});
