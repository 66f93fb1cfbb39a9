import { randomBytes } from "node:crypto";
import type { z } from "zod";
import { InputError, SessionError } from "../../errors.ts";
import { valueOf } from "../../host/files/state-file.ts";
import type { HttpClient, HttpResponse } from "../../host/net/http-client.ts";
import { isLoopback } from "../../lib/net/proxy.ts";
import { holdfastCommand, type GivenDirectories } from "../../lib/text/command-line.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import type { Device, License } from "../../protocol/documents/claims.ts";
import { JsonObject } from "../../protocol/values/values.ts";
import { describeIssues, REGISTER_PATH } from "../../protocol/channel/envelope.ts";
import { IDENTITY_LOST, identityLostFix } from "../../protocol/local/identity-lost.ts";
import { peekClaims, signJws, verifyJws } from "../../protocol/channel/jws.ts";
import { keySetOf, walkKeysChain } from "../../protocol/channel/keys-chain.ts";
import { thumbprintsOf } from "../../protocol/values/keys.ts";
import {
  HttpRefusal,
  REGISTRATION_ANSWER_LIMITS as ANSWER_LIMITS,
  RegistrationAnswer,
} from "../../protocol/channel/registration.ts";
import {
  authSigner,
  generateKeys,
  publicKeys,
  type IdentityFiles,
  type PrivateKeys,
  type Registration,
} from "./identity.ts";

export interface RegisterDeps {
  readonly files: IdentityFiles;
  readonly http: HttpClient;
  readonly device: () => Promise<Device>;
  /** The directories that commands about this node must be given. */
  readonly given?: GivenDirectories;
}

/**
 * Registers this node with the control plane that signed the license, and saves the result. Safe to repeat: the keys of the
 * first attempt are used again, so a lost reply does no harm. A second call at the same time waits for the first.
 * @throws {InputError} `already-registered`, `bad-license`, `bad-signature`, or the control plane's own refusal.
 */
export function register(licenseText: string, deps: RegisterDeps, signal: AbortSignal): Promise<Registration> {
  return deps.files.oneAtATime(() => registerAlone(licenseText, deps, signal));
}

async function registerAlone(licenseText: string, deps: RegisterDeps, signal: AbortSignal): Promise<Registration> {
  signal.throwIfAborted();
  await refuseRegistered(deps);
  const jws = licenseText.trim();
  const license = readLicense(jws);
  const keys = await keysFor(deps.files);
  const cnf = await thumbprintsOf(publicKeys(keys));
  if (license.cnf !== undefined && license.cnf.jkt !== cnf.auth) {
    throw new InputError("bad-license", "license: made for another key (cnf.jkt); this node's key differs");
  }
  const nonce = randomBytes(32).toString("base64url");
  const claims = { aud: license.iss, nonce, license: jws, keys: publicKeys(keys), device: await deps.device() };
  const register = await signJws("holdfast-register+jwt", claims, await authSigner(keys));
  const to = { url: `${license.iss}${REGISTER_PATH}`, pins: license.spki };
  const answer = await postTo(deps.http, to, { register }, RegistrationAnswer, signal).catch((error: unknown) => {
    throw error instanceof InputError && error.code === "key-in-use" ? withKeyFix(error, deps.given ?? {}) : error;
  });
  const newest = await walkKeysChain(license.root, answer.keys);
  const registered = await verifyJws("holdfast-registered+jwt", answer.registered, await keySetOf(newest.signing));
  const wrong = [
    registered.iss === license.iss ? "" : "iss",
    registered.aud === license.jti && registered.node.uid === license.jti ? "" : "uid",
    registered.nonce === nonce ? "" : "nonce",
    registered.cnf.auth === cnf.auth ? "" : "cnf.auth",
    registered.cnf.overlay === cnf.overlay ? "" : "cnf.overlay",
    registered.cnf.wireguard === cnf.wireguard ? "" : "cnf.wireguard",
  ].filter((field) => field !== "");
  if (wrong.length > 0) {
    throw new InputError("bad-signature", `the control plane's answer is not for this request: ${wrong.join(", ")}`);
  }
  const session = new URL(registered.node.session);
  if (session.protocol === "ws:" && !isLoopback(session.hostname)) {
    const cure = "the control plane must name a wss:// address; the license can be used again with this machine's keys";
    throw new InputError("insecure", `session ${session.href}: ws:// is accepted towards loopback only; ${cure}`);
  }
  const registration = { node: registered.node, controlPlane: { iss: license.iss, keys: newest } };
  // Written twice, so that there is a previous copy from the first day.
  await deps.files.registration.save(registration);
  await deps.files.registration.save(registration);
  return registration;
}

/** Returns the refusal of keys that are in use: by this machine, which lost its registration, or by the machine of which it is a copy. */
function withKeyFix(error: InputError, given: GivenDirectories): InputError {
  const own = "register with the license that it was registered with, or delete the node at the control plane";
  const copy = `run '${holdfastCommand("reset", given)}' first`;
  const message = `${error.message}; if that node is this machine, ${own}; if this machine is a copy of it, ${copy}`;
  return new InputError(error.code, message, { ...(error.details && { details: error.details }), cause: error });
}

/** @throws {InputError} `already-registered`, or `identity-lost` when its keys are lost. */
export async function refuseRegistered(deps: Pick<RegisterDeps, "files" | "given">): Promise<void> {
  const existing = await deps.files.registration.load();
  if (existing.is === "good" || existing.is === "recovered") {
    if (valueOf(await deps.files.keys.inspect()) === undefined) {
      const who = `${IDENTITY_LOST.code}: this machine is registered as ${existing.value.node.fqdn} (${existing.value.node.uid})`;
      throw new InputError(
        IDENTITY_LOST.code,
        `${who}: ${IDENTITY_LOST.message}; ${identityLostFix(deps.given ?? {})}`,
      );
    }
    throw new InputError(
      "already-registered",
      `this node is ${existing.value.node.fqdn} (${existing.value.node.uid}), and has room for no other identity`,
    );
  }
}

/**
 * Reads the claims of a license. Its signature can be judged only once its root has named the keys.
 * @throws {InputError} `bad-license`, naming the part that is wrong.
 */
export function readLicense(jws: string): License {
  const parts = jws.split(".");
  if (parts.length !== 3) {
    throw new InputError(
      "bad-license",
      `license: expected three parts joined by dots, found ${parts.length}; was it cut?`,
    );
  }
  const damaged = ["header", "payload", "signature"].find((_, i) => !/^[A-Za-z0-9_-]+$/.test(parts[i] ?? ""));
  if (damaged !== undefined) {
    throw new InputError("bad-license", `license: the ${damaged} holds characters that are not base64url`);
  }
  try {
    return peekClaims("holdfast-license+jwt", jws);
  } catch (error) {
    const why = error instanceof InputError ? error.message : String(error);
    throw new InputError("bad-license", `license: ${why}`, { cause: error });
  }
}

/** Returns the keys of an earlier attempt, or new ones, which are on disk twice before they are used. */
export async function keysFor(files: IdentityFiles): Promise<PrivateKeys> {
  const stored = await files.keys.load();
  if (stored.is === "good" || stored.is === "recovered") return stored.value;
  const keys = generateKeys();
  await files.keys.save(keys);
  await files.keys.save(keys);
  return keys;
}

const ANSWER_TIMEOUT_MS = 15_000;

/** Adds what to do to the failure of a request that the control plane left unanswered. */
function withNextStep(error: SessionError, url: string): SessionError {
  if (!["http-failed", "connect-failed", "tls-failed"].includes(error.code)) return error;
  const { host } = new URL(url);
  const step = error.code === "http-failed" ? "the control plane's log" : "firewalls and the network between";
  return new SessionError(
    error.code,
    `${error.message}; check that the control plane runs at ${host} and look at ${step}, then run the command again; it can be repeated`,
    { ...(error.details && { details: error.details }), cause: error },
  );
}

/** Posts one JSON body to a control plane and reads its answer. @throws {InputError} for a permanent refusal; {SessionError} otherwise. */
export async function postTo<T>(
  http: HttpClient,
  { url, pins }: { readonly url: string; readonly pins: readonly string[] },
  body: Readonly<Record<string, string>>,
  schema: z.ZodType<T>,
  signal: AbortSignal,
): Promise<T> {
  const request = http.send(
    {
      url,
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      pins,
      maxBytes: ANSWER_LIMITS.maxBytes,
      timeoutMs: ANSWER_TIMEOUT_MS,
    },
    signal,
  );
  const response = await request.catch((error: unknown) => {
    throw error instanceof SessionError ? withNextStep(error, url) : error;
  });
  if (response.status !== 200) throw refusal(response);
  const parsed = schema.safeParse(parseAnswer(response));
  if (parsed.success) return parsed.data;
  throw new SessionError("invalid-answer", `registration answered: ${describeIssues(parsed.error).join("; ")}`);
}

function parseAnswer(response: HttpResponse): unknown {
  try {
    return parseStrictJson(response.body, ANSWER_LIMITS);
  } catch (error) {
    throw new SessionError(
      "invalid-answer",
      `registration answered ${response.contentType || "something"} that is not JSON`,
      {
        cause: error,
      },
    );
  }
}

function refusal(response: HttpResponse): Error {
  const parsed = HttpRefusal.safeParse(safeJson(response.body));
  const status = { status: response.status };
  if (!parsed.success) {
    return new SessionError("registration-failed", `the control plane answered HTTP ${response.status}`, {
      details: status,
    });
  }
  const message = `the control plane refused: ${parsed.data.error}`;
  const answered = JsonObject.safeParse(parsed.data.details).data;
  const details = { ...answered, ...status };
  const isLater = response.status === 429 || response.status >= 500;
  return isLater
    ? new SessionError(parsed.data.code, `${message}; try again later`, { details })
    : new InputError(parsed.data.code, message, { details });
}

function safeJson(text: string): unknown {
  try {
    return parseStrictJson(text, ANSWER_LIMITS);
  } catch {
    return undefined;
  }
}
