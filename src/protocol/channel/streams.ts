import { z } from "zod";
import type { ErrorCode } from "../values/error-codes.ts";
import { Text64, Text1024, Text4096 } from "../values/values.ts";

/** Columns and rows of a terminal. */
const Columns = z.int().min(1).max(1000);
const Rows = z.int().min(1).max(1000);
const ContainerName = z.string().min(1).max(253);

/** Request to open a terminal in a container. */
export const ContainerExec = z.strictObject({
  container: ContainerName.meta({ description: "The container's name in the configuration" }),
  cols: Columns.default(80),
  rows: Rows.default(24),
});
export type ContainerExec = z.infer<typeof ContainerExec>;

/** The same request from this machine, which may name a command other than a shell. */
export const LocalContainerExec = ContainerExec.extend({
  command: z.array(Text4096).max(64).default([]),
});
export type LocalContainerExec = z.infer<typeof LocalContainerExec>;

/** Request that opens each kind of stream. */
export const streamKinds = { "container-exec": ContainerExec } as const satisfies Record<string, z.ZodType>;
export type StreamKindName = keyof typeof streamKinds;

/** A command beside the bytes of a stream: one JSON object in a text frame. */
export const StreamCommand = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("resize"), cols: Columns, rows: Rows }),
  /** End of input; a terminal gets ^D. */
  z.strictObject({ type: z.literal("close") }),
]);
export type StreamCommand = z.infer<typeof StreamCommand>;

/** Outcome of a stream: the last text frame before the socket is closed. */
export const StreamEnd = z.discriminatedUnion("type", [
  /** The command ended; null if its exit code is unknown. */
  z.object({ type: z.literal("exit"), code: z.int().min(-1).max(255).nullable() }),
  z.object({ type: z.literal("error"), code: Text64, message: Text1024 }),
]);
export type StreamEnd = z.infer<typeof StreamEnd>;

/** The subprotocol of `/agent/v1/stream` (RFC 6455 §1.9). */
export const STREAM_SUBPROTOCOL = "holdfast-stream.v1";
/** The header with the one-time ticket, also of documents. */
export const TICKET_HEADER = "holdfast-ticket";
/** The upgrade token (RFC 9110 §7.8) of a stream of the local API. */
export const LOCAL_STREAM_UPGRADE = "holdfast-stream";

/** Limits of every stream in bytes: of a frame when sending and receiving, of a text frame, and of the send queue. */
export const STREAM_LIMITS = {
  sentFrameBytes: 64 * 1024,
  takenFrameBytes: 1024 * 1024,
  textBytes: 8192,
  unsentBytes: 256 * 1024,
} as const;
/** Streams that a node has open at a time. */
export const MAX_STREAMS = 8;
/** Idle time after which a stream is closed, in milliseconds. */
export const STREAM_IDLE_MS = 3_600_000;
/** Time limit for the node to dial, and validity of its order, in milliseconds. */
export const STREAM_OPEN_MS = 20_000;

/** Close codes of a stream (RFC 6455 §7.4.1): normal end; protocol violation of the other side; failure. */
export const streamCloseCodes = { ended: 1000, protocol: 1008, failed: 1011 } as const;

/** Parses a text frame; undefined if it does not match the schema. */
export function parseStreamText<T>(schema: z.ZodType<T>, text: string): T | undefined {
  if (text.length > STREAM_LIMITS.textBytes) return undefined;
  try {
    const parsed = schema.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the outcome of a failed stream, with its message cut to the limit. */
export function streamError(code: ErrorCode, message: string): StreamEnd {
  return { type: "error", code, message: message.slice(0, 1024) };
}
