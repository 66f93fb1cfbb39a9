import type { Logger } from "pino";
import type { Checkpoint } from "../../checkpoint/checkpoint.ts";
import type { CommitFiles, TakenBack } from "../../checkpoint/commit-files.ts";
import type { WindowRequest } from "../../checkpoint/window.ts";
import type { Clock } from "../../host/clock.ts";
import type { ProcessId } from "../../host/process/process-tree.ts";
import type { Prover } from "./prover.ts";
import type { Guards } from "./held-change.ts";

/** A process that guards a window from outside. */
export interface Watcher {
  end(): Promise<void>;
}

export interface CommitOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly bootId: string;
  readonly owner: ProcessId;
  readonly checkpoint: Checkpoint;
  readonly files: CommitFiles;
  readonly prover: Prover;
  /** Starts a guard of the window `id` that outlives this process. @throws {HostError} if it cannot start. */
  readonly watch: (id: string, waitMs: number, signal: AbortSignal) => Promise<Watcher>;
  /** Runs a restore under the restore lock, if the lock can be taken in time. */
  readonly alone: <T>(work: () => Promise<T>, signal: AbortSignal) => Promise<T>;
  /** Returns the confirm request of the desired change; `isLocal` for a trial on this machine. */
  readonly request: () => WindowRequest & { readonly isLocal: boolean };
  /** Returns the documents' value of a section that is on trial on this machine. */
  readonly original: (section: string) => unknown;
  /** Reports whether an operator on this machine approved this value, so that it needs no proof. */
  readonly isGiven?: (section: string, raw: unknown) => boolean;
  /** Reverts the documents to the confirmed ones; resolves to whether any document was reverted. */
  readonly refuse: (takenBack: TakenBack, guards: Guards) => Promise<boolean>;
  /** Called after a rollback. */
  readonly onTakenBack: (takenBack: TakenBack) => void;
  /** Called after a change was proven over new connections. */
  readonly onProven: () => void;
  /** Called once the state that an earlier agent left is known. */
  readonly onFound: () => void;
  /** Called when the effective configuration changed. */
  readonly onRelease: () => void;
  /** Called when the state of the window changed. */
  readonly onStanding: () => void;
}
