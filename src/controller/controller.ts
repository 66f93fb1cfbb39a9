import { getRequestListener } from "@hono/node-server";
import { createServer as createHttpServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { Duplex } from "node:stream";
import type { Logger } from "pino";
import { HostError, toError } from "../errors.ts";
import { systemClock, type Clock } from "../host/clock.ts";
import { KeyedQueue } from "../lib/async/keyed-queue.ts";
import { buildInfo } from "../lib/build-info.ts";
import { STREAM_PATH } from "../protocol/channel/envelope.ts";
import { AgentTokens } from "./access/agent-tokens/service.ts";
import { AGENT_PREFIX, AgentRoutes } from "./channel/agent-routes.ts";
import { Announcer } from "./channel/announcer.ts";
import { Awaiting } from "./channel/awaiting.ts";
import { DocumentChanges } from "./channel/changes.ts";
import { ConnectionLimits } from "./channel/connection-limits.ts";
import { dismissal } from "./channel/deletion.ts";
import { documents as documentsOf } from "./channel/documents/documents.ts";
import { Greeter } from "./channel/greeter.ts";
import { pathOf } from "./channel/http-io.ts";
import type { ServerCertificate } from "./channel/keys/tls-certificate.ts";
import { nodeHandlers } from "./channel/node-methods.ts";
import { Refusals } from "./channel/refusals.ts";
import { checkPort, closeServer, listen, SERVER_OPTIONS, TLS_OPTIONS } from "./channel/server.ts";
import { SessionUpgrades } from "./channel/session-upgrades.ts";
import { Sessions, withheldNodes } from "./channel/sessions.ts";
import { SpeedTest } from "./channel/speed-test.ts";
import { StreamUpgrades } from "./channel/stream-upgrades.ts";
import { Streams } from "./channel/streams.ts";
import { telemetryIntake } from "./channel/telemetry-intake.ts";
import { Tickets } from "./channel/tickets.ts";
import { Triggers } from "./channel/triggers.ts";
import { Certificates } from "./certificates/service.ts";
import { ClusterService } from "./clusters/service.ts";
import { ConfigService } from "./config/service.ts";
import { TERMINAL_PATH } from "./containers/terminal-routes.ts";
import { Terminals } from "./containers/terminals.ts";
import { Alerts } from "./events/alerts.ts";
import { Authentications } from "./events/authentications.ts";
import { eventLog, type EventLog } from "./events/service.ts";
import { createApi } from "./http/api.ts";
import { MachineVolumes } from "./images/volumes.ts";
import { Images } from "./images/service.ts";
import { FailureLimiter } from "./http/failure-limiter.ts";
import { mockApi } from "./http/mock.ts";
import { RequestScope, sourcesOf, type Source } from "./http/sources.ts";
import { jwtIssuer } from "./http/tokens.ts";
import { Activations } from "./nodes/activations/service.ts";
import { releaseIdentity } from "./nodes/held-identity.ts";
import { Licenses } from "./nodes/licenses.ts";
import { NodeService } from "./nodes/service.ts";
import { Organization } from "./org/service.ts";
import { httpRegistry, type Registry } from "./registry/registry.ts";
import type { RegistryTokens } from "./registry/registry-tokens.ts";
import { apiRoutes } from "./routes.ts";
import {
  controllerSettings,
  registryHostOf,
  type ControllerSettings,
  type ControllerSettingsInput,
} from "./settings.ts";
import { databasePathOf, openState, type StateDeps } from "./state.ts";
import type { TelemetryStore } from "./stats/telemetry-store.ts";
import { storePulse } from "./store/pulse.ts";
import { ReplyJoins } from "./triggers/reply-joins.ts";
import { TriggerService } from "./triggers/service.ts";

export interface ControllerOptions extends ControllerSettingsInput {
  readonly log: Logger;
  readonly clock?: Clock;
  /** Called once if another controller has taken the PostgreSQL store over, so that this one must end. */
  readonly onTakenOver?: (error: HostError) => void;
}

/** The services of the areas. */
export interface Services {
  readonly nodes: NodeService;
  readonly licenses: Licenses;
  readonly clusters: ClusterService;
  readonly config: ConfigService;
  readonly triggers: TriggerService;
  readonly terminals: Terminals;
  readonly events: EventLog;
  readonly alerts: Alerts;
  readonly telemetry: Pick<TelemetryStore, "metrics">;
}

/** A running controller. */
export interface Controller extends Services {
  /** Origin named in licenses: the public URL if set, otherwise the listening address. */
  readonly url: string;
  /** Path of the operator's API key file. */
  readonly adminKeyPath: string;
  /** Returns the reason if a component does not respond. */
  check(): string | undefined;
  close(): Promise<void>;
}

const SWEEP_MS = 5000;
const PRUNE_MS = 3_600_000;
const GEO_MS = 60_000;

/**
 * Starts a controller and resolves once it serves.
 * @throws {InputError} `invalid-settings`; {HostError} if its state, a key, a certificate or the port is unavailable
 */
export async function startController(options: ControllerOptions): Promise<Controller> {
  const { log, clock = systemClock(), onTakenOver = () => undefined, ...input } = options;
  const settings = controllerSettings(input);
  // Checked first, before anything is created.
  await checkPort(settings.listen.host, settings.listen.port);
  try {
    return await open(settings, { log, clock, onTakenOver });
  } catch (error) {
    if (!(error instanceof HostError) || error.code !== "storage-unavailable") throw error;
    throw new HostError(error.code, `${databasePathOf(settings)}: ${error.message}`, { cause: error });
  }
}

/** Opens all parts, each above those that it uses; they close in the reverse order. */
async function open(settings: ControllerSettings, deps: StateDeps): Promise<Controller> {
  const { log, clock } = deps;
  await using stack = new AsyncDisposableStack();
  const state = await openState(settings, deps, stack);
  const { store, keys, identity, speedTestTokens, registryTokens, volumeKeys, tlsPins } = state;
  const { heartbeatSeconds, maxSessions } = settings;
  const registryHost = registryHostOf(settings);
  const withheld = await withheldNodes(store, clock);
  const server = stack.adopt(serverFor(state.certificate), (opened) => closeServer(opened, clock));
  const port = await listen(server, settings.listen.host, settings.listen.port);
  // Nothing below waits before the listeners are there.
  const origin = originOf(settings, port, state.certificate !== undefined);
  const base = { store, clock, keys, origin };
  const requests = new RequestScope();
  const events = eventLog(store, clock, identity, requests);

  // Admission: what lets machines in.
  const licenses = new Licenses({ ...base, ...identity, events });
  const activations = new Activations({ clock, origin, issue: (request) => licenses.issue(request) });
  const agentTokens = new AgentTokens({ ...base, events, issue: (tx, request) => licenses.issueIn(tx, request) });

  // The channel: nodes' sessions, and what goes through them.
  const channelLog = log.child({ component: "channel" });
  const sources = sourcesOf({ trustedProxies: settings.trustedProxies, hasFrontEnd: settings.frontPins.length > 0 });
  const connections = new ConnectionLimits(server, { maxSessions, sources });
  const turns = new KeyedQueue();
  const refusals = stack.adopt(new Refusals({ store, events, clock, log: channelLog }), (opened) => opened.close());
  const documents = documentsOf({ ...base, events, speedTestTokens, registryHost });
  const sessions = stack.adopt(
    new Sessions({ store, events, turns, clock, heartbeatSeconds, withheld, log: channelLog }),
    (opened) => opened.close(),
  );
  const streams = stack.adopt(new Streams({ ...base, sessions }), (opened) => opened.close());
  const runs = stack.adopt(new Triggers({ ...base, sessions, log: channelLog }), (opened) => opened.close());
  const announcer = stack.adopt(new Announcer({ sessions, documents, clock }), (opened) => opened.close());
  const awaiting = new Awaiting({ store, events, turns, clock, sessions });
  const changes = new DocumentChanges({ store, documents, announcer, sessions, awaiting });
  const tickets = new Tickets(clock);
  const telemetry = telemetryIntake({ store, events, refusals, clock, log: channelLog });
  const methods = {
    store,
    documents,
    tickets,
    triggers: runs,
    telemetry,
    turns,
    clock,
    registryTokens,
    registryHost,
    volumeKeys,
  };
  const greeter = new Greeter({
    ...base,
    sessions,
    documents,
    triggers: runs,
    streams,
    announcer,
    awaiting,
    events,
    refusals,
    turns,
    tlsPins,
    heartbeatSeconds,
    maxSessions,
    log: channelLog,
    handlers: (session) => nodeHandlers(methods, session),
  });

  // The areas' services.
  const dismiss = dismissal({ ...base, sessions, triggers: runs, turns });
  const nodes = new NodeService({
    ...base,
    events,
    changes,
    sessions,
    dismiss,
    sources,
    turns,
    locations: state.locations,
    keyForm: settings.nodeKeys,
  });
  const clusters = new ClusterService({ ...base, ...identity, events, changes });
  const services: Services = {
    nodes,
    licenses,
    clusters,
    config: new ConfigService({ nodes, clusters, clock }),
    triggers: new TriggerService({
      store,
      nodes,
      events,
      sessions,
      expect: (uid, reason) => awaiting.expect(store, uid, reason),
      send: (uid, request, options) => runs.run(uid, request, options),
    }),
    terminals: new Terminals({ store, nodes, events, streams, log: channelLog }),
    events,
    alerts: new Alerts({
      store,
      events,
      clock,
      identities: { release: releaseIdentity, resume: (uid) => changes.announceAll(uid) },
    }),
    telemetry: store.telemetry,
  };

  const certificates = new Certificates({
    store,
    events,
    clock,
    own: state.certificate && { cert: state.certificate.cert, host: new URL(origin).hostname },
  });

  // The HTTP API, which serves every path outside the nodes' own.
  const apiLog = log.child({ component: "api" });
  const { privateKey } = keys.apiToken;
  const tokens = jwtIssuer({ origin, privateKey, publicKey: state.apiTokenKey, clock });
  const routes = apiRoutes({
    ...store,
    store,
    ...services,
    images: new Images({ store, events }),
    machineVolumes: new MachineVolumes({ store, events }),
    certificates,
    organization: new Organization({ store, events, domain: identity.domain }),
    ...identity,
    activations,
    agentTokens,
    secretOverlapSeconds: settings.secretOverlapSeconds,
    tokens,
    registryTokens,
    registryHost,
    clock,
    log: apiLog,
    registry: registryOf(settings, registryTokens),
    releases: state.releases,
    joins: new ReplyJoins(),
    onWrongCode: (user, { address }) =>
      refusals.note("activation", { address, message: `${user} entered an unknown activation code` }),
    version: buildInfo.version,
    checkStore: () => store.check(),
  });
  const failures = new FailureLimiter(clock);
  const authentications = stack.adopt(new Authentications({ ...store, clock, log: apiLog }), (opened) =>
    opened.close(),
  );
  const onAuthenticated = (user: string, source: Source): void => authentications.succeeded(user, source);
  const onAuthFailure = (source: Source): number | undefined => {
    const { address, prefix } = source;
    failures.failed(prefix);
    refusals.note("authentication", { address, message: "invalid credentials" });
    authentications.failed(source);
    return failures.waitSeconds(prefix);
  };
  const served = settings.isMock ? mockApi(routes, buildInfo.version) : { routes, access: store.access, tokens };
  const api = createApi({
    ...served,
    resourceTags: store.resourceTags,
    requests,
    onAuthenticated,
    onAuthFailure,
    clock,
    log: apiLog,
  });

  const stopSweeping = every(clock, log, SWEEP_MS, async () => {
    refusals.sweep();
    await sessions.sweep();
    await awaiting.sweep();
  });
  stack.defer(stopSweeping);
  const { locations } = state;
  if (locations !== undefined) stack.defer(every(clock, log, GEO_MS, () => locations.refresh()));
  const maintain = async (): Promise<void> => {
    await store.prune(clock.now() / 1000);
    await certificates.report();
  };
  stack.defer(every(clock, log, PRUNE_MS, maintain));

  // What arrives at the port, once the documents are those of this version and these settings.
  const ready = changes.apply(async (tx) => ({ uids: await tx.nodes.uids(), result: undefined }));
  const agentRoutes = new AgentRoutes({
    ...base,
    sessions,
    documents,
    announcer,
    awaiting,
    tickets,
    events,
    refusals,
    turns,
    sources,
    activations,
    agentTokens,
    speedTest: new SpeedTest(store, speedTestTokens),
    log: channelLog,
  });
  const serveApi = getRequestListener((request, { incoming }) => api.fetch(request, { source: sources.of(incoming) }), {
    overrideGlobalObjects: false,
  });
  const streamUpgrades = new StreamUpgrades({
    streams,
    clock,
    connections,
    sources,
    api: async (request, upgrade, source) => api.fetch(request, { upgrade, source }),
  });
  const sessionUpgrades = stack.adopt(new SessionUpgrades(greeter, clock, connections, sources), (opened) =>
    opened.close(),
  );
  const upgrade = (request: IncomingMessage, stream: Duplex, head: Buffer): void => {
    const path = pathOf(request);
    if (path === STREAM_PATH) streamUpgrades.fromNode(request, stream, head);
    else if (TERMINAL_PATH.test(path)) void streamUpgrades.fromCaller(request, stream, head);
    else sessionUpgrades.upgrade(request, stream, head);
  };
  const serve = (request: IncomingMessage, response: ServerResponse): void => {
    if (pathOf(request).startsWith(AGENT_PREFIX)) void agentRoutes.handle(request, response);
    else void serveApi(request, response);
  };
  // Requests that arrive before are held; if the documents fail, the server closes.
  const ignore = (): void => undefined;
  server.on("upgrade", (request, stream, head) => {
    stream.on("error", ignore);
    ready.then(() => upgrade(request, stream.off("error", ignore), head), ignore);
  });
  server.on("request", (request, response) => void ready.then(() => serve(request, response), ignore));
  await ready;
  await certificates.report();
  log.info({ url: origin, ...identity }, "controller serves");

  const running = stack.move();
  return {
    ...services,
    url: origin,
    adminKeyPath: state.adminKeyPath,
    check: storePulse(store, clock),
    close: () => running.disposeAsync(),
  };
}

function serverFor(certificate: ServerCertificate | undefined): Server {
  if (certificate === undefined) return createHttpServer(SERVER_OPTIONS);
  return createHttpsServer({ ...TLS_OPTIONS, ...certificate });
}

function registryOf(settings: ControllerSettings, tokens: RegistryTokens | undefined): Registry | undefined {
  const { registryUrl: url } = settings;
  const host = registryHostOf(settings);
  if (tokens === undefined || url === undefined || host === undefined) return undefined;
  return httpRegistry({
    url,
    host,
    token: async (access) => (await tokens.issue("holdfast-controller", access)).token,
  });
}

function originOf({ publicUrl, listen: { host } }: ControllerSettings, port: number, isTls: boolean): string {
  return publicUrl ?? `http${isTls ? "s" : ""}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** Runs housekeeping at an interval, whose failures are logged. Returns what stops it, and waits for the end of a run. */
function every(clock: Clock, log: Logger, ms: number, run: () => Promise<void>): () => Promise<void> {
  let isStopped = false;
  let cancel = (): void => undefined;
  let running = Promise.resolve();
  const runOnce = async (): Promise<void> => {
    try {
      await run();
    } catch (error) {
      log.error({ err: toError(error) }, "housekeeping failed");
    }
    arm();
  };
  const arm = (): void => {
    if (isStopped) return;
    cancel = clock.after(ms, () => {
      running = runOnce();
    });
  };
  arm();
  return () => {
    isStopped = true;
    cancel();
    return running;
  };
}
