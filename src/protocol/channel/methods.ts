import { z } from "zod";
import { DocumentName } from "../documents/claims.ts";
import { RollbackCause } from "../values/commit.ts";
import { SectionName } from "../sections/sections.ts";
import { ShadowMap } from "../values/shadow.ts";
import { TelemetryAck, TelemetryPush } from "../documents/telemetry.ts";
import {
  Base64Url32,
  JsonObject,
  Jws,
  Text64,
  Text1024,
  Text4096,
  UnixMilliseconds,
  Version,
} from "../values/values.ts";

const Ratio = z.number().min(0).max(1);
const Nothing = z.object({});

/** State of the machine that every heartbeat carries. Sizes in bytes, `load` the 1-minute average. */
export const Heartbeat = z.object({
  seq: Version,
  at: UnixMilliseconds,
  uptimeSeconds: z.number().min(0),
  load: z.number().min(0),
  memory: z.object({ totalBytes: z.number().min(0), availableBytes: z.number().min(0) }),
  disk: z.object({ totalBytes: z.number().min(0), freeBytes: z.number().min(0), usedRatio: Ratio }),
  sessionRttMs: z.number().min(0).optional(),
  /** Absent if none is needed, and while its state is unknown. */
  overlay: z.enum(["UP", "DEGRADED", "DOWN"]).optional(),
  queue: z.object({ records: Version, dropped: Version }),
});
export type Heartbeat = z.infer<typeof Heartbeat>;

export const SectionState = z.enum(["converged", "rejected", "failed", "diverged", "pending", "unsupported"]);
export const SectionReport = z.object({
  state: SectionState,
  issues: z.array(Text1024).max(1000),
  steps: Version,
});
export type SectionReport = z.infer<typeof SectionReport>;

/** Result of a document. After a rollback, it names the applied version, to which the sections refer. */
export const DocumentApplied = z.object({
  name: z.enum(["keys", ...DocumentName.options]),
  version: Version,
  at: UnixMilliseconds,
  durationMs: z.number().min(0),
  outcome: z.enum(["converged", "partial", "refused", "rolled-back"]),
  inForce: Version.optional(),
  /** Reason why the node rolled it back by itself. */
  evidence: RollbackCause.optional(),
  sections: z.partialRecord(SectionName, SectionReport),
});
export type DocumentApplied = z.infer<typeof DocumentApplied>;

const TriggerFailure = z.object({
  code: Text64,
  message: Text4096,
  details: JsonObject.optional(),
});
export type TriggerFailure = z.infer<typeof TriggerFailure>;

/** A wire method: what it is called with and, for a request, what it answers. */
export interface MethodSpec {
  readonly kind: "request" | "notification";
  readonly params: z.ZodType;
  readonly result: z.ZodType;
}

/** Methods that the node calls on the control plane. */
export const nodeMethods = {
  "session.hello": {
    kind: "request",
    params: z.object({ proof: Jws.max(16_384), reportedVersion: Version }),
    result: z.object({ proof: Jws.max(16_384), heartbeatSeconds: z.number(), reportedVersion: Version }),
  },
  heartbeat: { kind: "notification", params: Heartbeat, result: Nothing },
  "shadow.report": {
    kind: "request",
    params: z.object({
      version: Version.min(1),
      base: Version,
      set: ShadowMap,
      unset: z.array(z.string().min(1).max(128)).max(4096),
    }),
    result: z.object({ version: Version }),
  },
  "document.get": {
    kind: "request",
    params: z.object({ name: z.enum(["keys", ...DocumentName.options]), have: Version }),
    result: z.union([
      z.object({ version: Version, unchanged: z.literal(true) }),
      z.object({ version: Version, ticket: Base64Url32 }),
    ]),
  },
  "document.applied": { kind: "request", params: DocumentApplied, result: Nothing },
  "trigger.progress": {
    kind: "notification",
    params: z.object({
      id: z.uuid(),
      seq: Version,
      kind: z.enum(["stdout", "stderr", "json", "percent"]),
      data: z.unknown(),
    }),
    result: Nothing,
  },
  "trigger.result": {
    kind: "request",
    params: z.union([z.object({ id: z.uuid(), error: TriggerFailure }), z.object({ id: z.uuid(), body: z.unknown() })]),
    result: Nothing,
  },
  "telemetry.push": { kind: "request", params: TelemetryPush, result: TelemetryAck },
  "registry.token": {
    kind: "request",
    params: z.object({ repository: z.string().min(1).max(255) }),
    result: z.object({ username: z.string(), password: z.string(), expiresAt: UnixMilliseconds }),
  },
  "volume.key": {
    kind: "request",
    params: z.object({ volume: z.string().min(1).max(63) }),
    result: z.object({ key: Base64Url32 }),
  },
} as const satisfies Record<string, MethodSpec>;

/** Methods that the control plane calls on the node. */
export const controlMethods = {
  "session.challenge": {
    kind: "notification",
    params: z.object({ nonce: Base64Url32, protocol: z.int().min(1) }),
    result: Nothing,
  },
  "document.changed": {
    kind: "notification",
    params: z.object({ name: z.enum(["keys", ...DocumentName.options]), version: Version }),
    result: Nothing,
  },
  "trigger.run": { kind: "request", params: z.object({ jws: Jws.max(1_000_000) }), result: z.unknown() },
  "trigger.cancel": { kind: "notification", params: z.object({ id: z.uuid() }), result: Nothing },
  "trigger.input": {
    kind: "notification",
    params: z.object({ id: z.uuid(), data: z.string().max(16_384) }),
    result: Nothing,
  },
  "stream.open": {
    kind: "request",
    params: z.object({ jws: Jws.max(16_384), ticket: Base64Url32 }),
    result: Nothing,
  },
  "session.deleted": { kind: "notification", params: z.object({ jws: Jws.max(16_384) }), result: Nothing },
} as const satisfies Record<string, MethodSpec>;

export type NodeMethods = typeof nodeMethods;
export type ControlMethods = typeof controlMethods;

/** WebSocket close codes of the control channel. */
export const closeCodes = {
  "not-authentic": 4001,
  superseded: 4002,
  deleted: 4003,
  "protocol-version": 4004,
  "too-many": 4008,
} as const;
export type CloseReason = keyof typeof closeCodes;
