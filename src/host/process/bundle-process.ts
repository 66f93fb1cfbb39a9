import { z } from "zod";
import { HostError, type AgentError } from "../../errors.ts";
import { BundleReport, INLINE_BUNDLE_BYTES } from "../../protocol/documents/bundle.ts";
import type { Exec } from "./exec.ts";

export interface BundleProcessOptions {
  readonly exec: Pick<Exec, "run">;
  readonly stateDir: string;
  readonly runDir: string;
  /** Path of the local settings file given to this process. */
  readonly config?: string | undefined;
  /** Replaces this program's own command line. */
  readonly command?: readonly [file: string, ...args: string[]];
}

/** Makes a bundle of at most this many bytes. @throws {HostError} as `holdfast bundle`, `bundle-failed`, `too-large`. */
export type MakeBundle = (
  maxBytes: number,
  signal: AbortSignal,
) => Promise<BundleReport & { readonly archive: string }>;

const VERB = "bundle";
/** Two minutes for the doctor, and 40 s for the rest. */
const DEADLINE_MS = 160_000;
/** Base64 of the largest archive, and the description of its parts. */
const MAX_OUTPUT_BYTES = Math.ceil((INLINE_BUNDLE_BYTES * 4) / 3) + 1024 * 1024;
/** The verb's failure with `--json`. */
const Failed = z.object({ error: z.object({ code: z.string(), message: z.string() }) });

/**
 * Runs `holdfast bundle` in a process of its own, which frees all its memory on exit. The archive comes through a pipe, so it
 * needs no disk space.
 */
export function bundleProcess({ exec, stateDir, runDir, config, command }: BundleProcessOptions): MakeBundle {
  const [runtime = process.execPath, entry = ""] = process.argv;
  const [file, ...args] = command ?? [runtime, ...process.execArgv, entry, VERB];
  const where = ["--state", stateDir, "--run", runDir, ...(config === undefined ? [] : ["--config", config])];
  return async (maxBytes, signal) => {
    const asked = [...args, "--json", "--to", "-", "--max", String(maxBytes), ...where];
    const options = { signal, deadlineMs: DEADLINE_MS, maxOutputBytes: MAX_OUTPUT_BYTES };
    const { stdout, stderr, exitCode, truncated } = await exec.run(file, asked, options);
    if (truncated) throw tooLarge();
    if (exitCode !== 0) throw failure(stdout, stderr, exitCode);
    const report = BundleReport.safeParse(jsonOf(stdout)).data;
    if (report?.archive === undefined)
      throw new HostError("bundle-failed", "the output of 'holdfast bundle' is not valid");
    if (report.bytes > INLINE_BUNDLE_BYTES) throw tooLarge();
    return { ...report, archive: report.archive };
  };
}

function tooLarge(): HostError {
  return new HostError(
    "too-large",
    `the archive has more than ${INLINE_BUNDLE_BYTES} bytes; request less with maxBytes`,
  );
}

function failure(stdout: string, stderr: string, exitCode: number): AgentError {
  const reported = Failed.safeParse(jsonOf(stdout)).data;
  if (reported !== undefined) return new HostError(reported.error.code, reported.error.message);
  return new HostError(
    "bundle-failed",
    `'holdfast bundle' exited with status ${exitCode}: ${stderr.trim().slice(-300)}`,
  );
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
