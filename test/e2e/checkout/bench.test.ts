import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { expect, onTestFinished, test } from "vitest";
import { atOnce } from "../../support/at-once.ts";
import { sampleOf } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

/** Returns processes with a path below a directory in their arguments. */
function processesOf(dir: string): readonly string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        return readFileSync(join("/proc", pid, "cmdline"), "utf8").includes(dir);
      } catch {
        // It has exited meanwhile.
        return false;
      }
    });
}

const ENDS = [
  { signal: "SIGTERM", status: 143 },
  { signal: "SIGINT", status: 130 },
  { signal: "SIGHUP", status: 129 },
] as const;

test("a bench that is ended by a signal leaves neither processes nor files", async () => {
  await atOnce(sampleOf(ENDS, 1, "signals that end a bench"), ({ signal }) => signal, leavesNothing);
});

async function leavesNothing({ signal, status }: (typeof ENDS)[number]): Promise<void> {
  const temporary = tempDir();
  const args = ["--disable-warning=ExperimentalWarning", "scripts/bench.ts", "idle", "--force"];
  const bench = spawn(process.execPath, args, {
    env: { ...process.env, TMPDIR: temporary },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  onTestFinished(() => void bench.kill("SIGKILL"));
  let output = "";
  bench.stdout.setEncoding("utf8").on("data", (piece: string) => (output += piece));
  const complaints = text(bench.stderr);
  const ended = once(bench, "close");
  // Controller, agent and an idle Node run by then.
  await waitFor("the bench watches", () => output.includes("watching for"));
  const programs = processesOf(temporary);
  expect(programs.length).toBeGreaterThanOrEqual(2);
  expect(readdirSync(temporary)).toEqual([expect.stringMatching(/^holdfast-bench-/)]);
  bench.kill(signal);
  expect(await ended).toEqual([status, null]);
  expect(await complaints).toBe("");
  expect(readdirSync(temporary)).toEqual([]);
  expect(processesOf(temporary)).toEqual([]);
}
