import type { ActivationRequest, ActivationStep } from "../../protocol/channel/activation.ts";
import type { NodeIdentity } from "../../protocol/documents/claims.ts";
import type { FrameSocket } from "../../host/net/frame-socket.ts";
import type {
  ContainerExecQuery,
  ContainerLogsQuery,
  FloorName,
  LogsQuery,
  NetworkTryRequest,
  ResetAnswer,
  ResetRequest,
} from "../../protocol/local/api.ts";
import type {
  ContainerLogPiece,
  FloorReset,
  Health,
  LogLine,
  Status,
  TriggerLine,
} from "../../protocol/local/answers.ts";
import type { Config } from "../../protocol/documents/documents.ts";
import type { ContainersReport, VolumesReport } from "../../protocol/local/containers.ts";
import type { GatewaysReport, PeersReport } from "../../protocol/local/mesh.ts";
import type { CommitReport } from "../../protocol/local/commit.ts";
import type { NetworkReport, RouteAnswer } from "../../protocol/local/network.ts";
import type { ConnectorsReport, ServicesReport } from "../../protocol/local/overlay.ts";
import type { UpgradeAnswer, UpgradeOrder } from "../../protocol/documents/release.ts";
import type { NetworkTargets } from "../../protocol/overlay/network-targets.ts";
import type { PlanReport, RollbackReport, RollbackRequest, WhyReport } from "../../protocol/documents/reconcile.ts";

/** An open stream that waits for its client. */
export interface LocalStream {
  /** Joins it to the client; resolves once it has ended. Never rejects. */
  join(socket: FrameSocket, signal: AbortSignal): Promise<void>;
  discard(): Promise<void>;
}

/** The agent as the local API sees it. Its errors reach the caller with their code, message and details. */
export interface LocalProvider {
  /** Returns the status, from memory. */
  status(): Status;
  /** Returns the verdict and its checks, from memory. */
  health(): Health;
  /** Yields the newest `lines` lines, oldest first, and with `follow` later ones; drops lines for a slow reader. */
  logs(options: LogsQuery, signal: AbortSignal): AsyncIterable<LogLine>;
  /** Containers and volumes of the applied configuration, from memory. */
  containers(): ContainersReport;
  volumes(): VolumesReport;
  /** Runs a trigger event as the control plane would, without a signature; aborting kills it. With `wait` there is no output before the result. */
  trigger(
    event: string,
    body: unknown,
    signal: AbortSignal,
    options?: { readonly wait: boolean },
  ): AsyncIterable<TriggerLine>;
  /** Registers this node; continues when the caller disconnects, since the control plane may already have answered. */
  register(license: string): Promise<NodeIdentity>;
  /** Requests the license of this machine once, by a code or by a token. */
  activate(request: ActivationRequest): Promise<ActivationStep>;
  /** Orders a reset of this node, which is then certain; `begin` starts it and stops this agent. */
  reset(request: ResetRequest): Promise<{ readonly answer: ResetAnswer; readonly begin: () => void }>;
  /** Accepts any version of the next document of this name. */
  resetFloor(name: FloorName): Promise<FloorReset>;
  /** Returns the steps of a configuration, by default of the applied one; takes none. */
  plan(config: Config | undefined, signal: AbortSignal): Promise<PlanReport>;
  /** Returns everything that deviates, with its reason. */
  why(): WhyReport;
  /** Returns the state and the counters of every applied connector. */
  connectors(signal: AbortSignal): Promise<ConnectorsReport>;
  /** Returns every applied service, with its health. */
  services(signal: AbortSignal): Promise<ServicesReport>;
  /** Returns every gateway that this node dials, its paths, and its own gateway. */
  gateways(signal: AbortSignal): Promise<GatewaysReport>;
  /** Returns every other node of the domain, and how it is reached. */
  peers(signal: AbortSignal): Promise<PeersReport>;
  /** Returns the targets that this node must reach, including the proxy's password. */
  targets(): NetworkTargets;
  /** Reads links, addresses, routes, rules and neighbours of this machine. */
  observeNetwork(signal: AbortSignal): Promise<NetworkReport>;
  /** Returns the route of this machine to an IPv4 address. */
  routeTo(address: string, signal: AbortSignal): Promise<RouteAnswer>;
  /** Returns the effective configuration with its secrets; callers hide them. */
  config(): Config;
  /** Applies the previous version of a document, or plans it. */
  rollback(request: RollbackRequest, signal: AbortSignal): Promise<RollbackReport>;
  /** Returns the state of network changes. */
  network(): CommitReport;
  /** Tries a network on this machine; resolves once it is proven or reverted. */
  tryNetwork(request: NetworkTryRequest, signal: AbortSignal): Promise<CommitReport>;
  /** Confirm or revert the pending change of the network. */
  keepNetwork(): Promise<CommitReport>;
  revertNetwork(): Promise<CommitReport>;
  /** Yields the output of the current run of a container and, with `follow`, later output. */
  containerLogs(query: ContainerLogsQuery, signal: AbortSignal): AsyncIterable<ContainerLogPiece>;
  /** Opens a terminal in a container; the caller joins or discards it. */
  containerExec(query: ContainerExecQuery, signal: AbortSignal): Promise<LocalStream>;
  /** Requests an upgrade of this node. */
  upgrade(order: UpgradeOrder): Promise<UpgradeAnswer>;
  /** Connects to the control plane at once, and reads the state of upgrades. */
  wake(): void;
}
