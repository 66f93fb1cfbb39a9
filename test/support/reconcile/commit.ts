import { pino } from "pino";
import { Commit } from "../../../src/agent/reconcile/commit.ts";
import type { CommitOptions } from "../../../src/agent/reconcile/commit.ts";
import type { Baseline, Prover, Unreached } from "../../../src/agent/reconcile/prover.ts";
import { Checkpoint } from "../../../src/checkpoint/checkpoint.ts";
import { commitFiles } from "../../../src/checkpoint/commit-files.ts";
import type { Clock } from "../../../src/host/clock.ts";
import { hostFiles, type Files } from "../../../src/host/files/files.ts";
import { ownProcess } from "../../../src/host/process/process-tree.ts";

export const BOOT = "0197f1a2-0000-4000-8000-00000000b007";

/** A prover that accepts everything. */
export const provenAtOnce: Prover = {
  baseline: () => ({ session: true, gateways: [] }),
  attempt: () => Promise.resolve([]),
  controlPlane: () => Promise.resolve(undefined),
  servingMs: () => Promise.resolve(undefined),
};

/** A confirmed commit over the files of `dir`, without a watcher, that verifies everything at once by default. */
export function testCommit(
  dir: string,
  clock: Clock,
  options: Partial<CommitOptions> & { readonly disk?: Files } = {},
): Commit {
  const { disk = hostFiles(), ...others } = options;
  return new Commit({
    clock,
    log: pino({ level: "silent" }),
    bootId: BOOT,
    owner: ownProcess(),
    checkpoint: new Checkpoint(disk, dir),
    files: commitFiles(disk, dir),
    prover: provenAtOnce,
    watch: () => Promise.resolve({ end: () => Promise.resolve() }),
    alone: (work) => work(),
    request: () => ({ mode: "save", seconds: 120, isLocal: false }),
    original: () => undefined,
    refuse: () => Promise.resolve(false),
    onRollback: () => undefined,
    onProven: () => undefined,
    onFound: () => undefined,
    onRelease: () => undefined,
    onStanding: () => undefined,
    ...others,
  });
}

/** The default proof of tests that apply documents. */
export const testProof = {
  bootId: BOOT,
  owner: ownProcess(),
  prover: provenAtOnce,
  watch: () => Promise.resolve({ end: () => Promise.resolve() }),
  onProven: () => undefined,
};

/** A prover with the test's results. */
export class ScriptedProver implements Prover {
  /** Before the change, and after it. */
  session = true;
  gateways: string[] = [];
  /** Targets not reached: by the change, and by the control plane's attempt after a rollback. */
  unreached: readonly Unreached[] = [];
  afterRestore: Unreached | undefined;
  attempts = 0;
  onAttempt: (baseline: Baseline) => void = () => undefined;

  baseline(): { session: boolean; gateways: string[] } {
    return { session: this.session, gateways: this.gateways };
  }

  /** Never answers, until the attempt is given up. */
  isSilent = false;

  attempt(baseline: Baseline, signal: AbortSignal): Promise<readonly Unreached[]> {
    this.attempts += 1;
    this.onAttempt(baseline);
    if (!this.isSilent) return Promise.resolve(this.unreached);
    return new Promise((resolve) => signal.addEventListener("abort", () => resolve(this.unreached), { once: true }));
  }

  /** The control plane's uptime. */
  serving: number | undefined;

  servingMs(): Promise<number | undefined> {
    return Promise.resolve(this.serving);
  }

  controlPlane(): Promise<Unreached | undefined> {
    return Promise.resolve(this.afterRestore);
  }
}
