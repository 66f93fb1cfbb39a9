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

/** Something that is open and waits for its other side. */
export interface LocalStream {
  /** Joins it to the other side; resolves once it is over. Never rejects. */
  join(socket: FrameSocket, signal: AbortSignal): Promise<void>;
  discard(): Promise<void>;
}

/** What the agent gives to the local API. Errors it throws reach the caller with their code, message and details. */
export interface LocalProvider {
  /** Everything at this moment, from memory. */
  status(): Status;
  /** The verdict and what it rests on, from memory. */
  health(): Health;
  /** The newest `lines` lines, oldest first, and with `follow` those to come; drops lines rather than keep them for a slow reader. */
  logs(options: LogsQuery, signal: AbortSignal): AsyncIterable<LogLine>;
  /** Containers and volumes of the configuration in force, from memory. */
  containers(): ContainersReport;
  volumes(): VolumesReport;
  /** Runs a trigger event as if the control plane had asked, without its signature; aborting kills what was started. With `wait` there is no output before the answer. */
  trigger(
    event: string,
    body: unknown,
    signal: AbortSignal,
    options?: { readonly wait: boolean },
  ): AsyncIterable<TriggerLine>;
  /** Registers this node; goes on when the caller hangs up, since the control plane may already have answered. */
  register(license: string): Promise<NodeIdentity>;
  /** Asks once for the license of this machine, by a code or by a token. */
  activate(request: ActivationRequest): Promise<ActivationStep>;
  /** Orders a reset of this node, which is certain from then on; `begin` starts it and stops this agent. */
  reset(request: ResetRequest): Promise<{ readonly answer: ResetAnswer; readonly begin: () => void }>;
  /** Lets the next document of this name have any version. */
  resetFloor(name: FloorName): Promise<FloorReset>;
  /** The steps that a configuration would take, or that in force; takes none. */
  plan(config: Config | undefined, signal: AbortSignal): Promise<PlanReport>;
  /** Whatever is not as it should be, and why. */
  why(): WhyReport;
  /** Every connector in force: how it stands and what it has counted. */
  connectors(signal: AbortSignal): Promise<ConnectorsReport>;
  /** Every service in force, with its health. */
  services(signal: AbortSignal): Promise<ServicesReport>;
  /** Every gateway that this node dials, its paths, and its own gateway. */
  gateways(signal: AbortSignal): Promise<GatewaysReport>;
  /** Every node that this one may meet, and how. */
  peers(signal: AbortSignal): Promise<PeersReport>;
  /** Whom this node must reach, the proxy's password included. */
  targets(): NetworkTargets;
  /** Links, addresses, routes, rules and neighbours of this machine at this moment. */
  observeNetwork(signal: AbortSignal): Promise<NetworkReport>;
  /** The route that this machine would take to an IPv4 address. */
  routeTo(address: string, signal: AbortSignal): Promise<RouteAnswer>;
  /** The effective configuration, secrets included; whoever shows it hides them. */
  config(): Config;
  /** Puts the document before into force, or plans it. */
  rollback(request: RollbackRequest, signal: AbortSignal): Promise<RollbackReport>;
  /** How changes of the network stand. */
  network(): CommitReport;
  /** Tries a network on this machine; resolves once it is proven or taken back. */
  tryNetwork(request: NetworkTryRequest, signal: AbortSignal): Promise<CommitReport>;
  /** Keeps the pending change of the network, or takes it back. */
  keepNetwork(): Promise<CommitReport>;
  revertNetwork(): Promise<CommitReport>;
  /** What the current run of a container has written and, with `follow`, writes. */
  containerLogs(query: ContainerLogsQuery, signal: AbortSignal): AsyncIterable<ContainerLogPiece>;
  /** Opens a terminal in a container; whoever asked joins or discards it. */
  containerExec(query: ContainerExecQuery, signal: AbortSignal): Promise<LocalStream>;
  /** Asks for an upgrade of this node. */
  upgrade(order: UpgradeOrder): Promise<UpgradeAnswer>;
  /** Ends the wait before the next connection attempt, and looks how an upgrade stands. */
  wake(): void;
}
