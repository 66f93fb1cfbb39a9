import { HostError } from "../../../errors.ts";
import type { Exec, ExecResult, SpawnOptions } from "../../process/exec.ts";
import { defined } from "../../../lib/defined.ts";

/** Output limit of one tool; a full internet routing table stays below it. */
const MAX_OUTPUT_BYTES = 128 * 1024 * 1024;
const DEADLINE_MS = 60_000;

/** Runs ip, nft and similar tools; passes on their error output completely. */
export interface ToolRunner {
  /**
   * Runs a tool until it exits. A non-zero exit status is a result.
   * @throws {HostError} `tool-missing`, `exec-failed`, `timeout`, or `too-much-output`.
   */
  run(file: string, args: readonly string[], signal: AbortSignal, input?: SpawnOptions["input"]): Promise<ExecResult>;
}

/** Returns a runner over `exec` with limits on time and output. */
export function toolRunner(exec: Pick<Exec, "run">, maxOutputBytes = MAX_OUTPUT_BYTES): ToolRunner {
  return {
    async run(file, args, signal, input) {
      const options = { signal, deadlineMs: DEADLINE_MS, maxOutputBytes, ...defined({ input }) };
      const result = await exec.run(file, args, options);
      if (!result.truncated) return result;
      throw new HostError("too-much-output", `${file} wrote more than ${maxOutputBytes} bytes`, {
        details: { tool: file },
      });
    },
  };
}

/** Returns the error of a failed tool with its own message. */
export function refusal(code: string, file: string, { exitCode, stderr }: ExecResult): HostError {
  const reason = stderr.trim().slice(0, 2000);
  return new HostError(code, `${file}: ${reason === "" ? `exit status ${exitCode}` : reason}`, {
    details: { tool: file, exitCode },
  });
}
