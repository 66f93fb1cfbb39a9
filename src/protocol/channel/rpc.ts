import type { z } from "zod";
import { AgentError, InputError, SessionError, toError } from "../../errors.ts";
import { errorCodes, isErrorCode, type ErrorCode } from "../values/error-codes.ts";
import { describeIssues, type Message, type RpcError } from "./envelope.ts";
import type { MethodSpec } from "./methods.ts";

type Table = Readonly<Record<string, MethodSpec>>;
type RequestName<T extends Table> = { [M in keyof T]: T[M]["kind"] extends "request" ? M : never }[keyof T] & string;
type NoticeName<T extends Table> = { [M in keyof T]: T[M]["kind"] extends "notification" ? M : never }[keyof T] &
  string;
type Params<T extends Table, M extends keyof T> = z.infer<T[M]["params"]>;
type Result<T extends Table, M extends keyof T> = z.infer<T[M]["result"]>;

/** One handler for each method the other side may call. */
export type Handlers<T extends Table> = {
  readonly [M in keyof T]?: (params: Params<T, M>) => Promise<Result<T, M>> | Result<T, M> | Promise<void> | void;
};

/** Options of a peer. Its functions are called on the object itself, so it may be a class instance. */
export interface RpcOptions<Local extends Table, Remote extends Table> {
  /** Methods that the other side may call. */
  readonly local: Local;
  /** Methods of the other side. */
  readonly remote: Remote;
  /** A function creates them per call, so that thousands of idle peers need no memory for them. */
  readonly handlers: Handlers<Local> | (() => Handlers<Local>);
  send(text: string): void;
  /** Called with unexpected errors of handlers: a bug or an invalid notification. */
  onFault(method: string, error: Error): void;
  /** Called at the end of each request that was not cancelled: answered (failures included), timed out, or answered against its schema. */
  onOutcome?(method: string, outcome: "answered" | "unanswered" | "nonsense"): void;
}

const METHOD_NOT_FOUND = -32601;
const INVALID_PARAMS = -32602;
/** Limit of unanswered requests of this side; only a bug reaches it. */
const MAX_PENDING = 1024;
/** Limit of concurrent calls of the other side; further ones are refused at once. */
const MAX_ANSWERING = 1024;
/** Limits of an error's message, so that it fits the caller's schema and message limit. */
const MAX_MESSAGE = 4096;
const MAX_ISSUES = 20;
const MAX_TEXT = 256;

interface Pending {
  readonly method: string;
  resolve(result: unknown): void;
  reject(error: Error): void;
}

/** Error of a request that the other side answered with a failure; `code` is the platform's. */
export class RemoteError extends SessionError {
  static override readonly name = "RemoteError";
}

/** A failure that is answered with its own code and message, also if the code is not in the table. */
export class AnsweredFailure extends SessionError {
  static override readonly name = "AnsweredFailure";
}

/** Codes of temporary refusals. */
const TRANSIENT: ReadonlySet<string> = new Set(["busy", "internal", "storage-unavailable", "timeout"]);

/** Reports whether a request that failed with this error may succeed if repeated: it had no answer, or was refused temporarily. */
export function isTransient(error: unknown): boolean {
  return !(error instanceof RemoteError) || TRANSIENT.has(error.code);
}

/** One end of a JSON-RPC 2.0 connection, independent of the transport: sends text by `send`, and gets messages by `receive`. */
export class RpcPeer<Local extends Table, Remote extends Table> {
  readonly #options: RpcOptions<Local, Remote>;
  /** Created with the first request, because most peers of a controller send none. */
  #pending: Map<number, Pending> | undefined;
  #lastId = 0;
  #answering = 0;
  #closed: Error | undefined;

  constructor(options: RpcOptions<Local, Remote>) {
    this.#options = options;
  }

  /** Calls the other side and waits for its parsed answer; rejects with `RemoteError`, on abort, or when the connection ends. */
  request<M extends RequestName<Remote>>(
    method: M,
    params: Params<Remote, M>,
    signal?: AbortSignal,
  ): Promise<Result<Remote, M>> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    const inFlight = (this.#pending ??= new Map<number, Pending>());
    if (inFlight.size >= MAX_PENDING) {
      return Promise.reject(new SessionError("busy", `${MAX_PENDING} requests are unanswered`));
    }
    if (signal?.aborted === true) return Promise.reject(toError(signal.reason));
    this.#lastId += 1;
    const id = this.#lastId;
    return new Promise((resolve, reject) => {
      const forget = (): void => {
        inFlight.delete(id);
        signal?.removeEventListener("abort", onAbort);
      };
      const onAbort = (): void => {
        forget();
        const reason = toError(signal?.reason);
        if (reason.name === "TimeoutError") this.#options.onOutcome?.(method, "unanswered");
        reject(reason);
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      inFlight.set(id, {
        method,
        resolve: (result) => {
          forget();
          const parsed = this.#options.remote[method]?.result.safeParse(result);
          this.#options.onOutcome?.(method, parsed?.success === true ? "answered" : "nonsense");
          if (parsed?.success === true) resolve(parsed.data as Result<Remote, M>);
          else reject(new SessionError("invalid-result", `${method} answered something else than its schema says`));
        },
        reject: (error) => {
          forget();
          if (error instanceof RemoteError) this.#options.onOutcome?.(method, "answered");
          reject(error);
        },
      });
      this.#options.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    });
  }

  /** Returns the method of the unanswered request with this id. */
  unanswered(id: number): string | undefined {
    return this.#pending?.get(id)?.method;
  }

  /** Sends a notification, which has no answer. */
  notify<M extends NoticeName<Remote>>(method: M, params: Params<Remote, M>): void {
    if (this.#closed === undefined) this.#options.send(JSON.stringify({ jsonrpc: "2.0", method, params }));
  }

  /** Handles one parsed message: an answer settles its request, a call runs its handler. */
  async receive(message: Message): Promise<void> {
    switch (message.kind) {
      case "success":
        this.#pending?.get(message.id)?.resolve(message.result);
        return;
      case "failure":
        if (message.id !== null) this.#pending?.get(message.id)?.reject(remoteError(message.error));
        return;
      case "notification":
        try {
          await this.#call(message.method, message.params);
        } catch (error) {
          this.#options.onFault(message.method, toError(error));
        }
        return;
      case "request":
        this.#answering += 1;
        try {
          await this.#answer(message.id, message.method, message.params);
        } finally {
          this.#answering -= 1;
        }
    }
  }

  /** Ends the connection's work: every request in flight rejects with `reason`. */
  close(reason: Error): void {
    if (this.#closed !== undefined) return;
    this.#closed = reason;
    for (const pending of this.#pending?.values() ?? []) pending.reject(reason);
  }

  async #answer(id: number, method: string, params: unknown): Promise<void> {
    let text: string;
    try {
      if (this.#answering > MAX_ANSWERING) throw new InputError("busy", `${MAX_ANSWERING} calls are being answered`);
      const result = await this.#call(method, params);
      text = JSON.stringify({ jsonrpc: "2.0", id, result: result === undefined ? {} : result });
    } catch (error) {
      text = JSON.stringify({ jsonrpc: "2.0", id, error: this.#failure(method, toError(error)) });
    }
    if (this.#closed === undefined) this.#options.send(text);
  }

  #call(method: string, params: unknown): unknown {
    const spec = Object.hasOwn(this.#options.local, method) ? this.#options.local[method] : undefined;
    const options = this.#options;
    const handler = (typeof options.handlers === "function" ? options.handlers() : options.handlers)[method];
    if (spec === undefined || handler === undefined) throw new UnknownMethod(method);
    const parsed = spec.params.safeParse(params);
    if (!parsed.success) throw new InvalidParams(method, parsed);
    return handler(parsed.data as Params<Local, string>);
  }

  #failure(method: string, error: Error): RpcError {
    if (error instanceof UnknownMethod) return { code: METHOD_NOT_FOUND, message: error.message };
    if (error instanceof InvalidParams) {
      const message = error.message.slice(0, MAX_MESSAGE);
      return { code: INVALID_PARAMS, message, data: { code: "invalid-body", details: error.issues } };
    }
    if (error instanceof AnsweredFailure) {
      const { rpc } = errorCodes[isErrorCode(error.code) ? error.code : "failed"];
      const message = error.message.slice(0, MAX_MESSAGE);
      return { code: rpc, message, data: { code: error.code, details: error.details } };
    }
    const code = codeOf(error);
    // The text of an unexpected error may contain anything, so it is not sent.
    if (error instanceof AgentError && code !== "internal") {
      return {
        code: errorCodes[code].rpc,
        message: error.message.slice(0, MAX_MESSAGE),
        data: { code, details: error.details },
      };
    }
    this.#options.onFault(method, error);
    return { code: errorCodes.internal.rpc, message: "internal error", data: { code: "internal" } };
  }
}

/** Failure of a verification. Any other fault of the input is an invalid body. */
const UNTRUSTED: ReadonlySet<string> = new Set(["invalid-claims", "below-floor"]);

/** Returns the wire code of an error. An `InputError` with another code is the caller's fault; any other error is internal. */
function codeOf(error: Error): ErrorCode {
  if (!(error instanceof AgentError)) return "internal";
  if (isErrorCode(error.code)) return error.code;
  if (!(error instanceof InputError)) return "internal";
  return UNTRUSTED.has(error.code) ? "bad-signature" : "invalid-body";
}

class UnknownMethod extends InputError {
  static override readonly name = "UnknownMethod";
  constructor(method: string) {
    super("unknown-method", `no method ${method}`);
  }
}

class InvalidParams extends InputError {
  static override readonly name = "InvalidParams";
  readonly issues: readonly unknown[];
  constructor(method: string, { error }: { readonly error: z.ZodError }) {
    super("invalid-params", `${method}: ${describeIssues(error).slice(0, MAX_ISSUES).join("; ")}`);
    this.issues = error.issues.slice(0, MAX_ISSUES).map(({ code, path, message }) => ({
      code,
      path: path.map((key) => (typeof key === "number" ? key : String(key).slice(0, MAX_TEXT))),
      message: message.slice(0, MAX_TEXT),
    }));
  }
}

function remoteError(error: RpcError): RemoteError {
  const details = error.data?.details;
  const isRecord = typeof details === "object" && details !== null && !Array.isArray(details);
  const options = isRecord ? { details: details as Record<string, unknown> } : {};
  const code = error.data?.code ?? (error.code === METHOD_NOT_FOUND ? "unknown-method" : "remote-error");
  return new RemoteError(code, error.message, options);
}
