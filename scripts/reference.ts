// Writes docs/protocol/ from the schemas, or with --check says whether it is current.
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { protocolReference } from "../src/protocol/reference.ts";

const root = "docs/protocol";
const wanted = new Map([...protocolReference()].map(([path, text]) => [join(root, path), text]));
const stale = [
  ...[...wanted]
    .filter(([path, text]) => !existsSync(path) || readFileSync(path, "utf8") !== text)
    .map(([path]) => path),
  ...globSync(`${root}/**/*.{json,md}`).filter((path) => !wanted.has(path)),
];

if (process.argv.includes("--check")) {
  for (const path of stale) console.error(`not current: ${path}`);
  if (stale.length > 0) console.error("run: npm run reference");
  process.exitCode = stale.length === 0 ? 0 : 1;
} else {
  rmSync(root, { recursive: true, force: true });
  for (const [path, text] of wanted) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
  console.log(`${wanted.size} files in ${root}`);
}
