import { z } from "zod";
import { InputError, SessionError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { JsonLimits } from "../../lib/formats/strict-json.ts";
import { CAPTURE_EVENT, CAPTURE_PERMISSION } from "../../protocol/triggers/capture.ts";
import { ContainerCommand } from "../../protocol/triggers/bodies.ts";
import { describeIssues } from "../../protocol/channel/envelope.ts";
import { ContainerCommandAnswer } from "../../protocol/triggers/results.ts";
import { triggerSchemas } from "../../protocol/triggers/schemas.ts";
import { STREAM_DEADLINE_MS } from "../../protocol/values/trigger-events.ts";
import { EventName, JsonObject, Text256, Uid } from "../../protocol/values/values.ts";
import { DATA_STORE_EVENT, dataStoreDeadlineMs } from "./data-store-event.ts";
import { containerNamed, stopSecondsOf } from "../containers/exec-section.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { BODY_LIMITS } from "../http/body.ts";
import { execOf } from "../containers/routes.ts";
import { defined } from "../../lib/defined.ts";
import { nodeOf } from "../nodes/routes.ts";
import { refusalOf, Violations } from "../http/problem.ts";
import { Flag } from "../http/query.ts";
import { route, type Route, type Variant } from "../http/route.ts";
import { badBody, notFound, ofNode, refusals } from "../http/shapes.ts";
import { eventExamples } from "./event-examples.ts";
import type { TriggerProgress, TriggerRequest } from "./records.ts";
import type { TriggerOptions, TriggerService } from "./service.ts";
import type { ReplyJoins } from "./reply-joins.ts";
import type { NodeRecord } from "../nodes/records.ts";
import type { NodeService } from "../nodes/service.ts";
import type { ClusterService } from "../clusters/service.ts";
import type { Logger } from "pino";

const SECOND = 1000;
const DEFAULT_DEADLINE_MS = 15 * SECOND;
const PULL_MS = 900 * SECOND;
export const PUSH_LOGS_EVENT = "node-push-logs";
/** Time limit of a bundle, in milliseconds. */
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
/** Events whose streams may run longer than others. */
const LONG_STREAMS: ReadonlySet<string> = new Set(["node-debug"]);
/** Events whose output may be written to the data store, which requires permission to change it. */
const FILE_EVENTS: ReadonlySet<string> = new Set(["tg-tcpdump", PUSH_LOGS_EVENT]);
const STORE_PERMISSIONS = [`nodes::service:${DATA_STORE_EVENT}`, "nodes::remote-execute"];
/** Time after a node's deadline until its reply counts as lost, in milliseconds. */
const GRACE_MS = 5 * SECOND;
/** Limit of output that waits for a slow reader before the trigger is cancelled, in bytes. */
const MAX_UNREAD_BYTES = 4 * 1024 * 1024;

/** The claims around a body use part of the depth that the node permits. */
const TRIGGER_LIMITS: JsonLimits = { ...BODY_LIMITS, maxDepth: 28 };

/** Forms of each event's body and answer in the OpenAPI document. A terminal is opened by another operation. */
const VARIANTS = {
  parameter: "event",
  values: variantsOf(),
  unless: { query: ["wait", "stream"], answer: true },
} as const;

/** Describes the bodies of known events. The node validates the body, since newer nodes have other events. */
const DescribedBody = z
  .union([...new Set(Object.values(triggerSchemas).map(({ body }) => body)), ContainerCommand, JsonObject])
  .optional()
  .meta({ description: "Body of the event; events without a defined form accept any object, or none" });
/** Describes the answers of known events. Containers and newer nodes have other events. */
const DescribedAnswer = z
  .union([
    z.literal(true),
    ...new Set(Object.values(VARIANTS.values).map(({ answer }) => answer)),
    ContainerCommandAnswer,
    z.unknown(),
  ])
  .meta({ description: "`true` without `wait`; else the answer of the event, as `x-variants` lists them" });

/** Response header with the id of an event that nobody waits for. */
const ID_HEADER = "holdfast-trigger";
const SentShape = z
  .object({
    id: z.string(),
    event: z.string(),
    user: z.string(),
    sentAt: z.int().meta({ description: "Unix seconds" }),
    outcome: z.string().optional().meta({ description: "`ok` or an error code; absent while it runs" }),
  })
  .meta({ id: "SentTrigger" });

/** Dependencies of a call that runs a trigger. */
export interface RunDeps {
  readonly triggers: TriggerService;
  readonly joins: ReplyJoins;
  readonly clock: Clock;
}

export interface TriggerRouteDeps extends RunDeps {
  readonly nodes: NodeService;
  readonly clusters: ClusterService;
  readonly log: Logger;
}

export function triggerRoutes(deps: TriggerRouteDeps): readonly Route[] {
  const sentOf = oneReadOf(deps.triggers);
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
        instead: ({ event }) => rightsTo(event),
        resource: ({ nodeID }) => tgrn.node(nodeID),
      },
      params: z.object({ nodeID: Uid, event: Text256 }),
      query: z.object({
        wait: Flag.meta({
          description: "Wait for the node's response; otherwise the response is `true`",
          examples: [true],
        }),
        stream: Flag.meta({ description: "Stream output as it arrives, one JSON object per line" }),
      }),
      body: {
        schema: z.preprocess((body) => body ?? {}, JsonObject).optional(),
        limits: TRIGGER_LIMITS,
        described: DescribedBody,
      },
      answers: {
        200: {
          description: "The node's response, or `true` once the event was checked and sent",
          headers: {
            [ID_HEADER]: {
              description: "Without `wait`: id of the record `/v2/node/{nodeID}/trigger/{triggerID}`",
              schema: z.string(),
            },
          },
          schema: DescribedAnswer,
          mediaTypes: ["application/json", "application/x-ndjson"],
        },
        ...ofNode,
        ...refusals,
        ...notFound,
        ...badBody,
      },
      variants: VARIANTS,
      handle: async ({ params: { nodeID, event }, query, body, request, caller }) => {
        if (!EventName.safeParse(event).success)
          throw new Violations(["event: is no name of an event: use letters, digits, '.', '_' and '-'"]);
        if (FILE_EVENTS.has(event) && body?.["file"] !== undefined)
          await caller.require(STORE_PERMISSIONS, tgrn.node(nodeID));
        const node = await nodeOf(deps.nodes, nodeID);
        const stream = query.stream === true;
        const order: TriggerRequest = {
          event,
          body: body ?? {},
          wait: stream || query.wait === true,
          user: caller.name,
          deadlineMs: await deadlineOf(deps, node, event, body, stream),
        };
        // A node may know other events and bodies; of one that cannot be asked, the known ones are checked.
        if (!order.wait || !node.isOnline) await checkOrder(deps, node, order);
        if (!node.isOnline) throw new SessionError("offline", "the node has no session");
        if (stream) return streamTrigger(deps, nodeID, order, request.signal);
        if (order.wait) return Response.json((await runOf(order)(deps, nodeID, order, request.signal)) ?? null);
        const sent: { id?: string } = {};
        const options = { onSent: (id: string): void => void (sent.id = id) };
        const answer = await runForCaller(deps, nodeID, order, request.signal, options);
        return Response.json(answer ?? null, sent.id === undefined ? {} : { headers: { [ID_HEADER]: sent.id } });
      },
    }),
    route({
      method: "GET",
      path: "/v2/node/{nodeID}/trigger/{triggerID}",
      operationId: "getNodeTrigger",
      summary: "Get the outcome of an event that was sent to a node; requires the permission to send it",
      tag: "Triggers",
      access: {
        to: "resource",
        permissions: ["nodes::remote-execute"],
        instead: async (params) => rightsTo((await sentOf(params))?.event),
        resource: ({ nodeID }) => tgrn.node(nodeID),
      },
      params: z.object({ nodeID: Uid, triggerID: z.string().max(64) }),
      answers: { 200: { description: "The event", schema: SentShape }, ...refusals, ...notFound },
      handle: async ({ params }) => {
        const sent = await sentOf(params);
        if (sent === undefined) {
          await nodeOf(deps.nodes, params.nodeID);
          throw new InputError("not-found", `no event ${params.triggerID} was sent to this node`);
        }
        return Response.json(sent);
      },
    }),
  ];
}

interface SentParams {
  readonly nodeID: string;
  readonly triggerID: string;
}

/** Returns a function that reads the record of a sent event once for each request, whose parameters are one object. */
function oneReadOf(triggers: Pick<TriggerService, "sent">) {
  const reads = new WeakMap<SentParams, ReturnType<TriggerService["sent"]>>();
  return (params: SentParams): ReturnType<TriggerService["sent"]> => {
    const read = reads.get(params) ?? triggers.sent(params.nodeID, params.triggerID);
    reads.set(params, read);
    return read;
  };
}

/** Returns the permissions for an event, most specific first; undefined without an event. */
function rightsTo(event: string | undefined): readonly string[] | undefined {
  if (event === undefined) return undefined;
  return event === CAPTURE_EVENT ? [CAPTURE_PERMISSION] : [`nodes::service:${event}`, "nodes::remote-execute"];
}

/** Returns the forms of each event; an answer without a name of its own is called after its first event. */
function variantsOf(): Readonly<Record<string, Variant>> {
  const named = new Map<z.ZodType, z.ZodType>();
  const examples: Readonly<Record<string, Variant["example"]>> = eventExamples;
  const values = Object.entries<{ readonly body: z.ZodType; readonly result: z.ZodType }>(triggerSchemas)
    .filter(([, { result }]) => result.type !== "never")
    .map(([event, { body, result }]) => {
      const id = `${event.replaceAll(/(?:^|-)([a-z])/g, (_, letter: string) => letter.toUpperCase())}Answer`;
      const answer = named.get(result) ?? (result.meta()?.id === undefined ? result.meta({ id }) : result);
      named.set(result, answer);
      return [event, { body, answer, ...defined({ example: examples[event] }) }] as const;
    });
  return Object.fromEntries(values);
}

/**
 * Checks an event as a node of this version would. With `wait` an unknown event is left to the node.
 * @throws {Violations} for an unknown event or an invalid body
 */
async function checkOrder(
  deps: TriggerRouteDeps,
  node: NodeRecord,
  { event, body, wait }: TriggerRequest,
): Promise<void> {
  const schemas: Readonly<Record<string, { readonly body: z.ZodType }>> = triggerSchemas;
  let schema = Object.hasOwn(schemas, event) ? schemas[event]?.body : undefined;
  if (schema === undefined && (await containerOf(deps, node, event)) !== undefined) schema = ContainerCommand;
  if (schema === undefined) {
    if (wait) return;
    throw new Violations([`event: no trigger event ${event}; with wait=1 the node is asked`]);
  }
  const parsed = schema.safeParse(body);
  if (!parsed.success) throw new Violations(describeIssues(parsed.error));
}

/**
 * Returns the deadline of a trigger, in milliseconds. A container's event may need a pull and the stop timeout; a streamed run takes at
 * most an hour.
 */
async function deadlineOf(
  deps: TriggerRouteDeps,
  node: NodeRecord,
  event: string,
  body: unknown,
  stream: boolean,
): Promise<number> {
  const known = event === DATA_STORE_EVENT ? dataStoreDeadlineMs(body) : DEADLINES_MS.get(event);
  const container = known === undefined ? await containerOf(deps, node, event) : undefined;
  if (stream && LONG_STREAMS.has(event)) return LONGEST_MS;
  if (container === undefined) return stream ? STREAM_DEADLINE_MS : (known ?? DEFAULT_DEADLINE_MS);
  return stream ? LONGEST_MS : Math.min(PULL_MS + stopSecondsOf(container) * SECOND, LONGEST_MS);
}

/** Returns the container of a node that has the event's name. */
async function containerOf(
  deps: TriggerRouteDeps,
  node: NodeRecord,
  event: string,
): Promise<ReturnType<typeof containerNamed>> {
  return node.type === "Agent" ? undefined : containerNamed(await execOf(deps, node), event);
}

/** Responses of the data store and bundles may exceed one message. */
const runOf = ({ event, wait }: TriggerRequest): typeof runInParts =>
  (event === DATA_STORE_EVENT || event === PUSH_LOGS_EVENT) && wait ? runInParts : runForCaller;

/** Runs a trigger for a waiting caller, until its deadline passes or the caller disconnects. */
export async function runForCaller(
  { triggers, clock }: Omit<RunDeps, "joins">,
  uid: string,
  order: TriggerRequest,
  disconnected: AbortSignal,
  hooks: Omit<TriggerOptions, "signal"> = {},
): Promise<unknown> {
  using limit = limitOf(clock, order, disconnected);
  return await triggers.run(uid, order, { ...hooks, signal: limit.signal });
}

/** Runs a trigger whose reply may come in parts. @throws {SessionError} `too-large`, `interrupted`; {InputError} `overloaded` */
export async function runInParts(
  deps: RunDeps,
  uid: string,
  order: TriggerRequest,
  disconnected: AbortSignal,
): Promise<unknown> {
  using join = deps.joins.open(uid);
  const refused = new AbortController();
  const stop = AbortSignal.any([disconnected, refused.signal]);
  try {
    const onProgress = ({ data }: TriggerProgress): void => {
      try {
        join.take(data);
      } catch (error) {
        refused.abort(error);
      }
    };
    const result = await runForCaller(deps, uid, order, stop, { onProgress });
    return join.whole(result);
  } catch (error) {
    // The abort then came from us, not from the caller.
    throw refused.signal.aborted ? toError(refused.signal.reason) : error;
  }
}

/** Responds with the first output, so that a request refused at once has its own status. */
async function streamTrigger(
  { triggers, clock, log }: TriggerRouteDeps,
  uid: string,
  order: TriggerRequest,
  disconnected: AbortSignal,
): Promise<Response> {
  const limit = limitOf(clock, order, disconnected);
  const lines = new LineStream(limit.abort);
  const running = (async () => {
    try {
      const onProgress = ({ seq, kind, data }: TriggerProgress): void => lines.write({ seq, kind, data });
      const result = await triggers.run(uid, order, { signal: limit.signal, onProgress });
      lines.write({ result: result ?? null });
    } catch (error) {
      if (!lines.hasStarted) throw error;
      const { message, code, isFault } = refusalOf(error);
      if (isFault) log.error({ event: order.event, uid, err: toError(error) }, "stream failed");
      lines.write({ error: message, code });
    } finally {
      limit[Symbol.dispose]();
      lines.close();
    }
  })();
  await Promise.race([running, lines.started]);
  // Later failures are lines of the stream.
  running.catch(() => undefined);
  return new Response(lines.readable, { headers: { "content-type": "application/x-ndjson" } });
}

/** Writes objects as JSON lines, with a limit of unread bytes. */
class LineStream {
  readonly readable: ReadableStream<Uint8Array>;
  /** Resolves with the first line. */
  readonly started: Promise<void>;
  hasStarted = false;
  #isOpen = true;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  readonly #start: () => void;
  readonly #stop: (reason: Error) => void;

  constructor(stop: (reason: Error) => void) {
    let start = (): void => undefined;
    this.started = new Promise((resolve) => {
      start = resolve;
    });
    this.#start = start;
    this.#stop = stop;
    this.readable = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        cancel: () => {
          this.#isOpen = false;
          stop(new SessionError("cancelled", "the caller disconnected"));
        },
      },
      new ByteLengthQueuingStrategy({ highWaterMark: MAX_UNREAD_BYTES }),
    );
  }

  write(line: object): void {
    if (!this.#isOpen) return;
    this.#enqueue(line);
    this.hasStarted = true;
    this.#start();
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

/** Limits a trigger: aborts when its caller disconnects or its deadline has passed. */
function limitOf(clock: Clock, { deadlineMs }: TriggerRequest, disconnected: AbortSignal): Limit {
  const controller = new AbortController();
  const abort = (reason: Error): void => controller.abort(reason);
  const stopClock = clock.after(deadlineMs + GRACE_MS, () =>
    abort(new SessionError("timeout", `no answer within ${deadlineMs} ms`)),
  );
  const onDisconnect = (): void =>
    abort(new SessionError("cancelled", "the caller disconnected", { cause: toError(disconnected.reason) }));
  if (disconnected.aborted) onDisconnect();
  else disconnected.addEventListener("abort", onDisconnect, { once: true });
  return {
    signal: controller.signal,
    abort,
    [Symbol.dispose]: () => {
      stopClock();
      disconnected.removeEventListener("abort", onDisconnect);
    },
  };
}
