/** Lines that were added to a file, counted from 1; `undefined` means all of them. */
export type Added = ReadonlyMap<string, ReadonlySet<number> | undefined>;

/** Reads the added lines of each file from the output of `git diff --unified=0 --no-prefix`. */
export function addedLinesOf(diff: string): Map<string, Set<number>> {
  const added = new Map<string, Set<number>>();
  let lines = new Set<number>();
  for (const line of diff.split("\n")) {
    const path = /^\+\+\+ (.+?)\t?$/.exec(line)?.[1];
    if (path !== undefined) {
      lines = new Set();
      if (path !== "/dev/null") added.set(path, lines);
      continue;
    }
    const [, start, count = "1"] = /^@@ -\S+ \+(\d+)(?:,(\d+))? @@/.exec(line) ?? [];
    if (start === undefined) continue;
    for (let offset = 0; offset < Number(count); offset += 1) lines.add(Number(start) + offset);
  }
  return added;
}
