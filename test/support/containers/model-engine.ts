import { z } from "zod";
import { HostError } from "../../../src/errors.ts";
import type { EngineCache, EngineChange, EngineStanding } from "../../../src/host/engine/cache.ts";
import type {
  ContainerDetail,
  ContainerSettings,
  ContainerSummary,
  CreateBody,
  EndpointBody,
  Engine,
  NetworkSummary,
  UpdateBody,
} from "../../../src/host/engine/engine.ts";

interface ModelContainer {
  id: string;
  name: string;
  image: string;
  imageId: string;
  labels: Record<string, string>;
  state: ContainerSummary["state"];
  exitCode: number | undefined;
  createdAt: number;
  settings: ContainerSettings;
}

/**
 * The supervisor's calls of an engine, on containers in memory: for random sequences that would take hours otherwise.
 * `test/e2e/containers/sections.test.ts` checks the same behavior on a real engine.
 */
export class ModelEngine {
  readonly containers = new Map<string, ModelContainer>();
  readonly networks: NetworkSummary[] = [];
  /** Image ids by reference. */
  readonly images = new Map<string, string>();
  /** Images of the registry; a pull of any other fails. */
  readonly registry = new Map<string, string>();
  /** Platforms of images for other machines, by id. */
  readonly platforms = new Map<string, string>();
  /** Fields of `HostConfig` that this engine ignores. */
  readonly ignored = new Set<string>();
  readonly calls: string[] = [];
  /** The largest number of concurrent processes of one definition. */
  mostAtOnce = 0;
  /** Called before each call takes effect; its rejection is the answer. */
  before: (call: string) => Promise<void> = () => Promise.resolve();
  readonly #listeners: ((change: EngineChange) => void)[] = [];
  #standing: EngineStanding = { state: "unknown" };
  #count = 0;
  readonly cache: EngineCache;
  /** Number of connections of its view. */
  connections = 1;
  readonly engine: Engine;

  constructor() {
    const standing = (): EngineStanding => this.#standing;
    const connections = (): number => this.connections;
    const containers = (): ReadonlyMap<string, ContainerSummary> =>
      new Map([...this.containers.values()].map((one) => [one.id, summaryOf(one)]));
    this.cache = {
      get standing() {
        return standing();
      },
      get connections() {
        return connections();
      },
      get containers() {
        return containers();
      },
      onChange: (listener) => void this.#listeners.push(listener),
      refresh: () => {
        const isNews = this.#standing.state !== "well";
        this.#standing = { state: "well", since: 0 };
        this.#tell({ kind: "listed" });
        if (isNews) this.#tell({ kind: "standing" });
        return Promise.resolve();
      },
      close: () => void this.#listeners.splice(0),
    };
    this.engine = this.#engine();
  }

  /** Connects another agent, which has no earlier events. */
  reconnected(): void {
    this.#listeners.splice(0);
    this.#standing = { state: "unknown" };
  }

  /** Ends the process of a container as if by itself. */
  exit(id: string, exitCode: number): void {
    const one = this.containers.get(id);
    if (one?.state !== "running") return;
    one.state = "exited";
    one.exitCode = exitCode;
    this.#tell({ kind: "event", id, action: "die", exitCode });
  }

  /** Stops a container, as another client or a stopping engine does. */
  stop(id: string): void {
    this.exit(id, 143);
    this.#tell({ kind: "event", id, action: "stop", exitCode: undefined });
  }

  /** Sets whether it answers. */
  setStanding(standing: EngineStanding): void {
    this.#standing = standing;
    this.#tell({ kind: "standing" });
  }

  /** Removes a container, as another client does. */
  remove(id: string): void {
    this.exit(id, 137);
    if (this.containers.delete(id)) this.#tell({ kind: "event", id, action: "destroy", exitCode: undefined });
  }

  /** Changes a container's limits, as another client does. */
  update(id: string, body: UpdateBody): void {
    const one = this.#get(id);
    const { restartPolicy, resources } = settingsOf({ HostConfig: body }, this.ignored);
    const isSet = body["RestartPolicy"] !== undefined;
    one.settings = {
      ...one.settings,
      restartPolicy: isSet ? restartPolicy : one.settings.restartPolicy,
      resources: { ...one.settings.resources, ...resources },
    };
    this.#tell({ kind: "event", id, action: "update", exitCode: undefined });
  }

  /** Connects a container to a network, which causes no container event. */
  connect(network: string, id: string, endpoint: EndpointBody): void {
    const one = this.#get(id);
    const { aliases, address = "" } = endpoint;
    one.settings = { ...one.settings, networks: { ...one.settings.networks, [network]: { address, aliases } } };
  }

  /** Disconnects a container from a network, which causes no container event. */
  disconnect(network: string, id: string): void {
    const one = this.#get(id);
    const { [network]: _, ...networks } = one.settings.networks;
    one.settings = { ...one.settings, networks };
  }

  #tell(change: EngineChange): void {
    for (const listener of this.#listeners) listener(change);
  }

  #get(id: string): ModelContainer {
    const one = this.containers.get(id);
    if (one === undefined) throw refused(404, `No such container: ${id}`);
    return one;
  }

  #engine(): Engine {
    const call = async <T>(name: string, signal: AbortSignal, work: () => T): Promise<T> => {
      signal.throwIfAborted();
      this.calls.push(name);
      await this.before(name);
      signal.throwIfAborted();
      return work();
    };
    const none = (): never => {
      throw new Error("the model has no such call");
    };
    return {
      version: none,
      ping: (signal) => call("ping", signal, () => undefined),
      info: (signal) =>
        call("info", signal, () => ({
          cpus: 2,
          memoryBytes: 4e9,
          architecture: "x86_64",
          cgroupDriver: "cgroupfs",
          cgroupVersion: 2,
          rootDirectory: "/nonexistent",
          storageDriver: "overlay2",
          product: "docker",
        })),
      listContainers: (labels, signal) =>
        call("list", signal, () =>
          [...this.containers.values()]
            .filter((one) => labels.every((label) => matches(one.labels, label)))
            .map(summaryOf),
        ),
      inspectContainer: (id, signal) =>
        call("inspect", signal, () => {
          const one = this.containers.get(id);
          return one === undefined ? undefined : detailOf(one);
        }),
      createContainer: (name, body, signal) =>
        call("create", signal, () => {
          const image = String(body["Image"]);
          const imageId = this.images.get(image);
          if (imageId === undefined) throw refused(404, `No such image: ${image}`);
          if ([...this.containers.values()].some((one) => one.name === name)) throw refused(409, "name in use");
          this.#count += 1;
          const id = this.#count.toString(16).padStart(64, "0");
          const labels = { ...(body["Labels"] as Record<string, string>) };
          const createdAt = this.#count;
          this.containers.set(id, {
            id,
            name,
            image,
            imageId,
            labels,
            state: "created",
            exitCode: undefined,
            createdAt,
            settings: settingsOf(body, this.ignored),
          });
          return { id, warnings: [] };
        }),
      startContainer: (id, signal) =>
        call("start", signal, () => {
          const one = this.#get(id);
          if (one.state === "running") return;
          one.state = "running";
          one.exitCode = undefined;
          const same = [...this.containers.values()].filter(
            ({ state, labels }) =>
              state === "running" && labels["io.holdfast.container"] === one.labels["io.holdfast.container"],
          );
          this.mostAtOnce = Math.max(this.mostAtOnce, same.length);
          this.#tell({ kind: "event", id, action: "start", exitCode: undefined });
        }),
      stopContainer: (id, _grace, signal) =>
        call("stop", signal, () => {
          const one = this.#get(id);
          if (one.state !== "running") return;
          this.exit(id, 143);
          this.#tell({ kind: "event", id, action: "stop", exitCode: undefined });
        }),
      killContainer: none,
      removeContainer: (id, _options, signal) => call("remove", signal, () => this.remove(id)),
      renameContainer: (id, name, signal) =>
        call("rename", signal, () => {
          if ([...this.containers.values()].some((one) => one.name === name)) throw refused(409, "name in use");
          this.#get(id).name = name;
        }),
      updateContainer: (id, body, signal) => call("update", signal, () => this.update(id, body)),
      logs: none,
      attach: none,
      terminal: none,
      pull: (reference, _options, signal) =>
        call("pull", signal, () => {
          const id = this.registry.get(reference);
          if (id === undefined) throw new HostError("pull-not-found", `no ${reference}`);
          this.images.set(reference, id);
        }),
      inspectImage: (reference, signal) =>
        call("inspect image", signal, () => {
          const id = this.images.get(reference);
          if (id === undefined) return undefined;
          const platform = this.platforms.get(id) ?? "linux/amd64";
          return { id, digests: [], tags: [reference], sizeBytes: 1, platform };
        }),
      listImages: none,
      removeImage: none,
      listVolumes: none,
      createVolume: none,
      removeVolume: none,
      listNetworks: (_labels, signal) => call("list networks", signal, () => this.networks),
      createNetwork: ({ name, subnet, labels }, signal) =>
        call("create network", signal, () => {
          this.networks.push({ id: name, name, subnets: [subnet], labels });
          return { id: name };
        }),
      removeNetwork: none,
      connectNetwork: (network, id, endpoint, signal) =>
        call("connect", signal, () => this.connect(network, id, endpoint)),
      disconnectNetwork: (network, id, signal) => call("disconnect", signal, () => this.disconnect(network, id)),
      events: none,
    };
  }
}

const Body = z.object({
  HostConfig: z.record(z.string(), z.unknown()).default({}),
  NetworkingConfig: z
    .object({
      EndpointsConfig: z.record(
        z.string(),
        z.object({
          Aliases: z.array(z.string()).default([]),
          IPAMConfig: z.object({ IPv4Address: z.string() }).optional(),
        }),
      ),
    })
    .default({ EndpointsConfig: {} }),
});
const RestartPolicy = z.object({ Name: z.string() });

/** Returns the settings that an engine reports for a container created with this body. */
function settingsOf(body: CreateBody, ignored: ReadonlySet<string>): ContainerSettings {
  const { HostConfig, NetworkingConfig } = Body.parse(body);
  const networks = Object.entries(NetworkingConfig.EndpointsConfig).map(([name, { Aliases, IPAMConfig }]) => {
    return [name, { address: IPAMConfig?.IPv4Address ?? "", aliases: Aliases }] as const;
  });
  const resources = Object.entries(HostConfig).flatMap(([name, value]) =>
    (typeof value === "number" || typeof value === "string") && !ignored.has(name) ? [[name, value] as const] : [],
  );
  return {
    restartPolicy: RestartPolicy.safeParse(HostConfig["RestartPolicy"]).data?.Name ?? "no",
    resources: Object.fromEntries(resources),
    networks: Object.fromEntries(networks),
  };
}

function refused(status: number, message: string): HostError {
  return new HostError("engine-refused", message, { details: { status } });
}

function matches(labels: Readonly<Record<string, string>>, label: string): boolean {
  const [name = "", value] = label.split("=");
  return Object.hasOwn(labels, name) && (value === undefined || labels[name] === value);
}

function summaryOf(one: ModelContainer): ContainerSummary {
  const { id, name, image, imageId, labels, state, exitCode, createdAt } = one;
  return { id, name, image, imageId, labels, state, exitCode, createdAt, health: undefined, addresses: {} };
}

function detailOf(one: ModelContainer): ContainerDetail {
  return {
    ...summaryOf(one),
    pid: one.state === "running" ? 1 : 0,
    startedAt: 0,
    finishedAt: 0,
    restartCount: 0,
    isOomKilled: false,
    error: "",
    cgroupParent: "",
    settings: one.settings,
  };
}
