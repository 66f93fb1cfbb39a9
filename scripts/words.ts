// Reports text that does not follow the project's writing rules; scripts/words describes the options. A hint for a person: findings
// do not change the exit status.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, statSync } from "node:fs";
import { relative, resolve } from "node:path";
import { misuse, readCommand, type Program } from "./command-line.ts";
import { addedLinesOf, type Added } from "./wording/added.ts";
import { riddleOf, wordsOf } from "./wording/glossary.ts";
import { proseOf } from "./wording/texts.ts";

const PROGRAM: Program = {
  name: "scripts/words",
  usage: `usage: scripts/words [--all | --base REF] [FILE...]

Reports the words of the right-hand column of the glossary, and doc comments that do not start with what the thing is or
does, in comments, strings and documents. A hint: the exit status is 0 with findings too.

  FILE...      only these files
  --base REF   lines added since REF, uncommitted ones included; by default since the merge base with main, or HEAD~1 on main
  --all        all lines`,
};

/** Generated files, and those that consist of the words themselves. */
const SKIPPED =
  /^(?:docs\/protocol\/(?!README)|scripts\/wording\/|test\/unit\/scripts\/words\.test\.ts|dist\/|node_modules\/)/;

function git(...args: readonly string[]): string | undefined {
  try {
    return execFileSync("git", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], maxBuffer: 2 ** 28 });
  } catch {
    return undefined;
  }
}

const linesOf = (text: string): readonly string[] => text.split("\n").filter((line) => line !== "");

function defaultBase(): string | undefined {
  const head = git("rev-parse", "HEAD")?.trim();
  for (const main of ["origin/main", "main"]) {
    const base = git("merge-base", "HEAD", main)?.trim();
    if (base !== undefined && base !== head) return base;
  }
  return git("rev-parse", "--verify", "HEAD~1")?.trim();
}

function addedSince(base: string): Added {
  const diff = git("diff", "--unified=0", "--no-prefix", "--no-color", "--no-ext-diff", base, "--");
  if (diff === undefined) misuse(PROGRAM, `--base: git knows no revision '${base}'`);
  const untracked = linesOf(git("ls-files", "--others", "--exclude-standard") ?? "");
  return new Map<string, ReadonlySet<number> | undefined>([
    ...addedLinesOf(diff),
    ...untracked.map((path) => [path, undefined] as const),
  ]);
}

function wholeTree(): Added {
  const paths = linesOf(git("ls-files", "--cached", "--others", "--exclude-standard") ?? "");
  return new Map(paths.map((path) => [path, undefined]));
}

function main(): number {
  const { values, positionals } = readCommand(PROGRAM, {
    options: { all: { type: "boolean" }, base: { type: "string" } },
    allowPositionals: true,
  });
  if (values.all === true && values.base !== undefined) misuse(PROGRAM, "--all and --base exclude each other");
  const given = positionals.map((path) => relative(process.cwd(), resolve(path)));
  for (const path of given) if (!existsSync(path)) misuse(PROGRAM, `${path}: no such file`);
  const base = values.base ?? (values.all === true ? undefined : defaultBase());
  if (base === undefined && values.all !== true) {
    console.log("words: there is no git history to compare with; --all reads the whole tree");
    return 0;
  }
  const added = base === undefined ? wholeTree() : addedSince(base);
  let count = 0;
  for (const [path, lines] of added) {
    const isAsked = given.length === 0 || given.some((wanted) => path === wanted || path.startsWith(`${wanted}/`));
    if (!isAsked || SKIPPED.test(path) || !existsSync(path) || !statSync(path).isFile()) continue;
    for (const { line, text, startsDocComment } of proseOf(path, readFileSync(path, "utf8"))) {
      if (lines !== undefined && !lines.has(line)) continue;
      const riddle = startsDocComment ? riddleOf(text) : undefined;
      for (const { found, write } of [...(riddle === undefined ? [] : [riddle]), ...wordsOf(text)]) {
        console.log(`${path}:${line}: "${found}": ${write}`);
        count += 1;
      }
    }
  }
  console.log(count === 0 ? "words: no hints" : `words: ${count} hints; see CONTRIBUTING.md, "Words"`);
  return 0;
}

process.exitCode = main();
