import { z } from "zod";
import { errnoOf, HostError } from "../../errors.ts";
import { plainLine } from "../../lib/text/terminal-text.ts";

/** Error body of Docker (`message`) and Podman (`message`, with `cause`). */
const Said = z.object({ message: z.string() });

const MAX_MESSAGE = 500;
/** Shorter values, such as `1` or `yes`, would match everywhere. */
const MIN_SECRET = 4;
const SECRET_OPTION = /\b((?:pass(?:word|wd)?|token|secret)=)[^\s,"']+/gi;

/**
 * Returns the error for a status of 400 and above: `engine-refused` with the engine's message, or `engine-unwell` for a status of
 * 500 and above without one. Removes `secrets` from the message.
 */
export function refusal(what: string, status: number, body: string, secrets: readonly string[]): HostError {
  const said = reasonOf(body);
  if (said === "" && status >= 500)
    return unwell(`${what}: the container engine responded with status ${status} without a reason`);
  const message = withoutSecrets(said, secrets);
  return new HostError("engine-refused", `${what}: ${message === "" ? `status ${status}` : message}`, {
    details: { status },
  });
}

/** Returns `engine-unwell`: the engine cannot be used, and is retried later. */
export function unwell(message: string, cause?: unknown): HostError {
  return new HostError("engine-unwell", message, cause === undefined ? {} : { cause });
}

/** Returns the error of a request that could not be sent or got no response. */
export function connectionFailure(what: string, socketPath: string, error: Error): HostError {
  const because = REASONS[errnoOf(error) ?? ""] ?? error.message;
  return unwell(`${what}: the container engine at ${socketPath} ${because}`, error);
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: "has no socket: it is not installed or not running",
  ENOTSOCK: "has no socket: another kind of file is there",
  ECONNREFUSED: "does not listen",
  EACCES: "may not be used by this user",
  ECONNRESET: "broke the connection",
  EPIPE: "broke the connection",
};

/** Returns one bounded line for people without control characters and `secrets`. */
export function withoutSecrets(said: string, secrets: readonly string[]): string {
  // Longer ones first, because a shorter one may be a part of them.
  const known = secrets.filter((secret) => secret.length >= MIN_SECRET).sort((a, b) => b.length - a.length);
  const clean = known.reduce((text, secret) => text.replaceAll(secret, "…"), said);
  return plainLine(clean.replace(SECRET_OPTION, "$1…")).trim().slice(0, MAX_MESSAGE);
}

function reasonOf(body: string): string {
  const text = body.trim();
  try {
    const said = Said.safeParse(JSON.parse(text));
    return said.success ? said.data.message.trim() : "";
  } catch {
    return text.startsWith("<") ? "" : text;
  }
}
