import type { ImageSummary, OutputFrame, PullProgress, Terminal } from "../../../host/engine/engine.ts";
import type { ExecType } from "../../../protocol/sections/exec/config.ts";

/** Where a definition stands; the wire shows three of them (`WIRE_STATES`). */
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

/** What is known of one definition; times in Unix milliseconds. */
export interface ContainerStatus {
  readonly id: string;
  readonly name: string;
  readonly execType: ExecType;
  readonly enabled: boolean;
  /** Whether what it writes is kept by the control plane. */
  readonly savesOutput: boolean;
  readonly state: WorkState;
  readonly since: number;
  /** Why it does not run, for people: `pull failed: unauthorized`. */
  readonly reason: string | undefined;
  readonly nextAttempt: number | undefined;
  readonly nextRun: number | undefined;
  readonly isStoppedByHand: boolean;
  readonly health: "healthy" | "unhealthy" | undefined;
  /** Exits of its process since the agent knows it, starts by the engine included. */
  readonly restarts: number;
  /** How often the kernel killed a process of it for want of memory, since the agent knows it. */
  readonly oomKills: number;
  readonly lastExitCode: number | undefined;
  readonly image: { readonly repository: string; readonly tag: string };
  /** Of the engine; undefined while there is none. */
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

/** The containers of this node, as triggers, the local API, shadow, metrics and events see them. */
export interface Compute {
  /** Whether the engine answers, and since when. */
  readonly engine: {
    readonly state: "unused" | "unknown" | "well" | "unwell";
    readonly since: number;
    readonly reason: string | undefined;
  };
  /** In the order of their names. */
  containers(): readonly ContainerStatus[];
  volumes(): readonly VolumeStatus[];
  /** Told of every change of what the two above say. */
  onChange(listener: () => void): void;
  /**
   * Starts one by name, and resolves once it runs. `onOutput` makes it an attached run: resolves when that has ended, and ends it when
   * the signal is aborted.
   * @throws {InputError} `not-found`, `not-configured` (disabled), `busy` (a run is on); {HostError} why it could not start.
   */
  start(name: string, options: StartOptions, signal: AbortSignal): Promise<{ readonly exitCode: number | undefined }>;
  /** Stops one and keeps it stopped until it is started or its definition changes. @throws as `start`. */
  stop(name: string, signal: AbortSignal): Promise<void>;
  restart(name: string, signal: AbortSignal): Promise<void>;
  /** Output of the current run. @throws {InputError} `not-found`; {HostError} of the engine. */
  logs(
    name: string,
    options: { readonly follow: boolean; readonly lines: number },
    signal: AbortSignal,
  ): AsyncIterable<OutputFrame>;
  /**
   * Everything that one container of the engine writes in its current run, each line led by its time (RFC 3339), from a moment on in Unix
   * seconds; ends with the run. `run` tells it from other runs. Rejects as `Engine` does.
   */
  output(engineId: string, since: string | undefined, signal: AbortSignal): Promise<RunOutput>;
  /** A shell, or the command given, in a running one, as its user. @throws {InputError} `not-found`, `not-configured` (does not run). */
  terminal(name: string, request: TerminalRequest, signal: AbortSignal): Promise<Terminal>;
  /** Images that the engine has. */
  images(signal: AbortSignal): Promise<readonly ImageSummary[]>;
  /** Removes an image by repository and tag as definitions name it. @throws {InputError} `not-found`, `busy` (in use, by what). */
  removeImage(repository: string, tag: string, signal: AbortSignal): Promise<void>;
}

/** What one run of a container writes. */
export interface RunOutput {
  readonly run: string;
  readonly frames: AsyncIterable<OutputFrame>;
}

/** What a terminal starts with. */
export interface TerminalRequest {
  readonly columns: number;
  readonly rows: number;
  /** In place of a shell. */
  readonly command?: readonly string[];
}

export interface StartOptions {
  readonly onOutput?: (frame: OutputFrame) => Promise<void>;
  readonly onPull?: (progress: PullProgress) => void;
}
