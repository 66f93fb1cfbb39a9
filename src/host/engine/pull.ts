import { z } from "zod";
import { HostError, InputError } from "../../errors.ts";
import { linesOf } from "../../lib/text/lines.ts";
import type { PullOptions, PullProgress } from "./engine.ts";
import { withoutSecrets } from "./failure.ts";
import { parsed } from "./parse.ts";
import type { Transport } from "./transport.ts";

const Line = z.object({
  id: z.string().optional(),
  status: z.string().optional(),
  progressDetail: z.object({ current: z.number().optional(), total: z.number().optional() }).nullish(),
  error: z.string().optional(),
  errorDetail: z.object({ message: z.string().optional() }).nullish(),
});

const MAX_LINE_BYTES = 64 * 1024;
/** The engine queries the registry before it responds, and retries on failure. */
const HEAD_DEADLINE_MS = 120_000;

/** Pulls an image; see `Engine.pull`. */
export async function pull(
  transport: Transport,
  reference: string,
  { platform, credential, onProgress }: PullOptions,
  signal: AbortSignal,
): Promise<void> {
  const what = `cannot pull ${reference}`;
  const secrets = credential === undefined ? [] : [credential.password];
  const query = {
    // Without a tag or digest the engine would pull every tag.
    fromImage: /@|:[^/]*$/.test(reference) ? reference : `${reference}:latest`,
    ...(platform === "" ? {} : { platform }),
  };
  const headers = credential === undefined ? {} : { "x-registry-auth": authHeader(credential) };
  const call = {
    what,
    method: "POST",
    path: "/images/create",
    query,
    headers,
    secrets,
    deadlineMs: HEAD_DEADLINE_MS,
  } as const;
  try {
    const stream = await transport.stream({ ...call, idleMs: IDLE_MS }, signal);
    try {
      for await (const line of linesOf(stream.source, MAX_LINE_BYTES)) {
        const said = parseLine(Buffer.from(line).toString("utf8"));
        if ("failure" in said) throw pullFailure(what, said.failure, secrets);
        onProgress(said);
      }
    } finally {
      stream.close();
    }
  } catch (error) {
    throw explained(what, error, secrets);
  }
}

/** Longer than an engine takes to unpack the largest layer without output. */
const IDLE_MS = 300_000;

/** Parses one line of a pull: progress, or the failure, which comes in a response of status 200. */
export function parseLine(line: string): PullProgress | { readonly failure: string } {
  const said = parsed(Line, line, "the engine's progress of a pull");
  const failure = said.errorDetail?.message ?? said.error;
  if (failure !== undefined) return { failure };
  return {
    layer: said.id,
    status: said.status ?? "",
    current: said.progressDetail?.current,
    total: said.progressDetail?.total,
  };
}

/** Encodes the credential as Docker requires: JSON in padded base64url (RFC 4648 §5). Docker silently ignores it without the padding. */
export function authHeader({ username, password, server }: NonNullable<PullOptions["credential"]>): string {
  const base64 = Buffer.from(JSON.stringify({ username, password, serveraddress: server })).toString("base64");
  return base64.replaceAll("+", "-").replaceAll("/", "_");
}

type PullCode =
  | "pull-unauthorized"
  | "pull-not-found"
  | "pull-rate-limited"
  | "pull-no-space"
  | "image-platform"
  | "pull-failed";

/** The first match counts: a registry that hides private images says `denied` and `does not exist` in one line. */
const SIGNS: readonly (readonly [PullCode, RegExp])[] = [
  ["pull-rate-limited", /toomanyrequests|too many requests|rate limit|\b429\b/i],
  ["pull-no-space", /no space left on device|disk quota exceeded/i],
  // Messages of Docker and of Podman.
  [
    "image-platform",
    /no matching manifest for|does not match the (?:specified|requested) platform|no image found in (?:manifest list|image index) for architecture/i,
  ],
  [
    "pull-unauthorized",
    /no basic auth credentials|unauthori[sz]ed|authentication required|\bdenied\b|forbidden|incorrect username or password/i,
  ],
  [
    "pull-not-found",
    /manifest.* (?:not found|unknown)|(?:manifest|name|tag) unknown|no such image|repository .*not found/i,
  ],
];

/** Classifies the engine's message of a failed pull. */
export function pullCode(message: string): PullCode {
  return SIGNS.find(([, sign]) => sign.test(message))?.[0] ?? "pull-failed";
}

function pullFailure(what: string, message: string, secrets: readonly string[]): HostError {
  return new HostError(pullCode(message), `${what}: ${withoutSecrets(message, secrets)}`);
}

function explained(what: string, error: unknown, secrets: readonly string[]): unknown {
  if (error instanceof InputError) return pullFailure(what, error.message, secrets);
  if (!(error instanceof HostError) || error.code !== "engine-refused") return error;
  const code = pullCode(error.message);
  const isMissing = code === "pull-failed" && error.details?.["status"] === 404;
  return new HostError(isMissing ? "pull-not-found" : code, error.message, { cause: error });
}
