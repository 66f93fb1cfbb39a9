import type { z } from "zod";
import { InputError } from "../../errors.ts";
import { describeIssues } from "../../protocol/channel/envelope.ts";
import type { StreamCommand, StreamEnd } from "../../protocol/channel/streams.ts";
import type { StreamLink } from "./stream-link.ts";

/** One kind of stream: its parameters and its target. */
export interface StreamKind {
  readonly kind: string;
  /** True if refused while the node is INACTIVE. */
  readonly needsDataPlane: boolean;
  /** True if agents support it; false if only appliances do. */
  readonly agents: boolean;
  /** Opens the stream's target; its errors, `invalid-body` among them, go to the caller. */
  open(params: unknown, signal: AbortSignal): Promise<OpenedStream>;
}

/** Target of a stream, before and while it is joined. */
export interface OpenedStream {
  /** Name for the log. */
  readonly subject: string;
  /** Copies bytes until the target ends; rejects when it fails, and with the signal's reason. */
  carry(link: StreamLink, signal: AbortSignal): Promise<StreamEnd>;
  command(command: StreamCommand, link: StreamLink): void;
  /** Releases the target, joined or not; may be called more than once. */
  close(): Promise<void>;
}

/** Parses the parameters of a stream. @throws {InputError} `invalid-body`, whose details name the field. */
export function readParams<T>(schema: z.ZodType<T>, params: unknown): T {
  const parsed = schema.safeParse(params);
  if (parsed.success) return parsed.data;
  const field = parsed.error.issues[0]?.path.map(String).join(".") ?? "";
  throw new InputError("invalid-body", describeIssues(parsed.error).join("; "), { details: { field } });
}
