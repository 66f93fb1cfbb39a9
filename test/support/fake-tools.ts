import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../../src/host/clock.ts";
import { hostExec, SEARCH_PATH, type Exec } from "../../src/host/process/exec.ts";
import { tempDir } from "./temp-dir.ts";

/** Programs of these names that run their shell lines, before those of the machine in the path. */
export interface FakeTools {
  readonly exec: Exec;
  /** Returns the command lines of a tool, in order. */
  calls(tool: string): readonly string[];
  /** Returns the lines of a file that a script wrote beside itself, by its name. */
  read(name: string): readonly string[];
}

/** Replaces tools by shell scripts; each records its command line. */
export function fakeTools(scripts: Readonly<Record<string, string>>): FakeTools {
  const directory = tempDir();
  const notes = (tool: string): string => join(directory, `${tool}.calls`);
  for (const [tool, script] of Object.entries(scripts)) {
    writeFileSync(notes(tool), "");
    writeFileSync(join(directory, tool), `#!/bin/sh\necho "$*" >>'${notes(tool)}'\n${script}\n`);
    chmodSync(join(directory, tool), 0o755);
  }
  return {
    exec: hostExec(systemClock(), `${directory}:${SEARCH_PATH}`),
    read: (name) => readFileSync(join(directory, name), "utf8").split("\n").slice(0, -1),
    calls: (tool) => readFileSync(notes(tool), "utf8").split("\n").slice(0, -1),
  };
}
