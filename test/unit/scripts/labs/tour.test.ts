import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { tour } from "../../../../scripts/labs/tour.ts";

const page = readFileSync(join(import.meta.dirname, "../../../../docs/guide/lab.md"), "utf8");

test("the check runs the guide's commands for the lab", () => {
  const stops = tour.map(({ title, command }) => `# ${title[0]?.toUpperCase()}${title.slice(1)}.\n${command}\n`);
  expect(page).toContain(["```sh\nscripts/lab up\n", ...stops, "scripts/lab down\n```"].join("\n"));
});
