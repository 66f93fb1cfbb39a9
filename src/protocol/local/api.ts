import { z } from "zod";
import { InputError } from "../../errors.ts";
import type { JsonLimits } from "../../lib/formats/strict-json.ts";
import { DocumentName } from "../documents/claims.ts";
import { TRY_MINUTES } from "../values/commit.ts";
import { JsonObject, Text4096, UnixMilliseconds } from "../values/values.ts";

/** The two sockets below the run directory: one for reading, one for everything. */
export const READ_SOCKET = "agent.sock";

export const ADMIN_SOCKET = "admin.sock";

/** Bounds on a request body and on one reply or one line of a reply. */
export const LOCAL_REQUEST_LIMITS: JsonLimits = { maxBytes: 64 * 1024, maxDepth: 32 };

export const LOCAL_REPLY_LIMITS: JsonLimits = { maxBytes: 16 * 1024 * 1024, maxDepth: 64 };

/** Interval of empty lines on an idle stream, in milliseconds. Without them, the agent hangs. */
export const STREAM_BEAT_MS = 2000;

export const LICENSE_MAX_BYTES = 8192;

export const LOG_LINES_MAX = 10_000;

/** Maximum entries of each kind in a report. */
export const NETWORK_REPORT_LIMITS = {
  links: 2000,
  addresses: 5000,
  routes: 20_000,
  rules: 5000,
  neighbours: 5000,
} as const;

/** Maximum connectors of a service that are listed with details. */
export const MAX_SERVICE_USERS = 32;

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

export const FloorName = z.enum(["keys", ...DocumentName.options]);
export type FloorName = z.infer<typeof FloorName>;

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

/** Replacement for a secret in the answer of `GET /v1/config`. */
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

const Size = z
  .string()
  .regex(/^\d{1,4}$/, "must be a whole number")
  .transform(Number)
  .pipe(z.int().min(1).max(1000));

/** Query of the upgrade to a terminal, `GET /v1/containers/exec`; `arg` once for each word of a command. */
export const ContainerExecQuery = z.object({
  container: z.string().min(1).max(253),
  cols: Size.default(80),
  rows: Size.default(24),
  arg: z.array(Text4096).max(64).default([]),
});
export type ContainerExecQuery = z.infer<typeof ContainerExecQuery>;

export const RegisterRequest = z.object({ license: z.string().min(1).max(LICENSE_MAX_BYTES) });

/** Body of `POST /v1/reset`: whether it is a factory reset. */
export const ResetRequest = z.strictObject({ factory: z.boolean() });
export type ResetRequest = z.infer<typeof ResetRequest>;

/** Answer of `POST /v1/reset`: the reset follows at once. */
export const ResetAnswer = z.object({
  factory: z.boolean(),
  /** Start time of the agent that answers; the agent after the reset has a later one. */
  startedAt: UnixMilliseconds,
  stateDir: z.string(),
  /** Whether the control plane has acknowledged it. */
  isReported: z.boolean(),
});
export type ResetAnswer = z.infer<typeof ResetAnswer>;

export const ResetFloorRequest = z.object({ name: FloorName });

/** Query of `GET /v1/route`. */
export const RouteQuery = z.object({ to: z.ipv4() });

/** A network to try on this machine, as a document would have it. */
export const NetworkTryRequest = z.strictObject({ network: JsonObject, minutes: z.literal([...TRY_MINUTES]) });
export type NetworkTryRequest = z.infer<typeof NetworkTryRequest>;
