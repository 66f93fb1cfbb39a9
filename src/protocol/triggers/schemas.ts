import { z } from "zod";
import {
  ContainerImageRequest,
  ContainerLogs,
  ContainerStatusRequest,
  Flows,
  GatewayPerf,
  GatewayPing,
  GatewayRoutes,
  NatHits,
  NetworkKeep,
  NetworkRevert,
  NoBody,
  NodeDebug,
  NodePushLogs,
  NodeUpgrade,
  SpeedTest,
  TgArping,
  TgMtrBody,
  TgNc,
  TgPing,
  TgTcpdump,
  TgTracerouteBody,
} from "./bodies.ts";
import {
  Announced,
  ContainerImageAnswer,
  ContainerStatusAnswer,
  DataStoreAnswer,
  FlowsAnswer,
  GatewayRoutesAnswer,
  NatHitsAnswer,
  TgNcAnswer,
  ToolOutput,
} from "./results.ts";
import { PushedLogs } from "../documents/bundle.ts";
import { CaptureAnswer, TgCapture } from "./capture.ts";
import { DataStoreRequest } from "./data-store.ts";
import {
  DnsHealthAnswer,
  ErrorsAnswer,
  ErrorsRequest,
  GatewayLatency,
  GatewayLatencyAnswer,
  GatewayTrace,
  NetworkStatusAnswer,
  NodeStatusAnswer,
  OutboundConnectionAnswer,
  OutboundConnectionCheck,
  RepoConnectivityAnswer,
} from "./diagnostics.ts";
import { CommitReport } from "../local/commit.ts";
import {
  ConfigShowRequest,
  PlanDocument,
  PlanReport,
  RollbackReport,
  RollbackRequest,
  WhyReport,
} from "../documents/reconcile.ts";
import { UpgradeAnswer } from "../documents/release.ts";
import { JsonObject } from "../values/values.ts";
import type { TriggerEvent } from "../values/trigger-events.ts";

/**
 * Schemas of the body and the result of each trigger event. A failure is an error with a code; a measurement that finds nothing is
 * a result.
 */
export const triggerSchemas = {
  "container-image": { body: ContainerImageRequest, result: ContainerImageAnswer },
  "container-logs": { body: ContainerLogs, result: ToolOutput },
  "container-status": { body: ContainerStatusRequest, result: ContainerStatusAnswer },
  "datastore-manager": { body: DataStoreRequest, result: DataStoreAnswer },
  "dns-health": { body: NoBody, result: DnsHealthAnswer },
  errors: { body: ErrorsRequest, result: ErrorsAnswer },
  flows: { body: Flows, result: FlowsAnswer },
  "gateway-latency": { body: GatewayLatency, result: GatewayLatencyAnswer },
  "gateway-mtr": { body: GatewayTrace, result: ToolOutput },
  "gateway-traceroute": { body: GatewayTrace, result: ToolOutput },
  "network-status": { body: NoBody, result: NetworkStatusAnswer },
  "node-reboot": { body: NoBody, result: Announced },
  "node-restart-service": { body: NoBody, result: Announced },
  "outbound-connection-check": { body: OutboundConnectionCheck, result: OutboundConnectionAnswer },
  "repo-connectivity": { body: NoBody, result: RepoConnectivityAnswer },
  status: { body: NoBody, result: NodeStatusAnswer },
  why: { body: NoBody, result: WhyReport },
  "gateway-routes": { body: GatewayRoutes, result: GatewayRoutesAnswer },
  "gateway-ping": { body: GatewayPing, result: ToolOutput },
  "gateway-perf": { body: GatewayPerf, result: ToolOutput },
  "nat-hits": { body: NatHits, result: NatHitsAnswer },
  "node-debug": { body: NodeDebug, result: ToolOutput },
  "node-push-logs": { body: NodePushLogs, result: PushedLogs },
  "node-upgrade": { body: NodeUpgrade, result: UpgradeAnswer },
  "tg-arping": { body: TgArping, result: ToolOutput },
  "tg-capture": { body: TgCapture, result: CaptureAnswer },
  "tg-mtr": { body: TgMtrBody, result: ToolOutput },
  "tg-ping": { body: TgPing, result: ToolOutput },
  "tg-nc": { body: TgNc, result: TgNcAnswer },
  "tg-tcpdump": { body: TgTcpdump, result: ToolOutput },
  "tg-traceroute": { body: TgTracerouteBody, result: ToolOutput },
  "speed-test": { body: SpeedTest, result: ToolOutput },
  plan: { body: PlanDocument, result: PlanReport },
  rollback: { body: RollbackRequest, result: RollbackReport },
  "config-show": { body: ConfigShowRequest, result: JsonObject },
  "network-keep": { body: NetworkKeep, result: CommitReport },
  "network-revert": { body: NetworkRevert, result: CommitReport },
  // A terminal is refused as an event: `stream.open` opens it.
  "container-exec": { body: NoBody, result: z.never() },
} as const satisfies Readonly<Record<TriggerEvent, { readonly body: z.ZodType; readonly result: z.ZodType }>>;
