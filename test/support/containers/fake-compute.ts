import type {
  Compute,
  ContainerStatus,
  StartOptions,
  VolumeStatus,
} from "../../../src/agent/containers/model/compute.ts";
import { HostError, InputError } from "../../../src/errors.ts";
import type { ImageSummary, OutputFrame, Terminal } from "../../../src/host/engine/engine.ts";

/** A running service; the argument replaces parts. */
export function containerState(change: Partial<ContainerStatus> = {}): ContainerStatus {
  return {
    id: "3f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c11",
    name: "web",
    execType: "service",
    enabled: true,
    savesOutput: false,
    state: "running",
    since: 1000,
    reason: undefined,
    nextAttempt: undefined,
    nextRun: undefined,
    isStoppedByHand: false,
    health: undefined,
    restarts: 0,
    oomKills: 0,
    lastExitCode: undefined,
    image: { repository: "acme.example/team/web", tag: "1.2" },
    engineId: "0123456789abcdef",
    imageId: "sha256:0123456789abcdef0123456789abcdef",
    address: "172.18.0.9",
    ...change,
  };
}

/** Containers set by a test, which record the requests. */
export class FakeCompute implements Compute {
  engine: Compute["engine"] = { state: "well", since: 0, reason: undefined };
  list: readonly ContainerStatus[] = [];
  volumeList: readonly VolumeStatus[] = [];
  imageList: readonly ImageSummary[] = [];
  readonly requested: unknown[] = [];
  refusal: Error | undefined;
  /** The implementation of an attached run. */
  run: (options: StartOptions, signal: AbortSignal) => Promise<number> = () => Promise.resolve(0);
  /** The output of a run, for `output`. */
  printed: (engineId: string, since: string | undefined, signal: AbortSignal) => AsyncIterable<OutputFrame> = () =>
    none();
  runOf: (engineId: string) => string = (engineId) => engineId.slice(0, 12);
  readonly #listeners = new Set<() => void>();

  containers = (): readonly ContainerStatus[] => this.list;
  volumes = (): readonly VolumeStatus[] => this.volumeList;
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** Replaces the containers, and notifies. */
  set(list: readonly ContainerStatus[]): void {
    this.list = list;
    for (const listener of this.#listeners) listener();
  }

  async start(name: string, options: StartOptions, signal: AbortSignal) {
    this.#ask("start", name);
    const isAttached = options.onOutput !== undefined;
    return { exitCode: isAttached ? await this.run(options, signal) : undefined };
  }

  async stop(name: string) {
    return this.#ask("stop", name);
  }

  async restart(name: string) {
    return this.#ask("restart", name);
  }

  // eslint-disable-next-line require-yield
  async *logs(name: string): AsyncGenerator<OutputFrame, void> {
    this.#ask("logs", name);
  }

  async output(engineId: string, since: string | undefined, signal: AbortSignal) {
    this.requested.push(["output", engineId, since]);
    if (this.refusal !== undefined) throw this.refusal;
    return Promise.resolve({ run: this.runOf(engineId), frames: this.printed(engineId, since, signal) });
  }

  terminal(): Promise<Terminal> {
    return Promise.reject(new HostError("not-supported", "there are no terminals here"));
  }

  images = (): Promise<readonly ImageSummary[]> => Promise.resolve(this.imageList);

  async removeImage(repository: string, tag: string) {
    return this.#ask("remove image", `${repository}:${tag}`);
  }

  #ask(what: string, name: string): void {
    this.requested.push([what, name]);
    if (this.refusal !== undefined) throw this.refusal;
    const isKnown = what === "remove image" || this.list.some((one) => one.name === name);
    if (!isKnown) throw new InputError("not-found", `no container is called ${name}`);
  }
}

async function* none(): AsyncGenerator<OutputFrame, void> {
  // No output.
}
