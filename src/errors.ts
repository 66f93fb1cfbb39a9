/** Root of every error the program throws on purpose: the class says who must act, the code says what happened. */
export abstract class AgentError extends Error {
  /** Written out, since a bundle shortens the names of classes. */
  static override readonly name: string = "AgentError";
  /** Stable, kebab-case. */
  readonly code: string;
  /** Names the field, the tool or the file; safe to show to the caller. */
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(code: string, message: string, options?: ErrorOptions & { details?: Readonly<Record<string, unknown>> }) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
    this.details = options?.details;
  }
}

/** A configuration or a request is wrong: report it and wait for a new one. */
export class InputError extends AgentError {
  static override readonly name: string = "InputError";
}

/** The machine refused: report it, retry with backoff. */
export class HostError extends AgentError {
  static override readonly name: string = "HostError";
}

/** The control plane or the network refused: reconnect with backoff. */
export class SessionError extends AgentError {
  static override readonly name: string = "SessionError";
}

/** A bug: report it, let the supervisor restart us. */
export class InternalError extends AgentError {
  static override readonly name: string = "InternalError";
}

/** Converts a thrown value to an `Error`; errors stay as they are. */
export function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new InternalError("internal", `thrown: ${String(thrown)}`);
}

/** The system's code of a failed call (`ENOENT`, `ECONNREFUSED`, …), or undefined. */
export function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}
