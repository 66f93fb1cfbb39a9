import { z } from "zod";
import { errnoOf, HostError } from "../../errors.ts";
import { plainLine } from "../../lib/text/terminal-text.ts";

/** What Docker says (`message`) and what Podman says (`message`, with `cause`). */
const Said = z.object({ message: z.string() });

const MAX_MESSAGE = 500;
/** Shorter values, such as `1` or `yes`, would be found everywhere. */
const MIN_SECRET = 4;
const SECRET_OPTION = /\b((?:pass(?:word|wd)?|token|secret)=)[^\s,"']+/gi;

/**
 * The error for an answer of 400 and above: `engine-refused` with what the engine said, or `engine-unwell` for one of 500 and above
 * that says nothing. None of `secrets` is in it.
 */
export function refusal(what: string, status: number, body: string, secrets: readonly string[]): HostError {
  const said = reasonOf(body);
  if (said === "" && status >= 500)
    return unwell(`${what}: the container engine answered ${status} and gave no reason`);
  const message = withoutSecrets(said, secrets);
  return new HostError("engine-refused", `${what}: ${message === "" ? `answered ${status}` : message}`, {
    details: { status },
  });
}

/** The engine cannot be used: it is tried again later. */
export function unwell(message: string, cause?: unknown): HostError {
  return new HostError("engine-unwell", message, cause === undefined ? {} : { cause });
}

/** What kept a request from being made or answered. */
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

/** One bounded line for people, free of control characters and of `secrets`. */
export function withoutSecrets(said: string, secrets: readonly string[]): string {
  // A long one first: another may be a part of it.
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
