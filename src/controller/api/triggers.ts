import { z } from "zod";
import { InputError, SessionError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { JsonLimits } from "../../lib/formats/strict-json.ts";
import { CAPTURE_EVENT, CAPTURE_PERMISSION } from "../../protocol/triggers/capture.ts";
import { ContainerCommand } from "../../protocol/triggers/bodies.ts";
import { triggerSchemas } from "../../protocol/triggers/schemas.ts";
import { STREAM_DEADLINE_MS } from "../../protocol/values/trigger-events.ts";
import { EventName, JsonObject, Text256, Uid } from "../../protocol/values/values.ts";
import type { TriggerProgress, TriggerRequest } from "../fleet.ts";
import { DATA_STORE_EVENT, dataStoreDeadlineMs } from "../model/data-store.ts";
import { containerNamed, stopSecondsOf } from "../model/exec-section.ts";
import { tgrn } from "../model/permissions.ts";
import { BODY_LIMITS } from "./body.ts";
import { execOfNode } from "./node-exec.ts";
import { nodeOf } from "./nodes.ts";
import { refusalOf } from "./problem.ts";
import { Flag } from "./query.ts";
import { route, type ApiDeps, type Route } from "./route.ts";
import { badBody, notFound, ofNode, refusals } from "./shapes.ts";

const SECOND = 1000;
const DEFAULT_DEADLINE_MS = 15 * SECOND;
const PULL_MS = 900 * SECOND;
export const PUSH_LOGS_EVENT = "node-push-logs";
/** How long a node may take to make a bundle. */
export const PUSH_LOGS_MS = 180 * SECOND;
const LONGEST_MS = 3600 * SECOND;
const DEADLINES_MS: ReadonlyMap<string, number> = new Map([
  ["tg-ping", 60 * SECOND],
  ["tg-traceroute", 60 * SECOND],
  ["tg-nc", 60 * SECOND],
  ["tg-mtr", 180 * SECOND],
  ["tg-arping", 60 * SECOND],
  ["tg-tcpdump", 60 * SECOND],
  [CAPTURE_EVENT, 60 * SECOND],
  ["flows", 30 * SECOND],
  ["gateway-ping", 60 * SECOND],
  ["gateway-perf", 300 * SECOND],
  ["speed-test", 120 * SECOND],
  ["gateway-latency", 60 * SECOND],
  ["gateway-traceroute", 60 * SECOND],
  ["gateway-mtr", 180 * SECOND],
  ["dns-health", 60 * SECOND],
  ["repo-connectivity", 60 * SECOND],
  ["outbound-connection-check", 60 * SECOND],
  ["container-image", 60 * SECOND],
  ["container-logs", 60 * SECOND],
  ["container-status", 10 * SECOND],
  [PUSH_LOGS_EVENT, PUSH_LOGS_MS],
]);
/** Streams that may be watched for longer than others. */
const LONG_STREAMS: ReadonlySet<string> = new Set(["node-debug"]);
/** What these make may be written to a place in the data store, which takes the leave to change that. */
const FILE_EVENTS: ReadonlySet<string> = new Set(["tg-tcpdump", PUSH_LOGS_EVENT]);
const STORE_PERMISSIONS = [`nodes::service:${DATA_STORE_EVENT}`, "nodes::remote-execute"];
/** The node answers before its deadline; past this much more nothing will come. */
const GRACE_MS = 5 * SECOND;
/** Output that a slow reader may leave waiting before the trigger is taken back. */
const MAX_UNREAD_BYTES = 4 * 1024 * 1024;

/** The node holds the claims around a body to the depth that every message has. */
const TRIGGER_LIMITS: JsonLimits = { ...BODY_LIMITS, maxDepth: 28 };

/** The node judges the body, since events of newer nodes are sent as well. */
const DescribedBody = z
  .union([...new Set(Object.values(triggerSchemas).map(({ body }) => body)), ContainerCommand, JsonObject])
  .optional()
  .meta({ description: "As the event takes it; one without a form of its own takes any object, or none" });

/** Commands to a node. */
export function triggerRoutes(deps: ApiDeps): readonly Route[] {
  return [
    route({
      method: "POST",
      path: "/node/{nodeID}/trigger/{event}",
      operationId: "triggerNode",
      summary: "Send an event to a node",
      tag: "Triggers",
      access: {
        to: "resource",
        permissions: ["nodes::service:{event}", "nodes::remote-execute"],
        instead: ({ event }) => (event === CAPTURE_EVENT ? [CAPTURE_PERMISSION] : undefined),
        resource: ({ nodeID }) => tgrn.node(nodeID),
      },
      params: z.object({ nodeID: Uid, event: Text256 }),
      query: z.object({
        wait: Flag.meta({ description: "Wait for the node's answer; otherwise the answer is `true`" }),
        stream: Flag.meta({ description: "Answer output as it comes, one JSON object per line" }),
      }),
      body: {
        schema: z.preprocess((body) => body ?? {}, JsonObject).optional(),
        limits: TRIGGER_LIMITS,
        described: DescribedBody,
      },
      answers: {
        200: {
          description: "The node's answer, or `true` once the event was handed over",
          schema: z.unknown(),
          mediaTypes: ["application/json", "application/x-ndjson"],
        },
        ...ofNode,
        ...refusals,
        ...notFound,
        ...badBody,
      },
      handle: async ({ params: { nodeID, event }, query, body, request, caller }) => {
        if (!EventName.safeParse(event).success) throw new InputError("unknown-event", "no event has such a name");
        if (FILE_EVENTS.has(event) && body?.["file"] !== undefined)
          caller.require(STORE_PERMISSIONS, tgrn.node(nodeID));
        if (!nodeOf(deps.fleet, nodeID).isOnline) throw new SessionError("offline", "the node has no session");
        const stream = query.stream === true;
        const order: TriggerRequest = {
          event,
          body: body ?? {},
          wait: stream || query.wait === true,
          user: caller.name,
          deadlineMs: deadlineOf(deps, nodeID, event, body, stream),
        };
        return stream
          ? streamTrigger(deps, nodeID, order, request.signal)
          : Response.json((await runOf(order)(deps, nodeID, order, request.signal)) ?? null);
      },
    }),
  ];
}

/** A container's event may take a pull and the time it has to stop; a watched run goes on for an hour at most. */
function deadlineOf({ fleet }: ApiDeps, nodeID: string, event: string, body: unknown, stream: boolean): number {
  const known = event === DATA_STORE_EVENT ? dataStoreDeadlineMs(body) : DEADLINES_MS.get(event);
  const { type } = nodeOf(fleet, nodeID);
  const container =
    known !== undefined || type === "Agent" ? undefined : containerNamed(execOfNode(fleet, nodeID), event);
  if (stream && LONG_STREAMS.has(event)) return LONGEST_MS;
  if (container === undefined) return stream ? STREAM_DEADLINE_MS : (known ?? DEFAULT_DEADLINE_MS);
  return stream ? LONGEST_MS : Math.min(PULL_MS + stopSecondsOf(container) * SECOND, LONGEST_MS);
}

/** What a data store or a bundle holds may be more than one message. */
const runOf = ({ event, wait }: TriggerRequest): typeof runInParts =>
  (event === DATA_STORE_EVENT || event === PUSH_LOGS_EVENT) && wait ? runInParts : runForCaller;

/** Runs a trigger for somebody who waits for its answer, until its deadline is past or the caller is gone. */
export async function runForCaller(
  { fleet, clock }: Pick<ApiDeps, "fleet" | "clock">,
  uid: string,
  order: TriggerRequest,
  gone: AbortSignal,
  onProgress?: (progress: TriggerProgress) => void,
): Promise<unknown> {
  using limit = limitOf(clock, order, gone);
  const { signal } = limit;
  return await fleet.runTrigger(uid, order, onProgress === undefined ? { signal } : { signal, onProgress });
}

/** The same for an answer that no one message may hold: the node gives it in parts. @throws {SessionError} `too-large`, `interrupted`; {InputError} `overloaded`. */
export async function runInParts(
  deps: Pick<ApiDeps, "fleet" | "clock" | "joins">,
  uid: string,
  order: TriggerRequest,
  gone: AbortSignal,
): Promise<unknown> {
  using join = deps.joins.open(uid);
  const refused = new AbortController();
  const stop = AbortSignal.any([gone, refused.signal]);
  try {
    const result = await runForCaller(deps, uid, order, stop, ({ data }) => {
      try {
        join.take(data);
      } catch (error) {
        refused.abort(error);
      }
    });
    return join.whole(result);
  } catch (error) {
    // Not the caller has gone then.
    throw refused.signal.aborted ? toError(refused.signal.reason) : error;
  }
}

/** Answers with the first output, so that what is refused at once has its own status. */
async function streamTrigger(
  { fleet, clock, log }: ApiDeps,
  uid: string,
  order: TriggerRequest,
  gone: AbortSignal,
): Promise<Response> {
  const limit = limitOf(clock, order, gone);
  const lines = new LineStream(limit.abort);
  const running = (async () => {
    try {
      const onProgress = ({ seq, kind, data }: TriggerProgress): void => lines.write({ seq, kind, data });
      const result = await fleet.runTrigger(uid, order, { signal: limit.signal, onProgress });
      lines.write({ result: result ?? null });
    } catch (error) {
      if (!lines.hasBegun) throw error;
      const { message, code, isFault } = refusalOf(error);
      if (isFault) log.error({ event: order.event, uid, err: toError(error) }, "stream failed");
      lines.write({ error: message, code });
    } finally {
      limit[Symbol.dispose]();
      lines.close();
    }
  })();
  await Promise.race([running, lines.begun]);
  // From here on a failure is a line of the stream.
  running.catch(() => undefined);
  return new Response(lines.readable, { headers: { "content-type": "application/x-ndjson" } });
}

/** Objects as lines of JSON, with a bound on what the reader has not taken. */
class LineStream {
  readonly readable: ReadableStream<Uint8Array>;
  /** Resolves with the first line. */
  readonly begun: Promise<void>;
  hasBegun = false;
  #isOpen = true;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  readonly #begin: () => void;
  readonly #stop: (reason: Error) => void;

  constructor(stop: (reason: Error) => void) {
    let begin = (): void => undefined;
    this.begun = new Promise((resolve) => {
      begin = resolve;
    });
    this.#begin = begin;
    this.#stop = stop;
    this.readable = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        cancel: () => {
          this.#isOpen = false;
          stop(new SessionError("cancelled", "the caller is gone"));
        },
      },
      new ByteLengthQueuingStrategy({ highWaterMark: MAX_UNREAD_BYTES }),
    );
  }

  write(line: object): void {
    if (!this.#isOpen) return;
    this.#enqueue(line);
    this.hasBegun = true;
    this.#begin();
    if ((this.#controller?.desiredSize ?? 0) >= 0) return;
    const slow = new SessionError("cancelled", "the caller reads too slowly");
    this.#enqueue({ error: slow.message, code: slow.code });
    this.close();
    this.#stop(slow);
  }

  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#controller?.close();
  }

  #enqueue(line: object): void {
    this.#controller?.enqueue(new TextEncoder().encode(`${JSON.stringify(line)}\n`));
  }
}

interface Limit extends Disposable {
  readonly signal: AbortSignal;
  readonly abort: (reason: Error) => void;
}

/** Ends a trigger when its caller goes away or when its deadline is long past. */
function limitOf(clock: Clock, { deadlineMs }: TriggerRequest, gone: AbortSignal): Limit {
  const controller = new AbortController();
  const abort = (reason: Error): void => controller.abort(reason);
  const stopClock = clock.after(deadlineMs + GRACE_MS, () =>
    abort(new SessionError("timeout", `no answer within ${deadlineMs} ms`)),
  );
  const onGone = (): void =>
    abort(new SessionError("cancelled", "the caller is gone", { cause: toError(gone.reason) }));
  if (gone.aborted) onGone();
  else gone.addEventListener("abort", onGone, { once: true });
  return {
    signal: controller.signal,
    abort,
    [Symbol.dispose]: () => {
      stopClock();
      gone.removeEventListener("abort", onGone);
    },
  };
}
