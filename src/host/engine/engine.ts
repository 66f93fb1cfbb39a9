import type { Duplex } from "node:stream";

/**
 * Calls of the Engine API, one request each, over its Unix socket. Each ends by its own deadline.
 * Rejects with {HostError} `engine-unwell` (no socket, refused, reset, 5xx without a reason), `timeout`, or `engine-refused` with
 * `details: {status}` and what the engine said, `engine-unsupported` (no common version of the API); when aborted, with the signal's reason.
 */
export interface Engine {
  version(signal: AbortSignal): Promise<EngineVersion>;
  info(signal: AbortSignal): Promise<EngineInfo>;
  /** The cheapest question there is: resolves when the engine answers on a new connection. */
  ping(signal: AbortSignal): Promise<void>;

  /** Every container, running or not; only those with all the labels (`name` or `name=value`) when some are given. */
  listContainers(labels: readonly string[], signal: AbortSignal): Promise<readonly ContainerSummary[]>;
  /** Undefined when there is none. */
  inspectContainer(id: string, signal: AbortSignal): Promise<ContainerDetail | undefined>;
  createContainer(
    name: string,
    body: CreateBody,
    signal: AbortSignal,
  ): Promise<{ id: string; warnings: readonly string[] }>;
  startContainer(id: string, signal: AbortSignal): Promise<void>;
  /** Asks it to end and kills it after `graceSeconds`; the call's deadline is longer than that. */
  stopContainer(id: string, graceSeconds: number, signal: AbortSignal): Promise<void>;
  killContainer(id: string, signalName: string, signal: AbortSignal): Promise<void>;
  /** Done as well when there is none. */
  removeContainer(id: string, options: { readonly force: boolean }, signal: AbortSignal): Promise<void>;
  renameContainer(id: string, name: string, signal: AbortSignal): Promise<void>;
  updateContainer(id: string, body: UpdateBody, signal: AbortSignal): Promise<void>;

  /** What a container has said, and says: of the current run, oldest first. Ends with the container when it follows. */
  logs(id: string, options: LogOptions, signal: AbortSignal): AsyncIterable<OutputFrame>;
  /** Joins a container that is about to be started, so that nothing it says is lost. */
  attach(id: string, signal: AbortSignal): Promise<AsyncIterable<OutputFrame>>;
  /** Starts a command in a running container, on a terminal; the signal ends the stream too, at any time. */
  terminal(id: string, options: TerminalOptions, signal: AbortSignal): Promise<Terminal>;

  /**
   * Fetches an image; resolves when it is there whole. Rejects with `pull-unauthorized`, `pull-not-found`, `pull-rate-limited`,
   * `pull-no-space`, `image-platform` (it exists for other platforms only) or `pull-failed` as well.
   */
  pull(reference: string, options: PullOptions, signal: AbortSignal): Promise<void>;
  /** Undefined when there is none. */
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
   * What happens in the engine from now on; ends when the engine goes, throws `engine-unwell` when it goes without a word. `onOpen` is
   * called as soon as nothing that happens is missed.
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
  /** Where the engine keeps images and containers. */
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
  /** `healthy` and `unhealthy` of a running one that has a check. */
  readonly health: "healthy" | "unhealthy" | undefined;
  /** Unix seconds. */
  readonly createdAt: number;
  /** Of the last run, when it has ended. */
  readonly exitCode: number | undefined;
  readonly addresses: Readonly<Record<string, string>>;
}

export interface ContainerDetail extends ContainerSummary {
  /** Process id on the machine; 0 when it does not run. */
  readonly pid: number;
  /** Unix milliseconds; 0 when it never was. */
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
  /** By network: the address there, and the names by which others on it reach the container. */
  readonly networks: Readonly<Record<string, { readonly address: string; readonly aliases: readonly string[] }>>;
}

/** Attachment of a container to a network. */
export interface EndpointBody {
  readonly aliases: readonly string[];
  /** The engine chooses when it is undefined. */
  readonly address: string | undefined;
}

/** As `POST /containers/create` takes it; nothing in it is read back. */
export type CreateBody = Readonly<Record<string, unknown>>;
export type UpdateBody = Readonly<Record<string, unknown>>;

export interface LogOptions {
  readonly follow: boolean;
  /** Lines from the end; all when undefined. */
  readonly tail: number | undefined;
  /** Unix seconds, with nanoseconds as a fraction, as text. */
  readonly since?: string;
  readonly timestamps?: boolean;
}

/** A piece of output; a character may be split between two. */
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
  /** Bytes both ways; ends with the command. */
  readonly stream: Duplex;
  resize(columns: number, rows: number, signal: AbortSignal): Promise<void>;
  /** The exit status, once the stream has ended; undefined when nobody knows. */
  exitCode(signal: AbortSignal): Promise<number | undefined>;
  /** Ends the command and what it started, which the Engine API cannot; then the stream. */
  kill(): Promise<void>;
}

export interface PullOptions {
  /** `linux/arm64`; empty leaves it to the engine. */
  readonly platform: string;
  /** Kept in memory only. */
  readonly credential: { readonly username: string; readonly password: string; readonly server: string } | undefined;
  readonly onProgress: (progress: PullProgress) => void;
}

/** One line of a layer's fate, for people: `id`, what happens to it, and bytes where they are known. */
export interface PullProgress {
  readonly layer: string | undefined;
  readonly status: string;
  readonly current: number | undefined;
  readonly total: number | undefined;
}

export interface ImageDetail {
  readonly id: string;
  /** `linux/arm64`; undefined when the image does not say. */
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
  /** Addresses that no container gets, by a name of their own. */
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
  /** As the engine spells it: `start`, `die`, `oom`, `health_status: healthy`, `destroy`, … */
  readonly action: string;
  readonly id: string;
  readonly attributes: Readonly<Record<string, string>>;
  /** Unix milliseconds. */
  readonly at: number;
}
