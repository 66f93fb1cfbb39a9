import { HostError } from "../../errors.ts";
import type { Exec, ExecResult } from "./exec.ts";

/** The result of a version's own test; `check` is the first check that failed. */
export type SelfTestResult =
  | { readonly is: "passed" }
  | { readonly is: "failed"; readonly check: string; readonly message: string };

export interface SelfTester {
  /** Tests the version at `path`; the test writes only below `work`. */
  /** @throws {HostError} `self-test-killed` if another process killed it; errors of starting it */
  run(where: { readonly path: string; readonly work: string }, signal: AbortSignal): Promise<SelfTestResult>;
}

/** The verb by which a version tests itself. */
const SELF_TEST_VERB = "self-test";

export interface SelfTesterOptions {
  readonly exec: Exec;
  readonly stateDir: string;
  readonly configFile: string;
  readonly deadlineMs?: number;
}

const KILLED = 128 + 9;
const MAX_OUTPUT_BYTES = 64 * 1024;
/** Runs without capabilities and with no way to gain any. */
const HARMLESS = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--"];
const NO_NETWORK = ["unshare", "--net", "--"];

/** Runs a version's own test with its own runtime: without privileges and, if the kernel allows it, without network access. */
export function hostSelfTester({ exec, stateDir, configFile, deadlineMs = 60_000 }: SelfTesterOptions): SelfTester {
  return {
    async run({ path, work }, signal) {
      const program = [
        `${path}/node`,
        "--disable-sigusr1",
        "--disable-warning=ExperimentalWarning",
        `${path}/holdfast.mjs`,
      ];
      const args = [SELF_TEST_VERB, "--state", stateDir, "--config", configFile, "--work", work];
      const [file = "", ...rest] = [...(await cage(signal)), ...program, ...args];
      let result: ExecResult;
      try {
        result = await exec.run(file, rest, { deadlineMs, maxOutputBytes: MAX_OUTPUT_BYTES, signal });
      } catch (error) {
        signal.throwIfAborted();
        // A missing helper tool proves nothing about the version.
        const isItself = error instanceof HostError && (error.code === "timeout" || file === program[0]);
        if (!isItself) throw error;
        const what = error.code === "timeout" ? `it timed out after ${deadlineMs / 1000} s` : error.message;
        return { is: "failed", check: "start", message: what };
      }
      // The kernel may kill any process when memory is short.
      if (result.exitCode === KILLED) throw new HostError("self-test-killed", `the test of ${path} was killed`);
      return judge(result);
    },
  };

  /** Returns the command prefix that isolates the test; only root has privileges to drop. */
  async function cage(signal: AbortSignal): Promise<readonly string[]> {
    if (process.geteuid?.() !== 0) return [];
    const probe = await exec.run("unshare", ["--net", "--", "true"], {
      deadlineMs: 10_000,
      maxOutputBytes: 4096,
      signal,
    });
    return [...(probe.exitCode === 0 ? NO_NETWORK : []), ...HARMLESS];
  }
}

/** Judges a test's output: lines are `PASS name` or `FAIL name: why`. The exit status decides. Pure. */
export function judge({
  exitCode,
  stdout,
  stderr,
}: Pick<ExecResult, "exitCode" | "stdout" | "stderr">): SelfTestResult {
  const [, check, message] = /^FAIL ([a-z-]{1,32}): (.*)$/m.exec(stdout) ?? [];
  if (check !== undefined) return { is: "failed", check, message: message ?? "" };
  // A program that does not know the verb, or does nothing, prints no PASS.
  if (exitCode === 0 && /^PASS /m.test(stdout)) return { is: "passed" };
  const lines = stderr.trim().split("\n");
  const reason = lines.find((line) => /^\w*Error\b/.test(line)) ?? lines.at(-1) ?? "";
  return {
    is: "failed",
    check: "start",
    message: `exit status ${exitCode}${reason === "" ? "" : `: ${reason.slice(0, 512)}`}`,
  };
}
