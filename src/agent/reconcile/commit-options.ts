import type { Logger } from "pino";
import type { Checkpoint } from "../../checkpoint/checkpoint.ts";
import type { CommitFiles, TakenBack } from "../../checkpoint/commit-files.ts";
import type { WindowRequest } from "../../checkpoint/window.ts";
import type { Clock } from "../../host/clock.ts";
import type { ProcessId } from "../../host/process/process-tree.ts";
import type { Prover } from "./prover.ts";
import type { Guards } from "./withholding.ts";

/** Whoever watches a window from outside; ends when told. */
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
  /** Has the window `id` watched by somebody who outlives this process. @throws {HostError} when nobody can. */
  readonly watch: (id: string, waitMs: number, signal: AbortSignal) => Promise<Watcher>;
  /** Runs a restore alone among those who restore, as far as they can be waited for. */
  readonly alone: <T>(work: () => Promise<T>, signal: AbortSignal) => Promise<T>;
  /** What is asked of the change that is desired now; local is what somebody tries on this machine. */
  readonly request: () => WindowRequest & { readonly isLocal: boolean };
  /** What the documents themselves say of a section that is tried on this machine. */
  readonly original: (section: string) => unknown;
  /** Whether somebody on this machine vouches for this value of a section, so that it need not prove itself. */
  readonly isGiven?: (section: string, raw: unknown) => boolean;
  /** Has the documents go back to what was confirmed; resolves whether one of them did. */
  readonly refuse: (takenBack: TakenBack, guards: Guards) => Promise<boolean>;
  /** A change was taken back. */
  readonly onTakenBack: (takenBack: TakenBack) => void;
  /** A change was proven, over new connections. */
  readonly onProven: () => void;
  /** What an earlier agent left is known: what was kept on this machine, and a trial that goes on. */
  readonly onFound: () => void;
  /** What is to be applied is otherwise than before. */
  readonly onRelease: () => void;
  /** How the window stands is otherwise than before. */
  readonly onStanding: () => void;
}
