// Runs the tour without anybody: every command must answer what it should.
import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { Lab } from "./lab.ts";
import { LabError } from "./shell.ts";
import type { Stop } from "../demo-tour.ts";
import { tour } from "./tour.ts";

const EVENTUALLY_MS = 30_000;
const COMMAND_MS = 60_000;
/** Shortest pause between two attempts; a command that takes long is repeated more rarely, since it starts several programs. */
const PAUSE_MS = 500;
const PAUSE_PER_COMMAND = 5;

/** Builds a lab, in place of one that is there, shows everything, and takes it away; gives the exit status. */
export async function check(dir: string, up: () => Promise<void>): Promise<number> {
  const begun = performance.now();
  const seconds = (): string => `${((performance.now() - begun) / 1000).toFixed(0)} s`;
  try {
    await up();
    for (const stop of tour) {
      console.log(`\n# ${stop.title} (${seconds()})\n$ ${stop.command}`);
      const { answer, isRight } = await answerTo(stop);
      console.log(answer.length > 2500 ? `${answer.slice(0, 2500)}…` : answer.trimEnd());
      if (!isRight) throw new LabError(`«${stop.title}» did not answer with ${String(stop.expect)}`);
    }
    console.log(`\nlab: every step worked, ${seconds()}`);
    await Lab.down(dir);
    return 0;
  } catch (error) {
    console.error(`lab: ${error instanceof Error ? error.message : String(error)}`);
    await Lab.down(dir, { keepsFiles: true });
    console.error(`lab: taken down; its logs are below ${dir}/`);
    return 1;
  }
}

/** The answer that is waited for, or the last one. */
async function answerTo({ command, expect, isEventual, limitMs = EVENTUALLY_MS }: Stop) {
  const end = performance.now() + limitMs;
  for (;;) {
    const begun = performance.now();
    const answer = await shell(command);
    const tookMs = performance.now() - begun;
    const isRight = expect.test(answer);
    if (isRight || isEventual !== true || performance.now() > end) return { answer, isRight };
    await new Promise((resolve) => setTimeout(resolve, Math.max(PAUSE_MS, PAUSE_PER_COMMAND * tookMs)));
  }
}

/** Runs one command line, as it would be typed, and gives everything it printed. */
async function shell(command: string): Promise<string> {
  const child = spawn("bash", ["--norc", "-c", `exec 2>&1; ${command}`], {
    detached: true,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const timer = setTimeout(() => {
    if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
  }, COMMAND_MS);
  try {
    return await text(child.stdout);
  } finally {
    clearTimeout(timer);
  }
}
