import type { z } from "zod";
import { InputError } from "../../errors.ts";
import { describeIssues } from "../../protocol/channel/envelope.ts";
import type { StreamCommand, StreamEnd } from "../../protocol/channel/streams.ts";
import type { StreamLink } from "./stream-link.ts";

/** One kind of stream: what it takes and what it joins its other end to. */
export interface StreamKind {
  readonly kind: string;
  /** Whether it is refused while the node is INACTIVE. */
  readonly needsDataPlane: boolean;
  /** Whether an agent has it, or only an appliance. */
  readonly agents: boolean;
  /** Opens what the stream leads to; its errors, `invalid-body` among them, are the answer to whoever asked. */
  open(params: unknown, signal: AbortSignal): Promise<OpenedStream>;
}

/** What a stream leads to, before and while it is joined. */
export interface OpenedStream {
  /** What people call it, for the log. */
  readonly subject: string;
  /** Carries bytes until its own side has ended; rejects when it fails, and with the signal's reason. */
  carry(link: StreamLink, signal: AbortSignal): Promise<StreamEnd>;
  command(command: StreamCommand, link: StreamLink): void;
  /** Lets go of it, whether it was joined or not; may be called more than once. */
  close(): Promise<void>;
}

/** Reads what a kind is opened with. @throws {InputError} `invalid-body`, whose details name the field. */
export function readParams<T>(schema: z.ZodType<T>, params: unknown): T {
  const parsed = schema.safeParse(params);
  if (parsed.success) return parsed.data;
  const field = parsed.error.issues[0]?.path.map(String).join(".") ?? "";
  throw new InputError("invalid-body", describeIssues(parsed.error).join("; "), { details: { field } });
}
