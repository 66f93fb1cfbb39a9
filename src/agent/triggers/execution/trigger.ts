import type { z } from "zod";
import type { JsonLimits } from "../../../lib/formats/strict-json.ts";
import type { TriggerFailure } from "../../../protocol/channel/methods.ts";

/** A piece of output: text of a tool, one JSON object of a measurement, or how far the work is. */
export type Chunk =
  | { readonly kind: "stdout" | "stderr"; readonly data: string }
  | { readonly kind: "json"; readonly data: Readonly<Record<string, unknown>> }
  | { readonly kind: "percent"; readonly data: number };

/** Who asks on the machine itself. */
export const LOCAL_USER = "local";

/** What a handler is told and may use besides its request. */
export interface TriggerContext {
  readonly id: string;
  /** Whether the caller waits for the whole answer; a stream then ends soon by itself. */
  readonly wait: boolean;
  /** Who asked, for the audit trail. */
  readonly user: string;
  /** Aborted by a cancel, the deadline, too much output, or shutdown. */
  readonly signal: AbortSignal;
  /** Hands over output; wait for it, since it resolves when there is room for more. */
  readonly emit: (chunk: Chunk) => Promise<void>;
}

interface Contract<Request> {
  /** As the control plane spells it. */
  readonly event: string;
  readonly request: z.ZodType<Request>;
  /** Of one answer; a stream that nobody waits for has `STREAM_DEADLINE_MS`. */
  readonly deadlineMs: number;
  /** Whether it is refused while the node is INACTIVE. */
  readonly needsDataPlane: boolean;
  /** Whether it changes nothing, so that it may run when the journal cannot be written. */
  readonly readOnly: boolean;
  /** The same of one request, where that depends on what is asked for; `readOnly` is then false. */
  isReadOnly?(request: Request): boolean;
  /**
   * Whether it helps a node whose disk takes no writes, as a deletion or a restart does, so that it runs then all the same. Until the
   * program ends the journal knows it from memory.
   */
  isRemedy?(request: Request): boolean;
  /** Whether an agent answers it, or only an appliance. */
  readonly agents: boolean;
  /** What only one trigger at a time may hold. */
  readonly exclusive?: string;
  /** How many may run at a time; two unless told. */
  readonly atOnce?: number;
  /** How long a watched one may run instead; such a one does not count among those that keep others waiting. */
  readonly watchedMs?: number;
}

/** Answers with one JSON value. */
export interface OneShotTrigger<Request> extends Contract<Request> {
  readonly kind: "one-shot";
  handle(request: Request, context: TriggerContext): Promise<unknown>;
  readonly afterReply?: AfterReply;
}

/** Gives output until it ends. */
export interface StreamTrigger<Request> extends Contract<Request> {
  readonly kind: "stream";
  handle(request: Request, context: TriggerContext): Promise<{ readonly exitCode: number }>;
}

/** An effect that ends this process, and so must follow the answer. */
export interface AfterReply {
  /** What has to have happened by the next start for it to count as done: any restart of this program, or one of the machine. */
  readonly settledBy: "restart" | "reboot";
  /** Does it. Aborted when the trigger is cancelled or this process stops for another reason. */
  act(signal: AbortSignal): Promise<void>;
  /** Takes back what `act` prepared, when it failed or this process has not ended in spite of it. */
  failed(): Promise<void>;
}

/** One trigger event: what it takes and how it is answered. `dispatch.ts` does everything that is the same for all. */
export type Trigger<Request = unknown> = OneShotTrigger<Request> | StreamTrigger<Request>;

/** The one answer that each trigger gets. */
export type TriggerReply = { readonly body: unknown } | { readonly error: TriggerFailure };

/** What is asked for: the claims of a verified trigger, or the same from the local API. */
export interface TriggerCall {
  readonly id: string;
  readonly event: string;
  readonly body: unknown;
  readonly wait: boolean;
  /** Whether somebody takes the output as it comes. */
  readonly isWatched: boolean;
  readonly user: string;
  readonly deadlineMs: number;
}

/** The way back to whoever asked: a session with the control plane, or one local connection. */
export interface TriggerChannel {
  /** Aborted when the channel ends. */
  readonly signal: AbortSignal;
  /** Sends one piece of output, numbered from 0 per trigger. */
  progress(part: { readonly id: string; readonly seq: number } & Chunk): void;
  /** Resolves when the channel can take more. */
  ready(): Promise<void>;
  /** What one answer may be; without them as much as a message of the control channel holds. */
  readonly replyLimits?: JsonLimits;
  /** Gives a result that the reply could not hold; resolves once it was taken. */
  result(id: string, reply: TriggerReply): Promise<void>;
}
