import type { ActivationRequest, ActivationStep } from "../../src/protocol/channel/activation.ts";
import { setTimeout as delay } from "node:timers/promises";
import { UPGRADE_ANSWERS, type UpgradeAnswer, type UpgradeOrder } from "../../src/protocol/documents/release.ts";
import type { LocalProvider, LocalStream } from "../../src/agent/local-api/provider.ts";
import { InputError } from "../../src/errors.ts";
import type { NodeIdentity } from "../../src/protocol/documents/claims.ts";
import type {
  ContainerExecQuery,
  ContainerLogsQuery,
  FloorName,
  LogsQuery,
  NetworkTryRequest,
  ResetRequest,
} from "../../src/protocol/local/api.ts";
import type {
  ContainerLogPiece,
  FloorReset,
  Health,
  LogLine,
  Status,
  TriggerLine,
} from "../../src/protocol/local/answers.ts";

import type { Config } from "../../src/protocol/documents/documents.ts";
import type { ContainersReport, VolumesReport } from "../../src/protocol/local/containers.ts";
import type { GatewaysReport, PeersReport } from "../../src/protocol/local/mesh.ts";
import type { NetworkReport, RouteAnswer } from "../../src/protocol/local/network.ts";
import type { ConnectorsReport, OverlayState, ServicesReport } from "../../src/protocol/local/overlay.ts";
import type { CommitReport } from "../../src/protocol/local/commit.ts";
import type { NetworkTargets } from "../../src/protocol/overlay/network-targets.ts";
import type {
  PlanReport,
  Reason,
  RollbackReport,
  RollbackRequest,
  WhyReport,
} from "../../src/protocol/documents/reconcile.ts";

export const overlayUp: OverlayState = { state: "up", since: 1_700_000_000_000, pid: 4711 };

export const identity: NodeIdentity = {
  uid: "0197f1a2-0000-7000-8000-000000000001",
  name: "edge-1",
  fqdn: "edge-1.example.net",
  domain: "example.net",
  org: "0197f1a2-0000-7000-8000-0000000000aa",
  type: "Agent",
  session: "ws://127.0.0.1:8480/agent/v1/session",
};

export function someStatus(changes: Partial<Status> = {}): Status {
  const now = Date.now();
  return {
    schema: 1,
    version: "0.1.0",
    build: "source",
    pid: process.pid,
    startedAt: now - 60_000,
    uptimeSeconds: 60,
    state: { stateDir: "/var/lib/holdfast", runDir: "/run/holdfast" },
    node: identity,
    session: { state: "online", since: now - 5000, attempt: 1, url: identity.session, rttMs: 1.25 },
    nodeState: "ACTIVE",
    tags: { site: "lab" },
    documents: { keys: { version: 1 }, node: { version: 7, receivedAt: now - 4000, appliedAt: now - 3000 } },
    sections: { connectors: { state: "unsupported", issues: [], steps: 0, version: 7 } },
    telemetry: { events: { queued: 0, dropped: 0 } },
    engines: { network: "netlink", overlay: overlayUp },
    process: { rssBytes: 62_000_000, cpuSeconds: 1.5, children: 0 },
    faults: [],
    ...changes,
  };
}

/** A provider with the test's answers, which records the requests. */
export class FakeLocalProvider implements LocalProvider {
  currentStatus: Status = someStatus();
  currentHealth: Health = { schema: 1, verdict: "ok", items: [{ name: "session", status: "pass", message: "online" }] };
  lines: LogLine[] = [];
  followed: LogLine[] = [];
  triggerLines: TriggerLine[] = [{ kind: "result", body: { ok: true } }];
  /** Whether a trigger waits to be aborted after its lines instead of ending. */
  isTriggerEndless = false;
  thrown: Error | undefined;
  readonly requested: unknown[] = [];
  aborted = 0;

  status(): Status {
    if (this.thrown !== undefined) throw this.thrown;
    return this.currentStatus;
  }

  currentContainers: ContainersReport = { schema: 1, engine: { state: "unused", since: 0 }, containers: [] };
  currentVolumes: VolumesReport = { schema: 1, volumes: [] };

  containers(): ContainersReport {
    return this.currentContainers;
  }

  volumes(): VolumesReport {
    return this.currentVolumes;
  }

  health(): Health {
    return this.currentHealth;
  }

  async *logs(options: LogsQuery, signal: AbortSignal): AsyncGenerator<LogLine> {
    this.requested.push(options);
    yield* options.lines === 0 ? [] : this.lines.slice(-options.lines);
    if (!options.follow) return;
    yield* this.followed;
    await this.#untilAborted(signal);
  }

  async *trigger(event: string, body: unknown, signal: AbortSignal): AsyncGenerator<TriggerLine> {
    this.requested.push({ event, body });
    yield* this.triggerLines;
    if (this.thrown !== undefined) throw this.thrown;
    if (this.isTriggerEndless) await this.#untilAborted(signal);
  }

  containerPieces: ContainerLogPiece[] = [];
  stream: LocalStream | undefined;

  async *containerLogs(query: ContainerLogsQuery, signal: AbortSignal): AsyncGenerator<ContainerLogPiece> {
    this.requested.push(query);
    yield* this.containerPieces;
    if (this.thrown !== undefined) throw this.thrown;
    if (query.follow) await this.#untilAborted(signal);
  }

  async containerExec(query: ContainerExecQuery): Promise<LocalStream> {
    this.requested.push(query);
    if (this.thrown !== undefined) throw this.thrown;
    if (this.stream === undefined) throw new InputError("not-found", `there is no container ${query.container}`);
    return this.stream;
  }

  upgradeStatus: UpgradeAnswer["output"]["status"] = UPGRADE_ANSWERS.begun;

  async upgrade(order: UpgradeOrder): Promise<UpgradeAnswer> {
    this.requested.push({ order });
    if (this.thrown !== undefined) throw this.thrown;
    return { output: { status: this.upgradeStatus } };
  }

  async register(license: string): Promise<NodeIdentity> {
    this.requested.push({ license });
    if (this.thrown !== undefined) throw this.thrown;
    return identity;
  }

  /** Successive answers. */
  readonly steps: ActivationStep[] = [];

  async activate(request: ActivationRequest): Promise<ActivationStep> {
    this.requested.push({ request });
    if (this.thrown !== undefined) throw this.thrown;
    return this.steps.shift() ?? { state: "approved", license: "a.b.c" };
  }

  /** Called once a reset is due. */
  onReset = (): void => undefined;

  async reset(request: ResetRequest): ReturnType<LocalProvider["reset"]> {
    this.requested.push({ reset: request });
    if (this.thrown !== undefined) throw this.thrown;
    const { startedAt, state } = this.currentStatus;
    return {
      answer: { ...request, startedAt, stateDir: state.stateDir, isReported: true },
      begin: () => this.onReset(),
    };
  }

  async resetFloor(name: FloorName): Promise<FloorReset> {
    this.requested.push({ name });
    if (name === "cluster") throw new InputError("not-found", "there is no cluster document");
    return { name, from: 7, to: 0 };
  }

  currentNetwork: NetworkReport = {
    schema: 1,
    links: [],
    addresses: [],
    routes: [],
    rules: [],
    neighbours: [],
    truncated: {},
  };
  way: Omit<RouteAnswer, "to"> = { schema: 1, kind: "none" };

  async observeNetwork(): Promise<NetworkReport> {
    if (this.thrown !== undefined) throw this.thrown;
    return this.currentNetwork;
  }

  async routeTo(address: string): Promise<RouteAnswer> {
    this.requested.push({ routeTo: address });
    return { ...this.way, to: address };
  }

  currentPlan: PlanReport = { schema: 1, sections: [], notes: [] };
  reasons: Reason[] = [];
  currentConfig: Config = {};

  async plan(config: Config | undefined): Promise<PlanReport> {
    this.requested.push({ config });
    if (this.thrown !== undefined) throw this.thrown;
    return this.currentPlan;
  }

  why(): WhyReport {
    return { schema: 1, reasons: this.reasons };
  }

  config(): Config {
    return this.currentConfig;
  }

  async rollback(request: RollbackRequest): Promise<RollbackReport> {
    this.requested.push(request);
    if (this.thrown !== undefined) throw this.thrown;
    const { document, plan } = request;
    return { schema: 1, document, from: 8, to: 7, ...(plan ? { plan: this.currentPlan } : {}) };
  }

  connectorsNow: ConnectorsReport = { schema: 1, overlay: overlayUp, issues: [], connectors: [] };
  servicesNow: ServicesReport = { schema: 1, overlay: overlayUp, issues: [], services: [] };

  async connectors(): Promise<ConnectorsReport> {
    if (this.thrown !== undefined) throw this.thrown;
    return this.connectorsNow;
  }

  async services(): Promise<ServicesReport> {
    return this.servicesNow;
  }

  gatewaysNow: GatewaysReport = { schema: 1, overlay: overlayUp, dataPlane: "none", issues: [], gateways: [] };
  peersNow: PeersReport = { schema: 1, overlay: overlayUp, dataPlane: "none", issues: [], peers: [] };

  async gateways(): Promise<GatewaysReport> {
    if (this.thrown !== undefined) throw this.thrown;
    return this.gatewaysNow;
  }

  async peers(): Promise<PeersReport> {
    return this.peersNow;
  }

  targetsNow: NetworkTargets = { schema: 1, paths: [] };

  targets(): NetworkTargets {
    if (this.thrown !== undefined) throw this.thrown;
    return this.targetsNow;
  }

  networkNow: CommitReport = { schema: 1 };

  network(): CommitReport {
    return this.networkNow;
  }

  tryNetwork({ minutes }: NetworkTryRequest): Promise<CommitReport> {
    this.requested.push(`network try ${minutes}`);
    return Promise.resolve(this.networkNow);
  }

  keepNetwork(): Promise<CommitReport> {
    this.requested.push("network keep");
    return Promise.resolve(this.networkNow);
  }

  revertNetwork(): Promise<CommitReport> {
    this.requested.push("network revert");
    return Promise.resolve(this.networkNow);
  }

  wake(): void {
    this.requested.push("wake");
  }

  async #untilAborted(signal: AbortSignal): Promise<void> {
    try {
      await delay(60_000, undefined, { signal });
    } catch {
      this.aborted += 1;
    }
  }
}
