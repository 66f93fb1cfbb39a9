import { z } from "zod";
import { InputError } from "../../errors.ts";
import type { BudgetLimits } from "../../lib/async/message-budget.ts";
import { parseStrictJson, type JsonLimits } from "../../lib/formats/strict-json.ts";
import { issueText } from "../values/issue-text.ts";
import { Text64, Text4096 } from "../values/values.ts";

/** Largest message of an established session, and before `hello` succeeds. */
export const SESSION_LIMITS: JsonLimits = { maxBytes: 1024 * 1024, maxDepth: 32 };
export const HANDSHAKE_LIMITS: JsonLimits = { maxBytes: 64 * 1024, maxDepth: 32 };
/** Budget of one side of an established session; pings and pongs count as messages. */
export const SESSION_BUDGET: BudgetLimits = {
  messagesPerSecond: 500,
  bytesPerSecond: 4 * 1024 * 1024,
  burstSeconds: 10,
  patienceSeconds: 60,
};
/**
 * A message of a node counts as one more for each so many values in it: they cost more to check than their bytes. A node that sends all
 * that it has kept during an outage stays within the patience of the budget.
 */
export const VALUES_PER_MESSAGE = 200;
/** The subprotocol token of the control channel (RFC 6455 §1.9). */
export const SUBPROTOCOL = "holdfast.v1";
export const PROTOCOL_VERSION = 1;
/** A version that is never used in a session: a hello with it reports whether the node would be accepted, without a session. */
export const ASKING_VERSION = 65_535;
export const SESSION_PATH = "/agent/v1/session";
/** Header with the control plane's uptime in whole seconds, in the answer to a session request without an upgrade. */
export const UPTIME_HEADER = "holdfast-uptime";
export const STREAM_PATH = "/agent/v1/stream";
export const REGISTER_PATH = "/agent/v1/register";
export const ACTIVATION_PATH = "/agent/v1/activation";
export const TOKEN_PATH = "/agent/v1/token";
export const DOCUMENT_PATH = "/agent/v1/document";

/** Any name; the receiver answers unknown ones with −32601. */
const Method = Text64;
const Id = z.int().min(1);
const version = { jsonrpc: z.literal("2.0") };

export const RpcError = z.object({
  code: z.int(),
  message: Text4096,
  data: z.looseObject({ code: Text64.optional(), details: z.unknown().optional() }).optional(),
});
export type RpcError = z.infer<typeof RpcError>;

const Params = z.unknown().optional();
const Request = z.object({ ...version, id: Id, method: Method, params: Params });
const Notification = z.object({ ...version, method: Method, params: Params });
const Success = z.object({ ...version, id: Id, result: z.unknown() });
const Failure = z.object({ ...version, id: Id.nullable(), error: RpcError });

/** A parsed JSON-RPC 2.0 message. */
export type Message =
  | { readonly kind: "request"; readonly id: number; readonly method: string; readonly params: unknown }
  | { readonly kind: "notification"; readonly method: string; readonly params: unknown }
  | { readonly kind: "success"; readonly id: number; readonly result: unknown }
  | { readonly kind: "failure"; readonly id: number | null; readonly error: RpcError };

const INVALID_REQUEST = -32600;

const INVALID_ENVELOPE: ReadonlySet<string> = new Set(["invalid-message", "forbidden-key"]);

/**
 * The error response (JSON-RPC 2.0 §5.1) to a request that `parseMessage` refused; undefined for anything else, since only a
 * request with a usable id can be answered.
 */
export function refuseEnvelope(error: unknown): string | undefined {
  if (!(error instanceof InputError) || !INVALID_ENVELOPE.has(error.code)) return undefined;
  const id = error.details?.["id"];
  if (id === undefined) return undefined;
  const failure = { code: INVALID_REQUEST, message: error.message.slice(0, 1024), data: { code: error.code } };
  return JSON.stringify({ jsonrpc: "2.0", id, error: failure });
}

/**
 * Reads one frame: limits and forbidden keys first, then the envelope. Parameters are left to the method's schema.
 * @throws {InputError} with the code of the check that failed, `invalid-message` for the envelope; its details name the `id` of a
 *   request whose JSON could be read.
 */
export function parseMessage(frame: string | Uint8Array, limits: JsonLimits): Message {
  const value = readJson(frame, limits);
  if (!isObject(value)) {
    throw new InputError("invalid-message", "a frame holds exactly one JSON-RPC object; batches are not spoken");
  }
  if ("method" in value) {
    if ("id" in value) return { kind: "request", params: undefined, ...read(Request, value) };
    return { kind: "notification", params: undefined, ...read(Notification, value) };
  }
  if ("error" in value) return { kind: "failure", ...read(Failure, value) };
  return { kind: "success", ...read(Success, value) };
}

function readJson(frame: string | Uint8Array, limits: JsonLimits): unknown {
  try {
    return parseStrictJson(frame, limits);
  } catch (error) {
    if (!(error instanceof InputError) || error.code !== "forbidden-key") throw error;
    // It is JSON and within the limits, so the waiting request can be identified.
    const value: unknown = JSON.parse(typeof frame === "string" ? frame : Buffer.from(frame).toString("utf8"));
    throw new InputError(error.code, error.message, { cause: error, ...detailsOf(value) });
  }
}

function read<T>(schema: z.ZodType<T>, value: object): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const text = describeIssues(parsed.error).join("; ");
  throw new InputError("invalid-message", text, { cause: parsed.error, ...detailsOf(value) });
}

/** Returns the id of an invalid request as details; nothing for an answer, to which no error is sent. */
function detailsOf(value: unknown): { readonly details?: { readonly id: number } } {
  const found = Id.safeParse(isObject(value) && Object.hasOwn(value, "method") ? value["id"] : undefined);
  return found.success ? { details: { id: found.data } } : {};
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Most unknown fields of one object that are named. */
const MAX_UNKNOWN = 100;

/**
 * Returns one line per violation, each led by the path of the field: `keys.auth.x: must be …`. Of a union's forms the nearest speaks.
 * `whole` leads the line of the value itself.
 */
export function describeIssues(error: z.ZodError, root = "", whole = root): string[] {
  return error.issues.flatMap((issue) => linesOf(issue, root === "" ? [] : [root], whole));
}

function linesOf(issue: z.core.$ZodIssue, before: readonly string[], whole: string): string[] {
  const path = [...before, ...issue.path.map(String)];
  if (issue.code === "invalid_union") {
    const [nearest] = [...issue.errors].sort((a, b) => a.length - b.length);
    if (nearest !== undefined) return nearest.flatMap((inner) => linesOf(inner, path, whole));
  }
  if (issue.code === "unrecognized_keys") {
    return issue.keys.slice(0, MAX_UNKNOWN).map((key) => `${[...path, key].join(".")}: is not a known field`);
  }
  const text = issueText(issue);
  const at = path.length === 0 ? whole : path.join(".");
  return [at === "" ? text : `${at}: ${text}`];
}
