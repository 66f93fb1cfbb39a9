import { ActivationRequest } from "../../protocol/channel/activation.ts";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { z } from "zod";
import { InputError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { describeIssues } from "../../protocol/channel/envelope.ts";
import {
  ConfigQuery,
  ContainerLogsQuery,
  HIDDEN_SECRET,
  LogsQuery,
  RegisterRequest,
  ResetFloorRequest,
  ResetRequest,
  NetworkTryRequest,
  RouteQuery,
} from "../../protocol/local/api.ts";
import { UPGRADE_PATH, UpgradeOrder } from "../../protocol/documents/release.ts";
import { PLAN_REQUEST_LIMITS, PlanRequest, RollbackRequest } from "../../protocol/documents/reconcile.ts";
import { hideSecrets } from "../../protocol/documents/secrets.ts";
import { LOCAL_STREAM_UPGRADE } from "../../protocol/channel/streams.ts";
import { EventName } from "../../protocol/values/values.ts";
import type { LocalProvider } from "./provider.ts";
import { failureOf, readJson, sendJson, sendLines } from "./replies.ts";

/** One request and its collaborators; `signal` is aborted when the caller disconnects or the agent stops. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly url: URL;
  readonly provider: LocalProvider;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** An endpoint; with `prefix` one more path segment follows. */
export interface Route {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly prefix?: true;
  /** Served on the admin socket only. */
  readonly isAdmin: boolean;
  answer(exchange: Exchange): Promise<void>;
}

/** The path at which a terminal is opened. */
export const EXEC_PATH = "/v1/containers/exec";

/** Every endpoint of the local API. */
const routes: readonly Route[] = [
  {
    method: "GET",
    path: "/v1/status",
    isAdmin: false,
    answer: async ({ response, provider }) => sendJson(response, 200, provider.status()),
  },
  {
    method: "GET",
    path: "/v1/health",
    isAdmin: false,
    answer: async ({ response, provider }) => sendJson(response, 200, provider.health()),
  },
  {
    method: "GET",
    path: "/v1/logs",
    isAdmin: false,
    async answer({ response, url, provider, clock, signal }) {
      const query = parse(LogsQuery, Object.fromEntries(url.searchParams));
      await sendLines(response, provider.logs(query, signal), clock, signal);
      response.end();
    },
  },
  {
    method: "GET",
    path: "/v1/why",
    isAdmin: false,
    answer: async ({ response, provider }) => sendJson(response, 200, provider.why()),
  },
  {
    method: "GET",
    path: "/v1/connectors",
    isAdmin: false,
    answer: async ({ response, provider, signal }) => sendJson(response, 200, await provider.connectors(signal)),
  },
  {
    method: "GET",
    path: "/v1/services",
    isAdmin: false,
    answer: async ({ response, provider, signal }) => sendJson(response, 200, await provider.services(signal)),
  },
  {
    method: "GET",
    path: "/v1/containers",
    isAdmin: false,
    answer: async ({ response, provider }) => sendJson(response, 200, provider.containers()),
  },
  {
    method: "GET",
    path: "/v1/volumes",
    isAdmin: false,
    answer: async ({ response, provider }) => sendJson(response, 200, provider.volumes()),
  },
  {
    method: "GET",
    path: "/v1/gateways",
    isAdmin: false,
    answer: async ({ response, provider, signal }) => sendJson(response, 200, await provider.gateways(signal)),
  },
  {
    method: "GET",
    path: "/v1/peers",
    isAdmin: false,
    answer: async ({ response, provider, signal }) => sendJson(response, 200, await provider.peers(signal)),
  },
  {
    method: "GET",
    path: "/v1/network",
    isAdmin: false,
    answer: async ({ response, provider, signal }) => sendJson(response, 200, await provider.observeNetwork(signal)),
  },
  {
    method: "GET",
    path: "/v1/route",
    isAdmin: false,
    async answer({ response, url, provider, signal }) {
      const { to } = parse(RouteQuery, Object.fromEntries(url.searchParams));
      sendJson(response, 200, await provider.routeTo(to, signal));
    },
  },
  {
    method: "GET",
    path: "/v1/targets",
    isAdmin: true,
    answer: async ({ response, provider }) => sendJson(response, 200, provider.targets()),
  },
  {
    method: "GET",
    path: "/v1/config",
    isAdmin: true,
    async answer({ response, url, provider }) {
      const { secrets } = parse(ConfigQuery, Object.fromEntries(url.searchParams));
      const config = provider.config();
      sendJson(response, 200, secrets ? config : hideSecrets(config, HIDDEN_SECRET));
    },
  },
  {
    method: "POST",
    path: "/v1/plan",
    isAdmin: true,
    async answer({ request, response, provider, signal }) {
      const { config } = parse(PlanRequest, await readJson(request, PLAN_REQUEST_LIMITS));
      sendJson(response, 200, await provider.plan(config, signal));
    },
  },
  {
    method: "POST",
    path: "/v1/rollback",
    isAdmin: true,
    async answer({ request, response, provider, signal }) {
      const asked = parse(RollbackRequest, await readJson(request));
      sendJson(response, 200, await provider.rollback(asked, signal));
    },
  },
  {
    method: "GET",
    path: "/v1/network/change",
    isAdmin: false,
    answer: async ({ response, provider }) => sendJson(response, 200, provider.network()),
  },
  {
    method: "POST",
    path: "/v1/network/try",
    isAdmin: true,
    async answer({ request, response, provider, signal }) {
      const asked = parse(NetworkTryRequest, await readJson(request, PLAN_REQUEST_LIMITS));
      sendJson(response, 200, await provider.tryNetwork(asked, signal));
    },
  },
  {
    method: "POST",
    path: "/v1/network/keep",
    isAdmin: true,
    answer: async ({ response, provider }) => sendJson(response, 200, await provider.keepNetwork()),
  },
  {
    method: "POST",
    path: "/v1/network/revert",
    isAdmin: true,
    answer: async ({ response, provider }) => sendJson(response, 200, await provider.revertNetwork()),
  },
  {
    method: "GET",
    path: "/v1/containers/logs",
    isAdmin: true,
    async answer({ response, url, provider, clock, signal }) {
      const query = parse(ContainerLogsQuery, Object.fromEntries(url.searchParams));
      await sendLines(response, withLastWord(provider.containerLogs(query, signal), signal), clock, signal);
      response.end();
    },
  },
  {
    method: "GET",
    path: EXEC_PATH,
    isAdmin: true,
    answer: () =>
      Promise.reject(new InputError("not-supported", `a terminal needs an upgrade to ${LOCAL_STREAM_UPGRADE}`)),
  },
  { method: "POST", path: "/v1/trigger/", prefix: true, isAdmin: true, answer: runTrigger },
  {
    method: "POST",
    path: "/v1/activate",
    isAdmin: true,
    async answer({ request, response, provider }) {
      sendJson(response, 200, await provider.activate(parse(ActivationRequest, await readJson(request))));
    },
  },
  {
    method: "POST",
    path: "/v1/register",
    isAdmin: true,
    async answer({ request, response, provider }) {
      const { license } = parse(RegisterRequest, await readJson(request));
      sendJson(response, 200, await provider.register(license));
    },
  },
  {
    method: "POST",
    path: "/v1/reset",
    isAdmin: true,
    async answer({ request, response, provider }) {
      const { answer, begin } = await provider.reset(parse(ResetRequest, await readJson(request)));
      // The answer is sent first; a caller that has disconnected does not cancel the order.
      if (response.closed) return begin();
      response.once("close", begin);
      sendJson(response, 200, answer);
    },
  },
  {
    method: "POST",
    path: "/v1/reset-floor",
    isAdmin: true,
    async answer({ request, response, provider }) {
      const { name } = parse(ResetFloorRequest, await readJson(request));
      sendJson(response, 200, await provider.resetFloor(name));
    },
  },
  {
    method: "POST",
    path: UPGRADE_PATH,
    isAdmin: true,
    async answer({ request, response, provider }) {
      sendJson(response, 200, await provider.upgrade(parse(UpgradeOrder, await readJson(request))));
    },
  },
  {
    method: "POST",
    path: "/v1/wake",
    isAdmin: true,
    async answer({ response, provider }) {
      provider.wake();
      sendJson(response, 200, {});
    },
  },
];

/** Returns the routes of a path, for every method. */
export function routesAt(path: string): readonly Route[] {
  return routes.filter((route) =>
    route.prefix === true
      ? path.startsWith(route.path) && path.length > route.path.length && !path.slice(route.path.length).includes("/")
      : path === route.path,
  );
}

async function runTrigger({ request, response, url, provider, clock, signal }: Exchange): Promise<void> {
  const event = parse(EventName, decodeSegment(url.pathname.slice("/v1/trigger/".length)), "event");
  const body = (await readJson(request)) ?? {};
  const wait = url.searchParams.get("wait") === "1";
  try {
    await sendLines(response, provider.trigger(event, body, signal, { wait }), clock, signal);
  } catch (error) {
    if (signal.aborted) return;
    response.write(`${JSON.stringify({ kind: "error", ...failureOf(toError(error)) })}\n`);
    response.end();
    throw error;
  }
  response.end();
}

/** Returns a stream whose error is its last line, since its status is already sent. */
async function* withLastWord(lines: AsyncIterable<unknown>, signal: AbortSignal): AsyncGenerator {
  try {
    yield* lines;
  } catch (error) {
    if (!signal.aborted) yield { error: failureOf(toError(error)) };
  }
}

function decodeSegment(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    throw new InputError("invalid-body", "event: not a valid path segment", { cause: error });
  }
}

/** Reads the query. @throws {InputError} `invalid-body`, whose details name the fields. */
export function parse<T>(schema: z.ZodType<T>, value: unknown, root = ""): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new InputError("invalid-body", describeIssues(parsed.error, root).join("; "), {
    details: {
      fields: parsed.error.issues.map((issue) => [root, ...issue.path.map(String)].filter(Boolean).join(".")),
    },
  });
}
