import { z } from "zod";
import { HostError, type AgentError } from "../../errors.ts";
import { BundleReport, INLINE_BUNDLE_BYTES } from "../../protocol/documents/bundle.ts";
import type { Exec } from "./exec.ts";

export interface BundleProcessOptions {
  readonly exec: Pick<Exec, "run">;
  readonly stateDir: string;
  readonly runDir: string;
  /** The file of local settings that was named to this process. */
  readonly config?: string | undefined;
  /** What is started instead of this program. */
  readonly command?: readonly [file: string, ...args: string[]];
}

/** Makes a bundle of at most so many bytes of content. @throws {HostError} as `holdfast bundle`, `bundle-failed`, `too-large`. */
export type MakeBundle = (
  maxBytes: number,
  signal: AbortSignal,
) => Promise<BundleReport & { readonly archive: string }>;

const VERB = "bundle";
/** The doctor has two minutes, and the rest half a minute. */
const DEADLINE_MS = 160_000;
/** Base64 of the largest archive, and what is told of its parts. */
const MAX_OUTPUT_BYTES = Math.ceil((INLINE_BUNDLE_BYTES * 4) / 3) + 1024 * 1024;
/** How the verb says why it failed, with `--json`. */
const Failed = z.object({ error: z.object({ code: z.string(), message: z.string() }) });

/**
 * Runs `holdfast bundle` in a process of its own, so that what it reads leaves nothing in this one. The archive comes through a pipe: it
 * needs no room on a disk that may be full.
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
    if (report?.archive === undefined) throw new HostError("bundle-failed", "it said what is not understood");
    if (report.bytes > INLINE_BUNDLE_BYTES) throw tooLarge();
    return { ...report, archive: report.archive };
  };
}

function tooLarge(): HostError {
  return new HostError(
    "too-large",
    `the archive has more than ${INLINE_BUNDLE_BYTES} bytes: ask for less with maxBytes`,
  );
}

function failure(stdout: string, stderr: string, exitCode: number): AgentError {
  const told = Failed.safeParse(jsonOf(stdout)).data;
  if (told !== undefined) return new HostError(told.error.code, told.error.message);
  return new HostError("bundle-failed", `it ended with status ${exitCode}: ${stderr.trim().slice(-300)}`);
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
