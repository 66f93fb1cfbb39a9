import type { Duplex } from "node:stream";

/**
 * Calls of the Engine API over its Unix socket. Each is one request with its own deadline.
 * Rejects with {HostError} `engine-unwell` (no socket, refused, reset, 5xx without a reason), `timeout`, `engine-refused` with
 * `details: {status}` and the engine's message, or `engine-unsupported` (no common API version); when aborted, with the signal's
 * reason.
 */
export interface Engine {
  version(signal: AbortSignal): Promise<EngineVersion>;
  info(signal: AbortSignal): Promise<EngineInfo>;
  /** Resolves when the engine responds on a new connection; the cheapest call. */
  ping(signal: AbortSignal): Promise<void>;

  /** Returns every container, running or not. If labels (`name` or `name=value`) are given, returns those with all of them. */
  listContainers(labels: readonly string[], signal: AbortSignal): Promise<readonly ContainerSummary[]>;
  /** Returns undefined if it does not exist. */
  inspectContainer(id: string, signal: AbortSignal): Promise<ContainerDetail | undefined>;
  createContainer(
    name: string,
    body: CreateBody,
    signal: AbortSignal,
  ): Promise<{ id: string; warnings: readonly string[] }>;
  startContainer(id: string, signal: AbortSignal): Promise<void>;
  /** Stops a container gracefully and kills it after `graceSeconds`; the call's deadline is longer. */
  stopContainer(id: string, graceSeconds: number, signal: AbortSignal): Promise<void>;
  killContainer(id: string, signalName: string, signal: AbortSignal): Promise<void>;
  /** Removes a container, if it exists. */
  removeContainer(id: string, options: { readonly force: boolean }, signal: AbortSignal): Promise<void>;
  renameContainer(id: string, name: string, signal: AbortSignal): Promise<void>;
  updateContainer(id: string, body: UpdateBody, signal: AbortSignal): Promise<void>;

  /** Yields the output of a container's current run, oldest first. When following, ends with the container. */
  logs(id: string, options: LogOptions, signal: AbortSignal): AsyncIterable<OutputFrame>;
  /** Attaches to a container before its start, so that no output is lost. */
  attach(id: string, signal: AbortSignal): Promise<AsyncIterable<OutputFrame>>;
  /** Starts a command on a terminal in a running container; aborting the signal closes the stream at any time. */
  terminal(id: string, options: TerminalOptions, signal: AbortSignal): Promise<Terminal>;

  /**
   * Pulls an image completely. Also rejects with `pull-unauthorized`, `pull-not-found`, `pull-rate-limited`, `pull-no-space`,
   * `image-platform` (it exists only for other platforms) or `pull-failed`.
   */
  pull(reference: string, options: PullOptions, signal: AbortSignal): Promise<void>;
  /** Returns undefined if it does not exist. */
  inspectImage(reference: string, signal: AbortSignal): Promise<ImageDetail | undefined>;
  listImages(signal: AbortSignal): Promise<readonly ImageSummary[]>;
  removeImage(reference: string, signal: AbortSignal): Promise<void>;

  listVolumes(labels: readonly string[], signal: AbortSignal): Promise<readonly VolumeSummary[]>;
  createVolume(body: VolumeBody, signal: AbortSignal): Promise<void>;
  removeVolume(name: string, signal: AbortSignal): Promise<void>;

  listNetworks(labels: readonly string[], signal: AbortSignal): Promise<readonly NetworkSummary[]>;
  createNetwork(body: NetworkBody, signal: AbortSignal): Promise<{ id: string }>;
  removeNetwork(id: string, signal: AbortSignal): Promise<void>;
  /** Attaches a container to a network, by name or id. */
  connectNetwork(network: string, container: string, endpoint: EndpointBody, signal: AbortSignal): Promise<void>;
  /** Detaches a container from a network; succeeds if either does not exist. */
  disconnectNetwork(network: string, container: string, signal: AbortSignal): Promise<void>;

  /**
   * Yields the engine's events from this moment. Ends when the engine closes the stream; throws `engine-unwell` if the connection
   * breaks. `onOpen` is called once no further event can be missed.
   */
  events(labels: readonly string[], signal: AbortSignal, onOpen?: () => void): AsyncIterable<EngineEvent>;
}

export interface EngineVersion {
  readonly product: "docker" | "podman" | "other";
  readonly version: string;
  readonly apiVersion: string;
  readonly minApiVersion: string;
}

export interface EngineInfo {
  readonly cpus: number;
  readonly memoryBytes: number;
  readonly architecture: string;
  readonly cgroupDriver: "systemd" | "cgroupfs" | "other";
  readonly cgroupVersion: 1 | 2;
  /** The engine's directory for images and containers. */
  readonly rootDirectory: string;
  readonly storageDriver: string;
  readonly product: EngineVersion["product"];
}

export type ContainerState = "created" | "running" | "paused" | "restarting" | "removing" | "exited" | "dead";

export interface ContainerSummary {
  readonly id: string;
  readonly name: string;
  readonly imageId: string;
  readonly image: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly state: ContainerState;
  /** Health of a running container with a check. */
  readonly health: "healthy" | "unhealthy" | undefined;
  /** Unix seconds. */
  readonly createdAt: number;
  /** Exit status of the last run, if it has ended. */
  readonly exitCode: number | undefined;
  readonly addresses: Readonly<Record<string, string>>;
}

export interface ContainerDetail extends ContainerSummary {
  /** Process id on the machine; 0 if it is not running. */
  readonly pid: number;
  /** Unix milliseconds; 0 for never. */
  readonly startedAt: number;
  readonly finishedAt: number;
  readonly restartCount: number;
  readonly isOomKilled: boolean;
  readonly error: string;
  readonly cgroupParent: string;
  readonly settings: ContainerSettings;
}

/** The settings of a container that can be changed while it exists, as the engine reports them. */
export interface ContainerSettings {
  readonly restartPolicy: string;
  /** Fields of `HostConfig`; 0 and "" are unset. */
  readonly resources: Readonly<Record<string, number | string>>;
  /** Networks by name: the container's address, and its names for others on the network. */
  readonly networks: Readonly<Record<string, { readonly address: string; readonly aliases: readonly string[] }>>;
}

/** Attachment of a container to a network. */
export interface EndpointBody {
  readonly aliases: readonly string[];
  /** Undefined lets the engine choose. */
  readonly address: string | undefined;
}

/** Body of `POST /containers/create`, passed through. */
export type CreateBody = Readonly<Record<string, unknown>>;
export type UpdateBody = Readonly<Record<string, unknown>>;

export interface LogOptions {
  readonly follow: boolean;
  /** Number of lines from the end; undefined returns all. */
  readonly tail: number | undefined;
  /** Unix seconds as text, with nanoseconds as a fraction. */
  readonly since?: string;
  readonly timestamps?: boolean;
}

/** A piece of output; may split a character. */
export interface OutputFrame {
  readonly stream: "stdout" | "stderr";
  readonly data: Buffer;
}

export interface TerminalOptions {
  readonly command: readonly string[];
  readonly user: string | undefined;
  readonly columns: number;
  readonly rows: number;
}

/** A command on a terminal. */
export interface Terminal {
  /** Input and output bytes; ends with the command. */
  readonly stream: Duplex;
  resize(columns: number, rows: number, signal: AbortSignal): Promise<void>;
  /** Returns the exit status after the stream has ended; undefined if unknown. */
  exitCode(signal: AbortSignal): Promise<number | undefined>;
  /** Kills the command and its descendants, which the Engine API does not support, then closes the stream. */
  kill(): Promise<void>;
}

export interface PullOptions {
  /** `linux/arm64`; empty lets the engine choose. */
  readonly platform: string;
  /** Kept only in memory. */
  readonly credential: { readonly username: string; readonly password: string; readonly server: string } | undefined;
  readonly onProgress: (progress: PullProgress) => void;
}

/** Progress of one layer, for people: `id`, the action, and bytes if known. */
export interface PullProgress {
  readonly layer: string | undefined;
  readonly status: string;
  readonly current: number | undefined;
  readonly total: number | undefined;
}

export interface ImageDetail {
  readonly id: string;
  /** `linux/arm64`; undefined if the image does not state it. */
  readonly platform?: string;
  readonly digests: readonly string[];
  readonly tags: readonly string[];
  readonly sizeBytes: number;
}

export interface ImageSummary extends ImageDetail {
  /** Unix seconds. */
  readonly createdAt: number;
}

export interface VolumeBody {
  readonly name: string;
  readonly driver: "local";
  readonly driverOptions: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
}

export interface VolumeSummary extends VolumeBody {
  readonly mountpoint: string;
}

export interface NetworkBody {
  readonly name: string;
  readonly driver: "bridge";
  readonly subnet: string;
  readonly gateway: string;
  /** Addresses that no container gets, by a name. */
  readonly reserved: Readonly<Record<string, string>>;
  readonly options: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
}

export interface NetworkSummary {
  readonly id: string;
  readonly name: string;
  readonly subnets: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
}

export interface EngineEvent {
  readonly kind: "container" | "image" | "volume" | "network" | "daemon";
  /** The engine's action name: `start`, `die`, `oom`, `health_status: healthy`, `destroy`, … */
  readonly action: string;
  readonly id: string;
  readonly attributes: Readonly<Record<string, string>>;
  /** Unix milliseconds. */
  readonly at: number;
}
