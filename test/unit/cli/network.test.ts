import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { networkVerb } from "../../../src/cli/network.ts";
import { someCall } from "../../support/fake-call.ts";
import { tempDir } from "../../support/temp-dir.ts";

/** In the place of `FILE` stands a file with this text. */
interface Case {
  readonly words: readonly string[];
  readonly text?: string;
  readonly minutes?: string;
  readonly code?: string;
  readonly says: string;
}

test.each<[what: string, Case]>([
  ["another action", { words: ["apply"], says: "not 'apply'" }],
  ["show with an argument", { words: ["show", "x"], says: "network show takes no argument" }],
  ["keep with an argument", { words: ["keep", "x"], says: "network keep takes no argument" }],
  ["revert with an argument", { words: ["revert", "x"], says: "network revert takes no argument" }],
  ["try without a file", { words: ["try"], says: "needs a file" }],
  [
    "minutes that nobody offers",
    { words: ["try", "FILE"], text: "{}", minutes: "20", says: "--minutes takes 10, 30, 60" },
  ],
  ["minutes in other figures", { words: ["try", "FILE"], text: "{}", minutes: "1e1", says: "--minutes takes" }],
  ["no minutes", { words: ["try", "FILE"], text: "{}", minutes: "", says: "--minutes takes" }],
  ["no such file", { words: ["try", "FILE"], code: "not-found", says: "there is no file" }],
  ["no JSON", { words: ["try", "FILE"], text: "interfaces: []", says: "cannot be read" }],
  ["a list", { words: ["try", "FILE"], text: "[]", says: "holds no object" }],
  ["a network that is none", { words: ["try", "FILE"], text: '{"network":7}', says: "network is no object" }],
  [
    "a document whose network is none",
    { words: ["try", "FILE"], text: '{"config":{"network":[]}}', says: "network is no object" },
  ],
])("%s is refused before anybody is asked", async (_what, { words, text, minutes, code = "usage", says }) => {
  const dir = tempDir();
  const file = join(dir, "FILE");
  if (text !== undefined) writeFileSync(file, text);
  const dirs = { root: dir, stateDir: dir, runDir: dir, [Symbol.asyncDispose]: () => Promise.resolve() };
  const positionals = words.map((word) => (word === "FILE" ? file : word));
  const { call } = someCall(dirs, { positionals, values: minutes === undefined ? {} : { minutes } });
  const error: unknown = await networkVerb.run(call).catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code });
  expect(String(error)).toContain(says);
});
