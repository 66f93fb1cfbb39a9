import type { Logger } from "pino";
import type { Clock } from "../../host/clock.ts";
import type { Exec } from "../../host/process/exec.ts";
import type { MakeBundle } from "../../host/process/bundle-process.ts";
import type { Files } from "../../host/files/files.ts";
import type { LogMemory } from "../../host/log.ts";
import type { Power } from "../../host/process/power.ts";
import type { Config } from "../../protocol/documents/documents.ts";
import type { CommitReport } from "../../protocol/local/commit.ts";
import type { WhyReport } from "../../protocol/documents/reconcile.ts";
import type { ContainersView } from "./containers/view.ts";
import type { NetworkView } from "./network-view.ts";
import type { CleanStop } from "../triggers/node/clean-stop.ts";
import { configShow } from "../triggers/node/config-show.ts";
import { containerExecHint } from "../triggers/containers/container-exec.ts";
import { containerImage } from "../triggers/containers/container-image.ts";
import { containerLogs } from "../triggers/containers/container-logs.ts";
import { containerStatus } from "../triggers/containers/container-status.ts";
import { datastoreManager, type AnswerDataStore } from "../triggers/containers/datastore-manager.ts";
import { flows, type CarriedFlows } from "../triggers/diagnostics/flows.ts";
import { gatewayPerf } from "../triggers/diagnostics/gateway-perf.ts";
import { gatewayPing } from "../triggers/diagnostics/gateway-ping.ts";
import { gatewayRoutes } from "../triggers/diagnostics/gateway-routes.ts";
import { gatewayLatency, gatewayMtr, gatewayTraceroute } from "../triggers/diagnostics/gateway-trace.ts";
import { dnsHealth, repoConnectivity, type RegisteredChecks } from "../triggers/node/health-checks.ts";
import { networkStatus } from "../triggers/node/network-status.ts";
import { nodeErrors, nodeStatus, type ErrorsOptions, type NodeStatusOptions } from "../triggers/node/node-status.ts";
import { outboundConnectionCheck } from "../triggers/diagnostics/outbound-connection-check.ts";
import { networkKeep, networkRevert } from "../triggers/node/network-commit.ts";
import { natHits } from "../triggers/diagnostics/nat-hits.ts";
import { nodeDebug } from "../triggers/node/node-debug.ts";
import { nodePushLogs, type BundleStore } from "../triggers/node/node-push-logs.ts";
import { nodeReboot } from "../triggers/node/node-reboot.ts";
import { nodeRestartService } from "../triggers/node/node-restart-service.ts";
import { nodeUpgrade, type AskUpgrade } from "../triggers/node/node-upgrade.ts";
import { plan, type PlanConfig } from "../triggers/node/plan.ts";
import { rollback, type RollBack } from "../triggers/node/rollback.ts";
import { speedTest } from "../triggers/diagnostics/speed-test.ts";
import type { TransferTarget } from "../triggers/tools/speed-transfer.ts";
import { tgArping } from "../triggers/diagnostics/tg-arping.ts";
import { tgCapture, type Captures } from "../triggers/diagnostics/tg-capture.ts";
import { tgMtr } from "../triggers/diagnostics/tg-mtr.ts";
import { tgNc } from "../triggers/diagnostics/tg-nc.ts";
import { tgPing } from "../triggers/diagnostics/tg-ping.ts";
import { tgTcpdump, type BeginFile } from "../triggers/diagnostics/tg-tcpdump.ts";
import { tgTraceroute } from "../triggers/diagnostics/tg-traceroute.ts";
import { why } from "../triggers/node/why.ts";
import type { Trigger } from "../triggers/execution/trigger.ts";
import type { Tunnels } from "../triggers/diagnostics/tunnels.ts";
import type { IsUpgrading } from "../triggers/node/upgrading.ts";

export interface TriggerDeps {
  readonly clock: Clock;
  readonly exec: Exec;
  /** Starts tools that capture packets or send raw ones; by default `exec`. */
  readonly capture?: Exec;
  readonly files: Files;
  readonly power: Power;
  readonly networkView: Pick<NetworkView, "conntrack" | "nats" | "natWatch">;
  readonly overlay: CarriedFlows;
  readonly cleanStop: CleanStop;
  /** Everything that deviates from the documents. */
  readonly why: () => WhyReport;
  readonly upgrades: { readonly ask: AskUpgrade; readonly isAtWork: IsUpgrading };
  readonly speedTestTarget: () => TransferTarget | undefined;
  readonly applying: {
    readonly plan: PlanConfig;
    readonly rollback: RollBack;
    config(): Config;
    keepNetwork(): Promise<CommitReport>;
    revertNetwork(): Promise<CommitReport>;
  };
  readonly tunnels: Tunnels;
  readonly containers: Pick<ContainersView, "compute" | "registryHost" | "audit">;
  readonly dataStore: { readonly handle: AnswerDataStore; readonly create: BeginFile & BundleStore["create"] };
  readonly captures: Pick<Captures, "handle">;
  readonly makeBundle: MakeBundle;
  /** The agent's reports about itself to people on the machine. */
  readonly diagnosis: NodeStatusOptions &
    ErrorsOptions & {
      readonly checks: RegisteredChecks;
      /** The name that is resolved to reach the control plane; undefined before there is a registration. */
      readonly resolvedName: () => string | undefined;
      readonly repositoryUrl: () => string | undefined;
    };
  readonly log: Logger;
  /** The lines of the log, for viewers. */
  readonly memory: Pick<LogMemory, "tap">;
  readonly announceRestart: (signal: AbortSignal) => Promise<void>;
}

/** Every trigger event that this node answers. */
export function listTriggers(deps: TriggerDeps): readonly Trigger[] {
  const {
    clock,
    exec,
    capture = exec,
    files,
    power,
    networkView,
    overlay,
    cleanStop,
    upgrades,
    speedTestTarget,
    applying,
    tunnels,
    containers,
    dataStore,
    captures,
    makeBundle,
    diagnosis,
    log,
    memory,
    announceRestart,
  } = deps;
  const isUpgrading = (): Promise<boolean> => upgrades.isAtWork();
  const { compute } = containers;
  return [
    nodeRestartService({ power, clock, cleanStop, isUpgrading, announce: announceRestart }),
    nodeReboot({ power, clock, cleanStop, isUpgrading }),
    nodeDebug(memory, clock),
    nodePushLogs(makeBundle, dataStore),
    nodeUpgrade((request) => upgrades.ask(request)),
    tgPing(exec, files, tunnels, clock),
    tgTraceroute(exec, files, tunnels),
    tgMtr(exec, files),
    tgNc(exec),
    tgArping(capture, files),
    tgTcpdump({ exec: capture, files, clock, begin: (path, signal) => dataStore.create(path, signal) }),
    tgCapture(captures),
    nodeStatus(diagnosis),
    nodeErrors(diagnosis),
    networkStatus(diagnosis.reader),
    dnsHealth(diagnosis.checks, diagnosis.resolvedName),
    repoConnectivity(diagnosis.checks, diagnosis.repositoryUrl),
    outboundConnectionCheck(clock),
    gatewayLatency(exec, tunnels),
    gatewayTraceroute(exec, tunnels),
    gatewayMtr(exec, tunnels),
    flows({ conntrack: networkView.conntrack, carried: overlay, clock, log }, () => compute()?.containers() ?? []),
    natHits(() => networkView.nats(), networkView.natWatch),
    gatewayRoutes(tunnels, clock, log),
    gatewayPing(tunnels, clock),
    gatewayPerf(tunnels, clock),
    speedTest({ clock, target: speedTestTarget }),
    plan((config, signal) => applying.plan(config, signal)),
    why(deps.why),
    configShow(() => applying.config()),
    rollback((request, signal) => applying.rollback(request, signal)),
    networkKeep(() => applying.keepNetwork()),
    networkRevert(() => applying.revertNetwork()),
    containerLogs(compute),
    containerExecHint(),
    containerStatus(compute),
    containerImage(containers),
    datastoreManager((request, signal) => dataStore.handle(request, signal), containers.audit),
  ];
}
