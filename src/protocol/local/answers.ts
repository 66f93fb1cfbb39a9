import { z } from "zod";
import { Restriction } from "../values/restriction.ts";
import { NodeIdentity } from "../documents/claims.ts";
import { ClockBehind } from "./known-time.ts";
import { FloorName } from "./api.ts";
import { PendingChange } from "./commit.ts";
import { DataPlane } from "./mesh.ts";
import { OverlayState } from "./overlay.ts";
import { SectionReport } from "../channel/methods.ts";
import { UpgradeStatus } from "../documents/release.ts";
import {
  JsonObject,
  LifecycleState,
  NodeState,
  Text64,
  Text128,
  Text253,
  Text512,
  Text4096,
  UnixMilliseconds,
  Version,
} from "../values/values.ts";

// Only the command line parses the agent's answers; the agent does not load these schemas.

/** Something that went wrong, as every face of the local API and every `--json` prints it. */
export const Failure = z.object({
  code: Text64,
  message: z.string().max(65_536),
  details: JsonObject.optional(),
});
export type Failure = z.infer<typeof Failure>;

/** The body of every answer that is not 200. */
export const LocalError = z.object({ error: Failure });
export type LocalError = z.infer<typeof LocalError>;

/** State of the session; times in Unix milliseconds. */
export const SessionStatus = z.object({
  state: z.enum(["unregistered", "waiting", "connecting", "online", "stopped"]),
  since: UnixMilliseconds,
  attempt: Version,
  retryAt: UnixMilliseconds.optional(),
  reason: z.object({ code: Text64, message: Text4096 }).optional(),
  address: Text128.optional(),
  url: Text512.optional(),
  rttMs: z.number().min(0).optional(),
  sid: z.uuid().optional(),
  /** Send time of the newest heartbeat that the control plane acknowledged in this session. */
  heartbeatAt: UnixMilliseconds.optional(),
  lastOnlineAt: UnixMilliseconds.optional(),
  /** Set if the control plane does not answer requests, or answers against their schemas. */
  unanswered: z.object({ since: UnixMilliseconds, message: Text4096 }).optional(),
  /** The session was lost four times or more in the last ten minutes. */
  lost: z.object({ since: UnixMilliseconds, message: Text4096 }).optional(),
});
export type SessionStatus = z.infer<typeof SessionStatus>;

/** Status of the agent. Times in Unix milliseconds. Readers ignore unknown members. */
export const Status = z.object({
  schema: z.literal(1),
  version: Text64,
  build: Text64,
  pid: z.int().min(1),
  startedAt: UnixMilliseconds,
  uptimeSeconds: z.number().min(0),
  state: z.object({ stateDir: Text4096, runDir: Text4096 }),
  node: NodeIdentity.nullable(),
  session: SessionStatus,
  nodeState: NodeState,
  /** Only of a node that the control plane deleted: it is INACTIVE until the control plane has it again. */
  deletedAt: UnixMilliseconds.optional(),
  /** Present only while the control plane holds the node INACTIVE for a reason such as an address lock. */
  restricted: Restriction.optional(),
  lifecycleState: LifecycleState.optional(),
  cluster: Text253.optional(),
  tags: z.record(Text128, Text128),
  documents: z.partialRecord(
    FloorName,
    z.object({
      version: Version,
      receivedAt: UnixMilliseconds.optional(),
      appliedAt: UnixMilliseconds.optional(),
      /** The newer version that was rolled back. */
      refused: Version.optional(),
    }),
  ),
  sections: z.record(Text64, SectionReport.extend({ version: Version })),
  /** Set if the clock is certainly behind: before the build of this program, or before the last time of a control plane. */
  clock: ClockBehind.optional(),
  /** A change of the network that is not confirmed yet. */
  pendingChange: PendingChange.optional(),
  /** State of the last upgrade; absent if there was none and the version has proven itself. */
  upgrade: UpgradeStatus.optional(),
  telemetry: z.record(Text64, z.object({ queued: Version, dropped: Version })),
  engines: z.looseObject({
    network: z.enum(["netlink", "poll"]),
    overlay: OverlayState.optional(),
    dataPlane: DataPlane.optional(),
  }),
  process: z.object({
    rssBytes: z.number().min(0),
    privateDirtyBytes: z.number().min(0).optional(),
    cpuSeconds: z.number().min(0),
    children: Version,
  }),
  faults: z
    .array(
      z.object({
        code: Text64,
        message: Text4096,
        since: UnixMilliseconds,
        /** Only of one that is over. */
        mendedAt: UnixMilliseconds.optional(),
      }),
    )
    .max(256),
});
export type Status = z.infer<typeof Status>;

/** Result of one check; `fix` is the remedy. */
export const HealthItem = z.object({
  name: z.string().min(1).max(64),
  status: z.enum(["pass", "warn", "fail", "unknown"]),
  message: Text4096,
  since: UnixMilliseconds.optional(),
  fix: Text4096.optional(),
});
export type HealthItem = z.infer<typeof HealthItem>;

export const Health = z.object({
  schema: z.literal(1),
  verdict: z.enum(["ok", "degraded", "failed"]),
  items: z.array(HealthItem).max(1000),
});
export type Health = z.infer<typeof Health>;

/** A piece of what a container wrote. */
export const ContainerLogPiece = z.object({ stream: z.enum(["stdout", "stderr"]), data: z.string() });
export type ContainerLogPiece = z.infer<typeof ContainerLogPiece>;

/** One line of `GET /v1/containers/logs`; an error is the last. */
export const ContainerLogLine = z.union([ContainerLogPiece, LocalError]);
export type ContainerLogLine = z.infer<typeof ContainerLogLine>;

export const LogLine = z.object({
  time: UnixMilliseconds,
  level: z.enum(["trace", "debug", "info", "warn", "error", "fatal"]),
  component: Text64.optional(),
  message: z.string(),
  fields: JsonObject.optional(),
});
export type LogLine = z.infer<typeof LogLine>;

/** One line of a running trigger: any number of `progress`, then exactly one `result` or `error`. */
export const TriggerLine = z.discriminatedUnion("kind", [
  z.object({
    kind: z.literal("progress"),
    seq: Version,
    channel: z.enum(["stdout", "stderr", "json", "percent"]),
    data: z.unknown(),
  }),
  z.object({ kind: z.literal("result"), body: z.unknown() }),
  z.object({ kind: z.literal("error"), ...Failure.shape }),
]);
export type TriggerLine = z.infer<typeof TriggerLine>;

/** A document's version floor before and after; zero means none. */
export const FloorReset = z.object({ name: FloorName, from: Version, to: Version });
export type FloorReset = z.infer<typeof FloorReset>;
