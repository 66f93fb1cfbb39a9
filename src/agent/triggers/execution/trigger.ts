import type { z } from "zod";
import type { JsonLimits } from "../../../lib/formats/strict-json.ts";
import type { TriggerFailure } from "../../../protocol/channel/methods.ts";

/** A piece of output: text of a tool, one JSON object of a measurement, or progress in percent. */
export type Chunk =
  | { readonly kind: "stdout" | "stderr"; readonly data: string }
  | { readonly kind: "json"; readonly data: Readonly<Record<string, unknown>> }
  | { readonly kind: "percent"; readonly data: number };

/** User of requests on the machine itself. */
export const LOCAL_USER = "local";

/** Context of a handler besides its request. */
export interface TriggerContext {
  readonly id: string;
  /** True if the caller waits for the whole reply; a stream then ends soon by itself. */
  readonly wait: boolean;
  /** Caller, for the audit log. */
  readonly user: string;
  /** Aborted by a cancel, the deadline, too much output, or shutdown. */
  readonly signal: AbortSignal;
  /** Sends output; resolves when there is room for more, so await it. */
  readonly emit: (chunk: Chunk) => Promise<void>;
}

interface Contract<Request> {
  /** Name in the control plane's spelling. */
  readonly event: string;
  readonly request: z.ZodType<Request>;
  /** Deadline of one reply; a stream without a waiting caller has `STREAM_DEADLINE_MS`. */
  readonly deadlineMs: number;
  /** True if refused while the node is INACTIVE. */
  readonly needsDataPlane: boolean;
  /** True if it changes nothing, so that it may run when the journal cannot be written. */
  readonly readOnly: boolean;
  /** Reports the same of one request, if that depends on the request; `readOnly` is false then. */
  isReadOnly?(request: Request): boolean;
  /**
   * Reports whether it helps a node whose disk is full, as a deletion or restart does: it then runs without a stored row. The journal keeps
   * it in memory until the program ends.
   */
  isRemedy?(request: Request): boolean;
  /** True if agents support it; false if only appliances do. */
  readonly agents: boolean;
  /** Resource that only one trigger at a time may hold. */
  readonly exclusive?: string;
  /** Limit of concurrent runs; 2 by default. */
  readonly atOnce?: number;
  /** Longer deadline of a watched run; such a run does not count among those that block others. */
  readonly watchedMs?: number;
}

/** Answers with one JSON value. */
export interface OneShotTrigger<Request> extends Contract<Request> {
  readonly kind: "one-shot";
  handle(request: Request, context: TriggerContext): Promise<unknown>;
  readonly afterReply?: AfterReply;
}

/** Streams output until it ends. */
export interface StreamTrigger<Request> extends Contract<Request> {
  readonly kind: "stream";
  handle(request: Request, context: TriggerContext): Promise<{ readonly exitCode: number }>;
}

/** An effect that ends this process, and so must follow the reply. */
export interface AfterReply {
  /** Event before the next start that completes the effect: a restart of this program, or of the machine. */
  readonly settledBy: "restart" | "reboot";
  /** Applies the effect. Aborted when the trigger is cancelled or this process stops for another reason. */
  act(signal: AbortSignal): Promise<void>;
  /** Reverts the preparations of `act`, after a failure or if this process has not ended. */
  failed(): Promise<void>;
}

/** One trigger event: its request and its handler. `dispatch.ts` does everything else. */
export type Trigger<Request = unknown> = OneShotTrigger<Request> | StreamTrigger<Request>;

/** The only reply to a trigger. */
export type TriggerReply = { readonly body: unknown } | { readonly error: TriggerFailure };

/** A request: the claims of a verified trigger, or the same from the local API. */
export interface TriggerCall {
  readonly id: string;
  readonly event: string;
  readonly body: unknown;
  readonly wait: boolean;
  /** True if the caller takes output as it arrives. */
  readonly isWatched: boolean;
  readonly user: string;
  readonly deadlineMs: number;
}

/** Connection to the caller: a session with the control plane, or a local connection. */
export interface TriggerChannel {
  /** Aborted when the channel ends. */
  readonly signal: AbortSignal;
  /** Sends one piece of output, numbered from 0 per trigger. */
  progress(part: { readonly id: string; readonly seq: number } & Chunk): void;
  /** Resolves when the channel can take more. */
  ready(): Promise<void>;
  /** Limits of a reply; by default those of a control channel message. */
  readonly replyLimits?: JsonLimits;
  /** Sends a result after the reply; resolves once it was accepted. */
  result(id: string, reply: TriggerReply): Promise<void>;
}
