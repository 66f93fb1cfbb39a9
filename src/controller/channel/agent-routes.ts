import type { IncomingMessage, ServerResponse } from "node:http";
import type { Logger } from "pino";
import type { z } from "zod";
import { AgentError, HostError, InputError, toError } from "../../errors.ts";
import { AggregatedLog } from "../../host/aggregated-log.ts";
import type { Clock } from "../../host/clock.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { errorCodes } from "../../protocol/values/error-codes.ts";
import {
  ACTIVATION_PATH,
  describeIssues,
  DOCUMENT_PATH,
  REGISTER_PATH,
  SESSION_PATH,
  STREAM_PATH,
  TOKEN_PATH,
  UPTIME_HEADER,
} from "../../protocol/channel/envelope.ts";
import { ActivationBody, TokenBody } from "../../protocol/channel/activation.ts";
import { REGISTRATION_LIMITS, RegistrationBody } from "../../protocol/channel/registration.ts";
import { keysFrom, type ControlKeys } from "./keys/control-keys.ts";
import type { Activations } from "../nodes/activations/service.ts";
import type { AgentTokens } from "../access/agent-tokens/service.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { Documents } from "./documents/documents.ts";
import { refuseWhileHeld } from "../nodes/held-identity.ts";
import { answerError, answerJson, pathOf, readBody } from "./http-io.ts";
import { Intake } from "./intake.ts";
import type { Refusals } from "./refusals.ts";
import { registerNode, type RegistrationDeps } from "./registration.ts";
import type { Sessions } from "./sessions.ts";
import type { Source, Sources } from "../http/sources.ts";
import { type SpeedTest } from "./speed-test.ts";
import type { Tickets } from "./tickets.ts";
import { SPEED_TEST_PATH } from "./keys/speed-test-tokens.ts";

export interface AgentRoutesDeps extends RegistrationDeps {
  readonly store: RegistrationDeps["store"] & { readonly nodes: Pick<NodeStore, "credentials"> };
  readonly sessions: Pick<Sessions, "get">;
  readonly documents: Documents;
  readonly tickets: Tickets;
  readonly speedTest: SpeedTest;
  readonly activations: Pick<Activations, "ask">;
  readonly agentTokens: Pick<AgentTokens, "exchange">;
  readonly refusals: Pick<Refusals, "note">;
  readonly sources: Pick<Sources, "of">;
  readonly keys: ControlKeys;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Path prefix of the nodes' API. */
export const AGENT_PREFIX = "/agent/v1/";

const REGISTER_BODY_MS = 10_000;

/** HTTP status of malformed input, which counts as wrongly signed. */
const MALFORMED = 401;
const STATUS: Readonly<Record<string, number>> = {
  "too-large": 413,
  timeout: 408,
  "license-reused": 409,
  "key-in-use": 409,
  "name-taken": 409,
  "license-expired": 410,
  "token-expired": 410,
  "token-used": 410,
  replayed: 409,
  "too-many": 429,
  "not-found": 404,
  busy: 409,
  internal: 500,
};

/** Statuses sent before the whole body was read. */
const BODY_NOT_READ: ReadonlySet<number> = new Set([408, 413]);

/** Handler of one kind of body. */
interface Post {
  readonly intake: Intake;
  /** @throws {InputError} `invalid-body`, and errors of the handler */
  readonly answer: (body: unknown, source: Source) => Promise<unknown>;
}

function post<T>(schema: z.ZodType<T>, intake: Intake, answer: (body: T, source: Source) => Promise<unknown>): Post {
  return {
    intake,
    async answer(body, source) {
      const parsed = schema.safeParse(body);
      if (!parsed.success) throw new InputError("invalid-body", describeIssues(parsed.error).join("; "));
      return answer(parsed.data, source);
    },
  };
}

/** HTTP routes of nodes: registration, activation, documents and speed test. */
export class AgentRoutes {
  readonly #deps: AgentRoutesDeps;
  readonly #since: number;
  readonly #posts: ReadonlyMap<string, Post>;
  /** Our own failures, which strangers can cause again and again while the store fails. */
  readonly #failures: AggregatedLog;

  constructor(deps: AgentRoutesDeps) {
    this.#deps = deps;
    const { clock, activations, agentTokens, log } = deps;
    this.#failures = new AggregatedLog(log, clock);
    const unlimited = { limitsFailures: false };
    this.#posts = new Map([
      [
        REGISTER_PATH,
        post(RegistrationBody, new Intake(clock, { limitsFailures: true }), ({ register }, { address }) =>
          registerNode(deps, register, address),
        ),
      ],
      [
        ACTIVATION_PATH,
        post(ActivationBody, new Intake(clock, unlimited), ({ activation }, source) =>
          activations.ask(activation, source),
        ),
      ],
      [TOKEN_PATH, post(TokenBody, new Intake(clock, unlimited), ({ exchange }) => agentTokens.exchange(exchange))],
    ]);
    this.#since = deps.clock.elapsed();
  }

  /** Answers one request below `/agent/v1/`; never rejects. */
  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      await this.#route(request, response);
    } catch (error) {
      this.#fail(response, toError(error));
    }
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = pathOf(request);
    if (path.startsWith(`${SPEED_TEST_PATH}/`)) return this.#deps.speedTest.handle(request, response);
    const handler = this.#posts.get(path);
    const method = handler === undefined ? { [DOCUMENT_PATH]: "GET" }[path] : "POST";
    if (path === SESSION_PATH || path === STREAM_PATH) {
      const uptime = Math.floor((this.#deps.clock.elapsed() - this.#since) / 1000);
      const headers = { upgrade: "websocket", [UPTIME_HEADER]: String(uptime) };
      return answerError(response, 426, { code: "invalid-body", message: "WebSocket only" }, headers);
    }
    if (method === undefined) return answerError(response, 404, { code: "not-found", message: `no ${path}` });
    if (request.method !== method) {
      return answerError(response, 405, { code: "invalid-body", message: `${method} only` }, { allow: method });
    }
    return handler === undefined ? this.#document(request, response) : this.#handlePost(handler, request, response);
  }

  /** Reads and answers the body of an unregistered machine, within the limits of its kind. */
  async #handlePost({ intake, answer }: Post, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const source = this.#deps.sources.of(request);
    const waitSeconds = intake.waitSeconds(source);
    if (waitSeconds !== undefined) {
      const headers = { "retry-after": String(waitSeconds), connection: "close" };
      return answerError(response, 429, { code: "busy", message: "too many registrations" }, headers);
    }
    const release = intake.enter(source);
    try {
      const limits = { maxBytes: REGISTRATION_LIMITS.maxBytes, withinMs: REGISTER_BODY_MS };
      const body = parseStrictJson(await readBody(request, limits, this.#deps.clock), REGISTRATION_LIMITS);
      answerJson(response, 200, await answer(body, source));
    } catch (error) {
      intake.failed(source);
      if (error instanceof InputError && statusOf(error) === MALFORMED) {
        this.#deps.refusals.note("registration", { address: source.address, message: error.message });
      }
      throw error;
    } finally {
      release();
    }
  }

  async #document(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { tickets, sessions, store, keys, documents } = this.#deps;
    const header = request.headers["holdfast-ticket"];
    const ticket = typeof header === "string" ? tickets.redeem(header) : undefined;
    if (ticket === undefined || sessions.get(ticket.uid)?.sid !== ticket.sid) {
      return answerError(response, 401, {
        code: "bad-signature",
        message: "holdfast-ticket: unknown, used or expired; request a new one",
      });
    }
    await refuseWhileHeld(store, ticket.uid);
    if (ticket.name === "keys") return answerJson(response, 200, keysFrom(keys, ticket.have + 1));
    const jws = await documents.signed(ticket.uid, ticket.name);
    if (jws === undefined)
      return answerError(response, 404, { code: "not-found", message: `no ${ticket.name} document` });
    response.writeHead(200, {
      "content-type": "application/jose",
      "content-length": Buffer.byteLength(jws),
      "cache-control": "no-store",
    });
    response.end(jws);
  }

  #fail(response: ServerResponse, error: Error): void {
    if (response.headersSent || response.destroyed) {
      response.destroy();
      return;
    }
    if (error instanceof AgentError && error instanceof InputError) {
      const status = statusOf(error);
      // The remaining body of a rejected request is not read.
      return answerError(response, status, error, BODY_NOT_READ.has(status) ? { connection: "close" } : {});
    }
    this.#failures.error(error instanceof AgentError ? error.code : "internal", { err: error }, "request failed");
    if (error instanceof HostError && STORE_FAULTS.has(error.code)) {
      const { message } = error;
      return answerError(response, errorCodes["storage-unavailable"].http, { code: "storage-unavailable", message });
    }
    answerError(response, 500, { code: "internal", message: "internal error" });
  }
}

/** A full disk, and a database server that cannot be used: one code for nodes, which come again later. */
const STORE_FAULTS: ReadonlySet<string> = new Set(["storage-unavailable", "store-unavailable"]);

function statusOf({ code }: InputError): number {
  return STATUS[code] ?? MALFORMED;
}
