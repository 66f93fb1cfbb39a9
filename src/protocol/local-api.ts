import { z } from "zod";
import { InputError } from "../errors.ts";
import type { JsonLimits } from "../lib/strict-json.ts";
import { DocumentName, NodeIdentity } from "./claims.ts";
import { DataPlane } from "./local-mesh.ts";
import { OverlayState } from "./local-overlay.ts";
import { PendingChange } from "./local-commit.ts";
import { SectionReport } from "./methods.ts";
import { JsonObject, LifecycleState, NodeState, UnixMilliseconds, Version } from "./values.ts";

/** The two sockets below the run directory: one for reading, one for everything. */
export const READ_SOCKET = "agent.sock";
export const ADMIN_SOCKET = "admin.sock";
/** Bounds on a request body and on one reply or one line of a reply. */
export const LOCAL_REQUEST_LIMITS: JsonLimits = { maxBytes: 64 * 1024, maxDepth: 32 };
export const LOCAL_REPLY_LIMITS: JsonLimits = { maxBytes: 16 * 1024 * 1024, maxDepth: 64 };
/** How often a stream without anything to say carries an empty line, so that a silent agent is known to be hung. */
export const STREAM_BEAT_MS = 2000;
export const LICENSE_MAX_BYTES = 8192;
export const LOG_LINES_MAX = 10_000;

const SOCKET_PATH_MAX_BYTES = 107; // sun_path, unix(7), without its terminating zero

/**
 * The path of a socket in the run directory.
 * @throws {InputError} `path-too-long` when the kernel could not take it.
 */
export function socketPath(runDir: string, socket: string): string {
  const path = `${runDir.replace(/\/+$/, "")}/${socket}`;
  const size = Buffer.byteLength(path);
  if (size > SOCKET_PATH_MAX_BYTES) {
    throw new InputError(
      "path-too-long",
      `${path} has ${size} bytes and a Unix socket takes at most ${SOCKET_PATH_MAX_BYTES}: choose a shorter run directory with --run`,
      { details: { path, bytes: size, limit: SOCKET_PATH_MAX_BYTES } },
    );
  }
  return path;
}

/** Something that went wrong, as every face of the local API and every `--json` prints it. */
export const Failure = z.object({
  code: z.string().max(64),
  message: z.string().max(65_536),
  details: JsonObject.optional(),
});
export type Failure = z.infer<typeof Failure>;

/** The body of every answer that is not 200. */
export const LocalError = z.object({ error: Failure });
export type LocalError = z.infer<typeof LocalError>;

export const FloorName = z.enum(["keys", ...DocumentName.options]);
export type FloorName = z.infer<typeof FloorName>;

/** Where the session stands; times in Unix milliseconds. */
export const SessionStatus = z.object({
  state: z.enum(["unregistered", "waiting", "connecting", "online", "stopped"]),
  since: UnixMilliseconds,
  attempt: Version,
  retryAt: UnixMilliseconds.optional(),
  reason: z.object({ code: z.string().max(64), message: z.string().max(4096) }).optional(),
  address: z.string().max(128).optional(),
  url: z.string().max(512).optional(),
  rttMs: z.number().min(0).optional(),
  sid: z.uuid().optional(),
  lastOnlineAt: UnixMilliseconds.optional(),
});
export type SessionStatus = z.infer<typeof SessionStatus>;

/** What the agent says of itself. Times in Unix milliseconds; names it does not know are for a reader to ignore. */
export const Status = z.object({
  schema: z.literal(1),
  version: z.string().max(64),
  build: z.string().max(64),
  pid: z.int().min(1),
  startedAt: UnixMilliseconds,
  uptimeSeconds: z.number().min(0),
  state: z.object({ stateDir: z.string().max(4096), runDir: z.string().max(4096) }),
  node: NodeIdentity.nullable(),
  session: SessionStatus,
  nodeState: NodeState,
  lifecycleState: LifecycleState.optional(),
  cluster: z.string().max(253).optional(),
  tags: z.record(z.string().max(128), z.string().max(128)),
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
  sections: z.record(z.string().max(64), SectionReport.extend({ version: Version })),
  /** A change of the network that is not confirmed yet. */
  pendingChange: PendingChange.optional(),
  telemetry: z.record(z.string().max(64), z.object({ queued: Version, dropped: Version })),
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
        code: z.string().max(64),
        message: z.string().max(4096),
        since: UnixMilliseconds,
        /** Only of one that is over. */
        mendedAt: UnixMilliseconds.optional(),
      }),
    )
    .max(256),
});
export type Status = z.infer<typeof Status>;

/** One thing that was checked; `fix` says what a person can do. */
export const HealthItem = z.object({
  name: z.string().min(1).max(64),
  status: z.enum(["pass", "warn", "fail", "unknown"]),
  message: z.string().max(4096),
  since: UnixMilliseconds.optional(),
  fix: z.string().max(4096).optional(),
});
export type HealthItem = z.infer<typeof HealthItem>;

export const Health = z.object({
  schema: z.literal(1),
  verdict: z.enum(["ok", "degraded", "failed"]),
  items: z.array(HealthItem).max(1000),
});
export type Health = z.infer<typeof Health>;

/** Query of `GET /v1/logs`: how many lines back, and whether to go on. */
export const LogsQuery = z.object({
  lines: z
    .string()
    .regex(/^\d{1,6}$/, "must be a whole number")
    .default("100")
    .transform(Number)
    .pipe(z.int().min(0).max(LOG_LINES_MAX)),
  follow: z
    .enum(["0", "1", "false", "true"])
    .default("0")
    .transform((text) => text === "1" || text === "true"),
});
export type LogsQuery = z.infer<typeof LogsQuery>;

/** What stands for a secret in the answer of `GET /v1/config`. */
export const HIDDEN_SECRET = "***";

/** Query of `GET /v1/config`: whether secrets are shown as they are. */
export const ConfigQuery = z.object({
  secrets: z
    .enum(["0", "1"])
    .default("0")
    .transform((text) => text === "1"),
});
export type ConfigQuery = z.infer<typeof ConfigQuery>;

/** Query of `GET /v1/containers/logs`. */
export const ContainerLogsQuery = LogsQuery.extend({ container: z.string().min(1).max(253) });
export type ContainerLogsQuery = z.infer<typeof ContainerLogsQuery>;

/** A piece of what a container wrote. */
export const ContainerLogPiece = z.object({ stream: z.enum(["stdout", "stderr"]), data: z.string() });
export type ContainerLogPiece = z.infer<typeof ContainerLogPiece>;

const Size = z
  .string()
  .regex(/^\d{1,4}$/, "must be a whole number")
  .transform(Number)
  .pipe(z.int().min(1).max(1000));

/** One line of `GET /v1/containers/logs`; an error is the last. */
export const ContainerLogLine = z.union([ContainerLogPiece, LocalError]);
export type ContainerLogLine = z.infer<typeof ContainerLogLine>;

/** Query of the upgrade to a terminal, `GET /v1/containers/exec`; `arg` once for each word of a command. */
export const ContainerExecQuery = z.object({
  container: z.string().min(1).max(253),
  cols: Size.default(80),
  rows: Size.default(24),
  arg: z.array(z.string().max(4096)).max(64).default([]),
});
export type ContainerExecQuery = z.infer<typeof ContainerExecQuery>;

export const LogLine = z.object({
  time: UnixMilliseconds,
  level: z.enum(["trace", "debug", "info", "warn", "error", "fatal"]),
  component: z.string().max(64).optional(),
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

export const RegisterRequest = z.object({ license: z.string().min(1).max(LICENSE_MAX_BYTES) });
export const ResetFloorRequest = z.object({ name: FloorName });
/** A document's version floor before and after; zero means none. */
export const FloorReset = z.object({ name: FloorName, from: Version, to: Version });
export type FloorReset = z.infer<typeof FloorReset>;
export const Nothing = z.object({});
