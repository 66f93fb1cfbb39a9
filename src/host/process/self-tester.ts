import { HostError } from "../../errors.ts";
import type { Exec, ExecResult } from "./exec.ts";

/** How a version's own test went; `check` is the first that failed. */
export type SelfTestResult =
  | { readonly is: "passed" }
  | { readonly is: "failed"; readonly check: string; readonly message: string };

export interface SelfTester {
  /** `path` holds the version, and what the test needs to write goes below `work`. */
  /** @throws {HostError} `self-test-killed` when somebody else ended it, and what kept it from being started */
  run(where: { readonly path: string; readonly work: string }, signal: AbortSignal): Promise<SelfTestResult>;
}

/** The verb by which a version tests itself. */
export const SELF_TEST_VERB = "self-test";

export interface SelfTesterOptions {
  readonly exec: Exec;
  readonly stateDir: string;
  readonly configFile: string;
  readonly deadlineMs?: number;
}

const KILLED = 128 + 9;
const MAX_OUTPUT_BYTES = 64 * 1024;
/** Without capabilities, and with no way to gain any. */
const HARMLESS = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--"];
const NO_NETWORK = ["unshare", "--net", "--"];

/** Runs a version's own test by its own runtime: without privileges and, where the kernel allows it, without a network. */
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
        // Where the tools around it are missing, nothing is known of the version.
        const isItself = error instanceof HostError && (error.code === "timeout" || file === program[0]);
        if (!isItself) throw error;
        const what = error.code === "timeout" ? `it did not end within ${deadlineMs / 1000} s` : error.message;
        return { is: "failed", check: "start", message: what };
      }
      // Whoever is short of memory picks any process.
      if (result.exitCode === KILLED) throw new HostError("self-test-killed", `the test of ${path} was killed`);
      return judge(result);
    },
  };

  /** What keeps the test from doing harm; only root has privileges to be rid of. */
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

/** Lines are `PASS name` or `FAIL name: why`; the exit status has the last word. Pure. */
export function judge({
  exitCode,
  stdout,
  stderr,
}: Pick<ExecResult, "exitCode" | "stdout" | "stderr">): SelfTestResult {
  const [, check, message] = /^FAIL ([a-z-]{1,32}): (.*)$/m.exec(stdout) ?? [];
  if (check !== undefined) return { is: "failed", check, message: message ?? "" };
  // A program that does not know the verb, or does nothing, has tested nothing.
  if (exitCode === 0 && /^PASS /m.test(stdout)) return { is: "passed" };
  const lines = stderr.trim().split("\n");
  const said = lines.find((line) => /^\w*Error\b/.test(line)) ?? lines.at(-1) ?? "";
  return {
    is: "failed",
    check: "start",
    message: `exit status ${exitCode}${said === "" ? "" : `: ${said.slice(0, 512)}`}`,
  };
}
