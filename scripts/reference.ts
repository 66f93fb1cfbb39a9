// Writes the generated part of docs/protocol/ from the schemas, or with --check reports whether it is current.
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { protocolReference } from "../src/protocol/reference.ts";
import { readCommand } from "./command-line.ts";
import { protocolExamples } from "./reference-examples.ts";

const { values } = readCommand(
  {
    name: "scripts/reference.ts",
    usage: `usage: node scripts/reference.ts [--check]

Writes the generated part of docs/protocol/ from the schemas.

  --check  changes nothing, and exits with 1 if a file is not current`,
  },
  { options: { check: { type: "boolean", default: false } } },
);
const root = "docs/protocol";
/** Written by hand. */
const isKept = (path: string): boolean => path === `${root}/README.md` || path.startsWith(`${root}/example/`);

const wanted = new Map(
  [...protocolReference(), ["examples.md", await protocolExamples()] as const].map(([path, text]) => [
    join(root, path),
    text,
  ]),
);
const unwanted = globSync(`${root}/**/*.{json,md}`).filter((path) => !wanted.has(path) && !isKept(path));
const stale = [...wanted].filter(([path, text]) => !existsSync(path) || readFileSync(path, "utf8") !== text);

if (values.check) {
  const wrong = [...stale.map(([path]) => path), ...unwanted];
  for (const path of wrong) console.error(`not current: ${path}`);
  if (wrong.length > 0) console.error("run: npm run reference");
  process.exitCode = wrong.length === 0 ? 0 : 1;
} else {
  for (const path of unwanted) rmSync(path);
  for (const [path, text] of stale) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
  console.log(`${wanted.size} files in ${root}`);
}
