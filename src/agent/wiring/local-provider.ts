import { InputError } from "../../errors.ts";
import { wallTimes, type Clock } from "../../host/clock.ts";
import type { Overlay } from "../../host/overlay/client.ts";
import type { LogLine as StoredLine, LogMemory } from "../../host/log.ts";
import type { Reader } from "../../host/reader.ts";
import { withinTime } from "../../lib/async/within-time.ts";
import {
  LOCAL_REPLY_LIMITS,
  type ContainerLogsQuery,
  type FloorName,
  type LogsQuery,
} from "../../protocol/local/api.ts";
import type { ContainerLogPiece, LogLine, TriggerLine } from "../../protocol/local/answers.ts";
import type { Applying } from "../applying/applying.ts";
import type { Compute } from "../containers/model/compute.ts";
import { decodeOutput } from "../containers/output/decode-output.ts";
import { containersReport, volumesReport } from "../containers/report.ts";
import { connectorsReport } from "../data-plane/connectors-report.ts";
import { addressesByLink } from "../../host/network/ip/links.ts";
import type { ReadDomain } from "../../protocol/documents/domain-view.ts";
import { clockReasons, type KnownTime } from "../telemetry/known-time.ts";
import { judge, type Judgement } from "../status/judgement.ts";
import type { LocalProvider } from "../local-api/provider.ts";
import { gatewaysReport, peersReport, type MeshReading } from "../data-plane/mesh-report.ts";
import type { ContainersView } from "./containers/view.ts";
import type { NetworkView } from "./network-view.ts";
import { overlayStateOf, type OverlayReading } from "../data-plane/overlay-reading.ts";
import { parsedSections } from "../applying/parsed-sections.ts";
import { servicesReport } from "../data-plane/services-report.ts";
import type { DesiredDocuments } from "../shadow/desired.ts";
import type { Streams } from "../streams/streams.ts";
import { buildStatus, identityReasons, type Gathered } from "../status/status.ts";
import type { Dispatcher } from "../triggers/execution/dispatch.ts";
import type { Upgrades } from "../upgrades/upgrades.ts";
import type { TriggerChannel } from "../triggers/execution/trigger.ts";

export interface LocalProviderDeps {
  /** Everything a status and a judgement of health are made of, at this moment. */
  readonly gather: () => Gathered;
  readonly clock: Pick<Clock, "now" | "elapsed">;
  readonly memory: LogMemory;
  readonly reader: Reader;
  readonly dispatcher: Dispatcher;
  readonly upgrades: Pick<Upgrades, "ask" | "look" | "why">;
  readonly containers: Pick<ContainersView, "compute" | "audit">;
  readonly streams: Pick<Streams, "prepare">;
  readonly documents: DesiredDocuments;
  /** Looks again at a document that may have been refused for its floor. */
  readonly retry: (name: FloorName) => void;
  readonly applying: Pick<
    Applying,
    "plan" | "why" | "config" | "rollback" | "network" | "tryNetwork" | "keepNetwork" | "revertNetwork"
  >;
  readonly overlay: Pick<Overlay, "status" | "view" | "counters" | "mesh">;
  /** Reads the domain document in force. */
  readonly domain: ReadDomain;
  readonly targets: LocalProvider["targets"];
  readonly networkView: Pick<NetworkView, "report" | "routeTo">;
  readonly time: Pick<KnownTime, "look" | "behindSince">;
  readonly wake: () => void;
  readonly register: LocalProvider["register"];
  readonly activate: LocalProvider["activate"];
  readonly reset: LocalProvider["reset"];
}

/** What the agent gives to the local API. */
export function localProvider({
  gather,
  clock,
  memory,
  reader,
  dispatcher,
  upgrades,
  containers: { compute, audit },
  streams,
  documents,
  retry,
  applying,
  overlay,
  domain,
  targets,
  networkView,
  time,
  wake,
  register,
  activate,
  reset,
}: LocalProviderDeps): LocalProvider {
  const parsed = parsedSections();
  /** What is asked for and what is there; an overlay that hangs is not waited for. */
  async function readOverlay(signal: AbortSignal): Promise<OverlayReading> {
    const counters = await overlay.counters(withinTime(signal, OVERLAY_ANSWER_MS)).catch(() => undefined);
    return {
      config: applying.config(),
      node: documents.current.node?.body,
      domain: domain(documents.current.domain?.body),
      parsed,
      status: overlay.status(),
      view: overlay.view,
      counters,
      addresses: addressesByLink(reader),
      why: applying.why().reasons,
    };
  }
  /** As above, of the ways to other nodes. */
  async function readMesh(signal: AbortSignal): Promise<MeshReading> {
    const { mesh, standing } = overlay.view;
    const asked = mesh === undefined ? undefined : overlay.mesh(withinTime(signal, OVERLAY_ANSWER_MS));
    return {
      overlay: overlayStateOf(overlay.status()),
      domain: domain(documents.current.domain?.body),
      mesh,
      state: (await asked?.catch(() => undefined)) ?? standing,
      why: applying.why().reasons,
    };
  }
  const wall = wallTimes(clock);
  /** By the monotonic clock. */
  const failingSince = new Map<string, number>();
  function judgement(): Judgement {
    const gathered = gather();
    const at = clock.elapsed();
    const status = buildStatus(gathered);
    const reasons = [...identityReasons(status), ...clockReasons(time), ...upgrades.why(applying.why()).reasons];
    const failing = new Set<string>();
    const judged = judge({ ...gathered, status }, reasons, (name) => {
      failing.add(name);
      if (!failingSince.has(name)) failingSince.set(name, at);
      return wall.of(failingSince.get(name) ?? at);
    });
    for (const name of failingSince.keys()) if (!failing.has(name)) failingSince.delete(name);
    return judged;
  }
  return {
    status: () => buildStatus(gather()),
    health: () => judgement().health,
    logs: (query, signal) => readLogs(memory, query, signal),
    trigger: (event, body, signal, options) => runLocally(dispatcher, event, body, signal, options?.wait),
    containers: () => containersReport(compute()),
    volumes: () => volumesReport(compute()),
    register,
    activate,
    reset,
    async resetFloor(name) {
      const reset = await documents.resetFloor(name);
      retry(name);
      return reset;
    },
    plan: (config, signal) => applying.plan(config, signal),
    why: () => judgement().why,
    connectors: async (signal) => connectorsReport(await readOverlay(signal)),
    services: async (signal) => servicesReport(await readOverlay(signal)),
    gateways: async (signal) => gatewaysReport(await readMesh(signal)),
    peers: async (signal) => peersReport(await readMesh(signal)),
    targets,
    observeNetwork: (signal) => networkView.report(signal),
    routeTo: (address, signal) => networkView.routeTo(address, signal),
    config: () => applying.config(),
    rollback: (request, signal) => applying.rollback(request, signal),
    network: () => applying.network(),
    tryNetwork: (request, signal) => applying.tryNetwork(request, signal),
    keepNetwork: () => applying.keepNetwork(),
    revertNetwork: () => applying.revertNetwork(),
    containerLogs: (query, signal) => containerLogs(compute(), query, signal),
    async containerExec({ arg: command, ...where }, signal) {
      const stream = await streams.prepare("container-exec", { ...where, command }, "local", signal);
      audit(`local opened a terminal in container ${where.container}`);
      return stream;
    },
    upgrade: (order) => upgrades.ask({ ...order, by: "operator" }),
    wake() {
      wake();
      void upgrades.look();
    },
  };
}

async function* containerLogs(
  compute: Compute | undefined,
  { container, follow, lines }: ContainerLogsQuery,
  signal: AbortSignal,
): AsyncGenerator<ContainerLogPiece> {
  if (compute === undefined) throw new InputError("not-configured", "no container is configured on this node");
  yield* decodeOutput(compute.logs(container, { follow, lines }, signal));
}

/** Less than callers wait for us. */
const OVERLAY_ANSWER_MS = 3000;
const MAX_WAITING = 1000;

/** A queue between something that calls and something that iterates; beyond its bound the newest is dropped. */
class Feed<T> {
  readonly #items: T[] = [];
  #wake: () => void = () => undefined;
  #isEnded = false;
  #makeRoom: (() => void) | undefined;
  #room: Promise<void> = Promise.resolve();

  get isFull(): boolean {
    return this.#items.length >= MAX_WAITING;
  }

  push(item: T): void {
    if (this.#isEnded || this.isFull) return;
    this.#items.push(item);
    if (this.isFull && this.#makeRoom === undefined) {
      this.#room = new Promise((resolve) => {
        this.#makeRoom = () => {
          this.#makeRoom = undefined;
          resolve();
        };
      });
    }
    this.#wake();
  }

  /** Resolves when there is room for more, or nobody reads any longer. */
  room(): Promise<void> {
    return this.#room;
  }

  end(last?: T): void {
    if (last !== undefined) this.#items.push(last);
    this.#isEnded = true;
    this.#makeRoom?.();
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, void> {
    for (;;) {
      const item = this.#items.shift();
      if (item !== undefined) {
        if (this.#items.length < MAX_WAITING / 2) this.#makeRoom?.();
        yield item;
      } else if (this.#isEnded) {
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }
}

/** The newest lines of the agent's log and, when asked, those to come. */
export async function* readLogs(memory: LogMemory, query: LogsQuery, signal: AbortSignal): AsyncGenerator<LogLine> {
  const feed = new Feed<StoredLine>();
  const past = memory.last(query.lines);
  const stop = query.follow ? memory.follow((line) => feed.push(line)) : (): void => undefined;
  const end = (): void => feed.end();
  if (!query.follow || signal.aborted) feed.end();
  signal.addEventListener("abort", end, { once: true });
  try {
    for (const line of past) yield parseLine(line.text);
    for await (const line of feed) yield parseLine(line.text);
  } finally {
    stop();
    signal.removeEventListener("abort", end);
  }
}

const LEVELS = ["trace", "debug", "info", "warn", "error", "fatal"] as const;

/** Reads one of our own log lines back; anything else becomes a message as it is. */
export function parseLine(text: string): LogLine {
  try {
    const { level, time, msg, component, ...fields } = JSON.parse(text) as Record<string, unknown>;
    return {
      time: typeof time === "string" ? Date.parse(time) : 0,
      level: LEVELS.find((name) => name === level) ?? "info",
      ...(typeof component === "string" ? { component: component.slice(0, 64) } : {}),
      message: typeof msg === "string" ? msg : "",
      ...(Object.keys(fields).length === 0 ? {} : { fields }),
    };
  } catch {
    return { time: 0, level: "info", message: text };
  }
}

/** Runs a trigger for a caller on this machine: its output as it comes, then its one answer. */
export async function* runLocally(
  dispatcher: Dispatcher,
  event: string,
  body: unknown,
  signal: AbortSignal,
  wait = false,
): AsyncGenerator<TriggerLine> {
  const feed = new Feed<TriggerLine>();
  const channel: TriggerChannel = {
    signal,
    progress: ({ seq, kind, data }) => feed.push({ kind: "progress", seq, channel: kind, data }),
    ready: () => feed.room(),
    replyLimits: { maxBytes: LOCAL_REPLY_LIMITS.maxBytes - 1024, maxDepth: LOCAL_REPLY_LIMITS.maxDepth - 2 },
    result: (_id, reply) => {
      feed.end("body" in reply ? { kind: "result", body: reply.body } : { kind: "error", ...reply.error });
      return Promise.resolve();
    },
  };
  const { id, reply } = dispatcher.runLocal({ event, body, wait }, channel);
  const cancel = (): void => dispatcher.cancel(id);
  signal.addEventListener("abort", cancel, { once: true });
  void reply.then((answer) => {
    // `true` means that the output follows as progress and the answer comes through the channel.
    if ("body" in answer && (wait || answer.body !== true)) feed.end({ kind: "result", body: answer.body });
    else if ("error" in answer) feed.end({ kind: "error", ...answer.error });
  });
  try {
    yield* feed;
  } finally {
    signal.removeEventListener("abort", cancel);
    feed.end();
    cancel();
  }
}
