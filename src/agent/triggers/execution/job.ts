import { AgentError, HostError, InputError, InternalError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { JsonLimits } from "../../../lib/formats/strict-json.ts";
import {
  REPLY_LIMITS,
  replyParts,
  WHOLE_REPLY_BYTES,
  type RepliedInParts,
} from "../../../protocol/channel/reply-parts.ts";
import { failureOf } from "./failure.ts";
import { STREAM_DEADLINE_MS } from "../../../protocol/values/trigger-events.ts";
import { BufferedOutput, StreamedOutput, type Output } from "./output.ts";
import type { Chunk, Trigger, TriggerCall, TriggerChannel, TriggerContext, TriggerReply } from "./trigger.ts";

/** Abort reason of a job that exceeded its output limit, which is no error. */
class TooMuchOutput extends Error {}

export interface JobOptions {
  readonly trigger: Trigger;
  readonly request: unknown;
  readonly call: TriggerCall;
  readonly channel: TriggerChannel;
  readonly clock: Clock;
  /** Receives unexpected errors of the handler. */
  readonly onFault: (error: Error) => void;
}

/** After this time an aborted handler is answered for. */
const GRACE_MS = 3000;
/** A reply must fit one message of the channel, 1 MiB and 32 levels with its envelope. */
const MESSAGE_LIMITS: JsonLimits = { maxBytes: 1024 * 1024 - 1024, maxDepth: 30 };
/** Exit status that a shell reports after SIGINT. */
const ENDED_BY_SIGINT = 130;

type Ended = { readonly value: unknown } | { readonly error: Error };

/** One run of a trigger's handler, with its deadline and output. */
export class Job {
  readonly #options: JobOptions;
  readonly #control = new AbortController();
  readonly #output: BufferedOutput | StreamedOutput | undefined;
  readonly #startedAt: number;
  #isAnswered = false;
  #work: Promise<Ended> | undefined;

  constructor(options: JobOptions) {
    const { trigger, call, channel, clock } = options;
    this.#options = options;
    this.#startedAt = clock.elapsed();
    const onFull = (): void => this.abort(new TooMuchOutput());
    if (trigger.kind === "stream") {
      this.#output = call.wait
        ? new BufferedOutput(onFull)
        : new StreamedOutput({ id: call.id, channel, clock, signal: this.signal, onFull });
    }
  }

  /** Aborted when the job must end. */
  get signal(): AbortSignal {
    return this.#control.signal;
  }

  /** Ends the job; an `AgentError` as the reason becomes its reply. */
  abort(reason: Error): void {
    this.#control.abort(reason);
  }

  /** Runs the handler and returns the reply. Never rejects. */
  async run(): Promise<TriggerReply> {
    const { trigger, call, clock, channel } = this.#options;
    const watchedMs = trigger.watchedMs ?? STREAM_DEADLINE_MS;
    const limitMs = trigger.kind === "stream" && !call.wait ? watchedMs : trigger.deadlineMs;
    const deadlineMs = Math.min(limitMs, call.deadlineMs);
    const cancelDeadline = clock.after(deadlineMs, () =>
      this.abort(new HostError("timeout", `${trigger.event} did not end within ${deadlineMs} ms`)),
    );
    const onChannelEnd = (): void =>
      this.abort(new InputError("cancelled", `${trigger.event}: the session that watched it has ended`));
    const isBoundToChannel = trigger.kind === "stream" && !call.wait;
    if (isBoundToChannel) channel.signal.addEventListener("abort", onChannelEnd, { once: true });
    if (isBoundToChannel && channel.signal.aborted) onChannelEnd();
    try {
      this.#work = this.#handle();
      const ended = await Promise.race([this.#work, this.#overdue()]);
      return await this.#conclude(ended);
    } catch (error) {
      return { error: failureOf(toError(error)) };
    } finally {
      this.#isAnswered = true;
      cancelDeadline();
      channel.signal.removeEventListener("abort", onChannelEnd);
    }
  }

  /** Resolves when the handler has ended, which may be after the reply. */
  async settled(): Promise<void> {
    await this.#work;
  }

  async #handle(): Promise<Ended> {
    const { trigger, request, call } = this.#options;
    const context: TriggerContext = {
      id: call.id,
      wait: call.wait,
      user: call.user,
      signal: this.signal,
      emit: (chunk) => this.#emit(chunk),
    };
    try {
      this.signal.throwIfAborted();
      return { value: await trigger.handle(request, context) };
    } catch (thrown) {
      const error = toError(thrown);
      if (!this.signal.aborted) this.#options.onFault(error);
      return { error };
    }
  }

  async #emit(chunk: Chunk): Promise<void> {
    if (!this.#isAnswered) await this.#output?.write(chunk);
  }

  /** Resolves some time after the abort; the timer is cancelled with the job. */
  #overdue(): Promise<Ended> {
    return new Promise((resolve) => {
      const onAbort = (): void => {
        const error = new InternalError("internal", `${this.#options.trigger.event} does not end`);
        const cancel = this.#options.clock.after(GRACE_MS, () => resolve({ error }));
        void this.settled().then(cancel);
      };
      if (this.signal.aborted) onAbort();
      else this.signal.addEventListener("abort", onAbort, { once: true });
    });
  }

  async #conclude(ended: Ended): Promise<TriggerReply> {
    await this.#output?.close();
    const reason: unknown = this.signal.aborted ? this.signal.reason : undefined;
    const output = this.#output;
    if (output === undefined) {
      if ("value" in ended) return this.#replyOf(ended.value ?? {});
      return { error: failureOf(reason instanceof AgentError ? reason : ended.error) };
    }
    if (reason instanceof AgentError) return { error: withOutput(failureOf(reason), output) };
    if (reason === undefined && "error" in ended) return { error: withOutput(failureOf(ended.error), output) };
    return { body: this.#streamBody(exitCodeOf(ended), output) };
  }

  /** Returns the reply; for a watching caller one that is too large is sent in parts as output. */
  async #replyOf(body: unknown): Promise<TriggerReply> {
    const { call, channel, clock, trigger } = this.#options;
    const text = JSON.stringify(body);
    const bytes = Buffer.byteLength(text);
    const limits = channel.replyLimits ?? MESSAGE_LIMITS;
    const mayPart = call.isWatched && channel.replyLimits === undefined && bytes <= REPLY_LIMITS.maxBytes;
    const maxBytes = mayPart ? WHOLE_REPLY_BYTES : limits.maxBytes;
    if (bytes <= maxBytes && depthOf(body) <= limits.maxDepth) return { body };
    if (!mayPart) {
      const message = `${trigger.event}: the answer of ${bytes} bytes does not fit one message: request less of it`;
      return { error: { code: "too-large", message } };
    }
    const onFull = (): void => undefined;
    const output = new StreamedOutput({ id: call.id, channel, clock, signal: this.signal, onFull });
    for (const data of replyParts(text)) await output.write({ kind: "json", data: { ...data } });
    await output.close();
    const answer: RepliedInParts = { replyBytes: bytes };
    return { body: answer };
  }

  #streamBody(exitCode: number, output: Output): unknown {
    if (output instanceof BufferedOutput) {
      return { output: { message: output.text, exitCode: String(exitCode), truncated: output.isTruncated } };
    }
    const durationMs = Math.round(this.#options.clock.elapsed() - this.#startedAt);
    return { exitCode, truncated: output.isTruncated, durationMs };
  }
}

function exitCodeOf(ended: Ended): number {
  if ("value" in ended && typeof ended.value === "object" && ended.value !== null && "exitCode" in ended.value) {
    if (typeof ended.value.exitCode === "number") return ended.value.exitCode;
  }
  return ENDED_BY_SIGINT;
}

/** Adds output that has not been sent yet to the failure. */
function withOutput(failure: ReturnType<typeof failureOf>, output: Output): ReturnType<typeof failureOf> {
  if (!(output instanceof BufferedOutput) || output.text === "") return failure;
  const partial = { message: output.text, truncated: output.isTruncated };
  return { ...failure, details: { ...failure.details, output: partial } };
}

/** Returns the nesting depth of arrays and objects. */
function depthOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  return 1 + Object.values(value).reduce<number>((deepest, inner) => Math.max(deepest, depthOf(inner)), 0);
}
