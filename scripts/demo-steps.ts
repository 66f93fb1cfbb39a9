// What demos with a tour of commands share: each command is run and its answer judged, or all are shown to be tried by hand.
import { spawn, type ChildProcess } from "node:child_process";
import { text } from "node:stream/consumers";
import type { Stop } from "./demo-tour.ts";

const LIMIT_MS = 20_000;
const COMMAND_MS = 120_000;
const LOOK_MS = 200;

/** The commands of a demo; those that still run end with it. */
export function tourSteps() {
  const running = new Set<ChildProcess>();

  /** Returns the output of a command line; one that fails has printed the reason. */
  async function shell(command: string): Promise<string> {
    const child = spawn("bash", ["--norc", "-c", command], { detached: true, stdio: ["ignore", "pipe", "inherit"] });
    running.add(child);
    const timer = setTimeout(() => endGroup(child), COMMAND_MS);
    const said = await text(child.stdout);
    clearTimeout(timer);
    running.delete(child);
    return said;
  }

  return {
    /** Runs every step. @throws {Error} at the first that does not answer as it should */
    async check(tour: readonly Stop[]): Promise<void> {
      for (const { title, command, expect, isEventual = false, limitMs = LIMIT_MS } of tour) {
        console.log(`\n# ${title}\n$ ${command}`);
        const end = Date.now() + (isEventual ? limitMs : 0);
        let answer = await shell(command);
        while (!expect.test(answer) && Date.now() < end) {
          await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
          answer = await shell(command);
        }
        console.log(answer.trimEnd());
        if (!expect.test(answer)) throw new Error(`«${title}» did not answer with ${String(expect)}`);
      }
      console.log("\ndemo: every step worked");
    },
    /** Prints every step, and what is there to try them on. */
    show(tour: readonly Stop[], what: string): void {
      console.log(`\n${what} Try these in another terminal, from this folder:\n`);
      for (const { title, command } of tour) console.log(`  # ${title}\n  ${command}\n`);
      console.log("Ctrl-C stops everything.");
    },
    end(): void {
      for (const child of running) endGroup(child);
    },
  };
}

function endGroup({ pid }: ChildProcess): void {
  if (pid !== undefined) process.kill(-pid, "SIGKILL");
}
