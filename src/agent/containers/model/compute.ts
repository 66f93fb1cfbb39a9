import type { ImageSummary, OutputFrame, PullProgress, Terminal } from "../../../host/engine/engine.ts";
import type { ExecType } from "../../../protocol/sections/exec/config.ts";

/** State of a definition; the wire shows three of them (`WIRE_STATES`). */
export type WorkState = "idle" | "waiting" | "pulling" | "creating" | "running" | "stopping" | "backoff";

export const WIRE_STATES: Readonly<Record<WorkState, "INITIALIZING" | "RUNNING" | "STOPPED">> = {
  idle: "STOPPED",
  waiting: "STOPPED",
  pulling: "INITIALIZING",
  creating: "INITIALIZING",
  running: "RUNNING",
  stopping: "RUNNING",
  backoff: "STOPPED",
};

/** Status of one definition; times in Unix milliseconds. */
export interface ContainerStatus {
  readonly id: string;
  readonly name: string;
  readonly execType: ExecType;
  readonly enabled: boolean;
  /** True if the control plane stores its output. */
  readonly savesOutput: boolean;
  readonly state: WorkState;
  readonly since: number;
  /** Reason why it does not run, such as `pull failed: unauthorized`. */
  readonly reason: string | undefined;
  readonly nextAttempt: number | undefined;
  readonly nextRun: number | undefined;
  readonly isStoppedByHand: boolean;
  readonly health: "healthy" | "unhealthy" | undefined;
  /** Exits of its process since the agent knows it, restarts by the engine included. */
  readonly restarts: number;
  /** Out-of-memory kills since the agent knows it. */
  readonly oomKills: number;
  readonly lastExitCode: number | undefined;
  readonly image: { readonly repository: string; readonly tag: string };
  /** Id at the engine; undefined without a container. */
  readonly engineId: string | undefined;
  readonly imageId: string | undefined;
  readonly address: string | undefined;
}

export interface VolumeStatus {
  readonly name: string;
  readonly state: "ready" | "missing" | "unsupported" | "quarantined" | "failed";
  readonly reason: string | undefined;
  readonly encrypted: boolean;
  readonly path: string | undefined;
  readonly usedBy: readonly string[];
}

/** The containers of this node, for triggers, the local API, shadow, metrics and events. */
export interface Compute {
  /** State of the engine and its start time. */
  readonly engine: {
    readonly state: "unused" | "unknown" | "well" | "unwell";
    readonly since: number;
    readonly reason: string | undefined;
  };
  /** Ordered by name. */
  containers(): readonly ContainerStatus[];
  volumes(): readonly VolumeStatus[];
  /** Notifies of every change of the two fields above. */
  onChange(listener: () => void): void;
  /**
   * Starts a container by name and resolves once it runs. With `onOutput` the run is attached: resolves when it has ended, and an abort
   * of the signal ends it.
   * @throws {InputError} `not-found`, `not-configured` (disabled), `busy` (a run is on); {HostError} why it could not start.
   */
  start(name: string, options: StartOptions, signal: AbortSignal): Promise<{ readonly exitCode: number | undefined }>;
  /** Stops a container until it is started or its definition changes. @throws as `start`. */
  stop(name: string, signal: AbortSignal): Promise<void>;
  restart(name: string, signal: AbortSignal): Promise<void>;
  /** Output of the current run. @throws {InputError} `not-found`; {HostError} of the engine. */
  logs(
    name: string,
    options: { readonly follow: boolean; readonly lines: number },
    signal: AbortSignal,
  ): AsyncIterable<OutputFrame>;
  /**
   * Returns the output of a container's current run from a time on (Unix seconds), each line prefixed with its time (RFC 3339); ends with
   * the run. `run` identifies the run. Rejects like `Engine`.
   */
  output(engineId: string, since: string | undefined, signal: AbortSignal): Promise<RunOutput>;
  /** Opens a shell, or runs the given command, in a running container as its user. @throws {InputError} `not-found`, `not-configured` (does not run). */
  terminal(name: string, request: TerminalRequest, signal: AbortSignal): Promise<Terminal>;
  /** Lists the engine's images. */
  images(signal: AbortSignal): Promise<readonly ImageSummary[]>;
  /** Removes an image by repository and tag as definitions name it. @throws {InputError} `not-found`, `busy` (in use, by what). */
  removeImage(repository: string, tag: string, signal: AbortSignal): Promise<void>;
}

/** Output of one run of a container. */
export interface RunOutput {
  readonly run: string;
  readonly frames: AsyncIterable<OutputFrame>;
}

/** Initial parameters of a terminal. */
export interface TerminalRequest {
  readonly columns: number;
  readonly rows: number;
  /** Command to run instead of a shell. */
  readonly command?: readonly string[];
}

export interface StartOptions {
  readonly onOutput?: (frame: OutputFrame) => Promise<void>;
  readonly onPull?: (progress: PullProgress) => void;
}
