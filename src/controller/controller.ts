import { getRequestListener } from "@hono/node-server";
import { randomUUID } from "node:crypto";
import { createServer as createHttpServer, type Server } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { importJWK, type CryptoKey } from "jose";
import { join, resolve } from "node:path";
import type { Logger } from "pino";
import { HostError, InputError, InternalError, toError } from "../errors.ts";
import { systemClock, type Clock } from "../host/clock.ts";
import { storageError } from "../host/files/database.ts";
import { hostFiles, type Files } from "../host/files/files.ts";
import { releaseFiles, type ReleaseFiles } from "../host/releases/release-files.ts";
import { buildInfo } from "../lib/build-info.ts";
import { STREAM_PATH } from "../protocol/channel/envelope.ts";
import type { Ed25519PublicKey } from "../protocol/values/keys.ts";
import type { KeysEnvelope } from "../protocol/channel/keys-chain.ts";
import { createApi } from "./http/api.ts";
import { ReplyJoins } from "./triggers/reply-joins.ts";
import { TERMINAL_PATH } from "./containers/terminal-routes.ts";
import { jwtIssuer } from "./http/tokens.ts";
import { AGENT_PREFIX, AgentRoutes } from "./channel/agent-routes.ts";
import { Activations } from "./nodes/activations/service.ts";
import { AgentTokens } from "./access/agent-tokens/service.ts";
import { Announcer } from "./channel/announcer.ts";
import { Awaiting } from "./channel/awaiting.ts";
import { ConnectionLimits } from "./channel/connection-limits.ts";
import { documents as documentsOf } from "./channel/documents/documents.ts";
import { SessionUpgrades } from "./channel/session-upgrades.ts";
import { Greeter } from "./channel/greeter.ts";
import { FailureLimiter } from "./http/failure-limiter.ts";
import { pathOf } from "./channel/http-io.ts";
import { nodeHandlers } from "./channel/node-methods.ts";
import { Refusals } from "./channel/refusals.ts";
import { checkPort, closeServer, listen, SERVER_OPTIONS, TLS_OPTIONS } from "./channel/server.ts";
import { Sessions } from "./channel/sessions.ts";
import { sourcesOf, type Source } from "./http/sources.ts";
import { SpeedTest } from "./channel/speed-test.ts";
import { telemetryIntake } from "./channel/telemetry-intake.ts";
import { StreamUpgrades } from "./channel/stream-upgrades.ts";
import { Streams } from "./channel/streams.ts";
import { Tickets } from "./channel/tickets.ts";
import { Triggers } from "./channel/triggers.ts";
import { eventLog } from "./events/service.ts";
import { FleetService } from "./fleet-service.ts";
import { ensureAdminKey } from "./access/admin-key.ts";
import { loadControlKeys, type ControlKeys } from "./channel/keys/control-keys.ts";
import { keyStore } from "./channel/keys/key-store.ts";
import { speedTestTokens as speedTestTokensOf, type SpeedTestTokens } from "./channel/keys/speed-test-tokens.ts";
import { volumeKeys as volumeKeysOf, type VolumeKeys } from "./channel/keys/volume-keys.ts";
import { fileCertificate, selfSignedCertificate, type ServerCertificate } from "./channel/keys/tls-certificate.ts";
import {
  controllerSettings,
  registryHostOf,
  tlsModeOf,
  type ControllerSettings,
  type ControllerSettingsInput,
} from "./settings.ts";
import { httpRegistry, type Registry } from "./registry/registry.ts";
import {
  REGISTRY_SERVICE,
  registryTokens as registryTokensOf,
  type RegistryTokens,
} from "./registry/registry-tokens.ts";
import { ADMIN_POLICY } from "./access/policies/policy.ts";
import { AccessStore } from "./access/store.ts";
import { openStore, type Store } from "./stores.ts";

export interface ControllerOptions extends ControllerSettingsInput {
  readonly log: Logger;
  readonly clock?: Clock;
}

/** A running controller. */
export interface Controller {
  /** Origin named in licenses: the public URL if set, otherwise the listening address. */
  readonly url: string;
  readonly fleet: FleetService;
  /** Path of the operator's API key file. */
  readonly adminKeyPath: string;
  /** Checks that the store responds. @throws the store's error */
  check(): void;
  close(): Promise<void>;
}

const SWEEP_MS = 5000;
const PRUNE_MS = 3_600_000;

/**
 * Starts a controller and resolves once it serves.
 * @throws {InputError} `invalid-settings`; {HostError} if its state, a key, a certificate or the port is unavailable
 */
export async function startController(options: ControllerOptions): Promise<Controller> {
  const { log, clock = systemClock(), ...input } = options;
  const settings = controllerSettings(input);
  const files = hostFiles();
  const dataDir = resolve(settings.dataDir);
  // Checks that change nothing come first: an address in use, missing TLS files.
  await checkPort(settings.listen.host, settings.listen.port);
  const given = await givenCertificate(files, settings);
  const releases = settings.releasesDir === undefined ? undefined : await releaseFiles(settings.releasesDir, clock);
  const directories = [dataDir, join(dataDir, "keys"), join(dataDir, "tls")];
  for (const directory of directories) await files.makeDirectory(directory, 0o700);
  const databasePath = join(dataDir, "controller.db");
  const store = openStore(databasePath, (await files.list(join(dataDir, "keys"))).length > 0);
  try {
    if (!store.isPersistent) throw new HostError("storage-unavailable", `${databasePath} cannot be written`);
    for (const directory of directories) await files.sweep(directory);
    const certificate = given ?? (await ownCertificate(files, dataDir, settings, clock));
    const keys = await loadControlKeys(keyStore(files, join(dataDir, "keys")), ledgerOf(store), {
      spki: pinsOf(settings, certificate),
      nowSeconds: Math.floor(clock.now() / 1000),
    });
    const admin = await ensureAdminKey(files, dataDir, {
      get: () => store.meta.get("admin-key-hash"),
      set: (hash) => store.meta.set("admin-key-hash", hash),
    });
    if (admin.isNew) log.info({ path: admin.path }, "created the operator's API key");
    const access = new AccessStore(store.sql);
    access.putApiKey("admin", Buffer.from(admin.hash, "base64url").toString("hex"), [ADMIN_POLICY]);
    const tokens = await speedTestTokensOf(files, join(dataDir, "keys", "speed-test.key"));
    const volumeKeys = await volumeKeysOf(files, join(dataDir, "keys", "volumes.key"));
    const registryTokens = await registryTokensFor(files, dataDir, settings, clock);
    const apiTokenKey = await verificationKey(keys.apiToken.publicKey);
    const identity = identityOf(store, settings);
    const server =
      certificate === undefined
        ? createHttpServer(SERVER_OPTIONS)
        : createHttpsServer({ ...TLS_OPTIONS, ...certificate });
    const port = await listen(server, settings.listen.host, settings.listen.port);
    const origin = originOf(settings, port, certificate !== undefined);
    try {
      return assemble({
        settings,
        log,
        clock,
        store,
        certificate,
        keys,
        server,
        origin,
        identity,
        admin,
        access,
        apiTokenKey,
        speedTestTokens: tokens,
        registryTokens,
        volumeKeys,
        releases,
      });
    } catch (error) {
      server.close();
      throw error;
    }
  } catch (error) {
    store.close();
    const refused = storageError(error);
    throw refused === undefined
      ? error
      : new HostError(refused.code, `${databasePath}: ${refused.message}`, { cause: error });
  }
}

interface Parts {
  readonly settings: ControllerSettings;
  readonly log: Logger;
  readonly clock: Clock;
  readonly store: Store;
  readonly certificate: ServerCertificate | undefined;
  readonly keys: ControlKeys;
  readonly server: Server;
  readonly origin: string;
  readonly identity: { readonly org: string; readonly domain: string };
  readonly admin: { readonly hash: string; readonly path: string };
  readonly access: AccessStore;
  readonly apiTokenKey: CryptoKey;
  readonly speedTestTokens: SpeedTestTokens;
  readonly registryTokens: RegistryTokens | undefined;
  readonly volumeKeys: VolumeKeys;
  readonly releases: ReleaseFiles | undefined;
}

/** Wires all parts. Runs synchronously after the port is open, so that no request arrives before its listener. */
function assemble({
  settings,
  log,
  clock,
  store,
  certificate,
  keys,
  server,
  origin,
  identity,
  admin,
  access,
  apiTokenKey,
  speedTestTokens,
  registryTokens,
  volumeKeys,
  releases,
}: Parts): Controller {
  const { heartbeatSeconds, maxSessions } = settings;
  const tlsPins = pinsOf(settings, certificate);
  const registryHost = registryHostOf(settings);
  const channelLog = log.child({ component: "channel" });
  const base = { store, clock, keys, origin };

  const events = eventLog(store, clock, identity);
  const refusals = new Refusals({ store, events, clock, log: channelLog });
  const documents = documentsOf({ ...base, events, speedTestTokens, registryHost });
  const sessions = new Sessions({ store, events, clock, heartbeatSeconds });
  const awaiting = new Awaiting({ store, events, clock, sessions });
  const announcer = new Announcer({ sessions, documents, clock });
  const triggers = new Triggers({ ...base, sessions, log: channelLog });
  const streams = new Streams({ ...base, sessions });
  const tickets = new Tickets(clock);
  const telemetry = telemetryIntake({ store, events, refusals, clock, log: channelLog });
  const methods = { store, documents, tickets, triggers, telemetry, clock, registryTokens, registryHost, volumeKeys };
  const greeter = new Greeter({
    ...base,
    sessions,
    documents,
    triggers,
    streams,
    announcer,
    awaiting,
    events,
    refusals,
    tlsPins,
    heartbeatSeconds,
    maxSessions,
    log: channelLog,
    handlers: (session) => nodeHandlers(methods, session),
  });
  const sources = sourcesOf({ trustedProxies: settings.trustedProxies, hasFrontEnd: settings.frontPins.length > 0 });
  const connections = new ConnectionLimits(server, { maxSessions, sources });
  // Both issue licenses through the fleet, which is built below.
  const activations = new Activations({ clock, origin, issue: (request) => fleet.issueLicense(request) });
  const agentTokens = new AgentTokens({ ...base, access, issue: (request) => fleet.issueLicense(request) });
  const sessionUpgrades = new SessionUpgrades(greeter, clock, connections, sources);
  const routes = new AgentRoutes({
    ...base,
    sessions,
    documents,
    announcer,
    awaiting,
    tickets,
    events,
    speedTest: new SpeedTest(store, speedTestTokens),
    refusals,
    sources,
    activations,
    agentTokens,
    log: channelLog,
  });
  const fleet = new FleetService({
    ...base,
    ...identity,
    areAddressesHidden: sources.areHidden,
    isFrontEnd: (address) => sources.isFrontEnd(address),
    events,
    documents,
    sessions,
    triggers,
    streams,
    announcer,
    awaiting,
    log: channelLog,
  });

  // The HTTP API serves every path outside the nodes' own.
  const failures = new FailureLimiter(clock);
  const onAuthFailure = ({ address, prefix }: Source): number | undefined => {
    failures.failed(prefix);
    refusals.note("authentication", { address, message: "invalid credentials" });
    return failures.waitSeconds(prefix);
  };
  const api = createApi({
    onAuthFailure,
    ...store,
    fleet,
    joins: new ReplyJoins(),
    activations,
    agentTokens,
    onWrongCode: (user, { address }) =>
      refusals.note("activation", { address, message: `${user} entered an unknown activation code` }),
    access,
    tokens: jwtIssuer({ origin, privateKey: keys.apiToken.privateKey, publicKey: apiTokenKey, clock }),
    registry: registryOf(settings, registryTokens),
    registryTokens,
    registryHost,
    releases,
    ...identity,
    version: buildInfo.version,
    clock,
    log: log.child({ component: "api" }),
  });
  const serveApi = getRequestListener((request, { incoming }) => api.fetch(request, { source: sources.of(incoming) }), {
    overrideGlobalObjects: false,
  });

  documents.refresh(store.nodes.uids());
  const streamUpgrades = new StreamUpgrades({
    streams,
    clock,
    connections,
    sources,
    api: async (request, upgrade, source) => api.fetch(request, { upgrade, source }),
  });
  server.on("upgrade", (request, stream, head) => {
    const path = pathOf(request);
    if (path === STREAM_PATH) streamUpgrades.fromNode(request, stream, head);
    else if (TERMINAL_PATH.test(path)) void streamUpgrades.fromCaller(request, stream, head);
    else sessionUpgrades.upgrade(request, stream, head);
  });
  server.on("request", (request, response) => {
    if (pathOf(request).startsWith(AGENT_PREFIX)) void routes.handle(request, response);
    else void serveApi(request, response);
  });
  const sweep = (): void => {
    refusals.sweep();
    sessions.sweep();
    awaiting.sweep();
  };
  const stopSweeping = every(clock, SWEEP_MS, sweep, log);
  const stopPruning = every(clock, PRUNE_MS, () => store.prune(clock.now() / 1000), log);
  log.info({ url: origin, org: identity.org, domain: identity.domain }, "controller serves");

  return {
    url: origin,
    fleet,
    adminKeyPath: admin.path,
    check: () => void store.meta.get("admin-key-hash"),
    async close() {
      sessionUpgrades.close();
      stopSweeping();
      stopPruning();
      announcer.close();
      triggers.close();
      streams.close();
      sessions.close();
      await closeServer(server, clock);
      store.close();
    },
  };
}

async function givenCertificate(files: Files, settings: ControllerSettings): Promise<ServerCertificate | undefined> {
  if (tlsModeOf(settings) !== "files") return undefined;
  return fileCertificate(files, resolve(settings.tlsCert ?? ""), resolve(settings.tlsKey ?? ""));
}

async function ownCertificate(
  files: Files,
  dataDir: string,
  settings: ControllerSettings,
  clock: Clock,
): Promise<ServerCertificate | undefined> {
  if (tlsModeOf(settings) !== "self") return undefined;
  const publicHost = settings.publicUrl === undefined ? [] : [new URL(settings.publicUrl).hostname];
  const hosts = [...new Set([...publicHost, settings.listen.host])].map((host) => host.replace(/^\[|\]$/g, ""));
  return selfSignedCertificate(files, join(dataDir, "tls"), hosts, clock.now());
}

/** Loads or creates the token key of the registry; the registry uses `<data>/registry/cert.pem` as its `rootcertbundle`. */
async function registryTokensFor(
  files: Files,
  dataDir: string,
  { registryUrl }: ControllerSettings,
  clock: Clock,
): Promise<RegistryTokens | undefined> {
  if (registryUrl === undefined) return undefined;
  const directory = join(dataDir, "registry");
  await files.makeDirectory(directory, 0o700);
  const pair = await selfSignedCertificate(files, directory, [REGISTRY_SERVICE], clock.now());
  return registryTokensOf({ ...pair, clock });
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

/** Returns the hashes of all TLS keys that nodes may see. */
function pinsOf({ frontPins }: ControllerSettings, certificate: ServerCertificate | undefined): readonly string[] {
  return [...new Set([...frontPins, ...(certificate === undefined ? [] : [certificate.pin])])];
}

async function verificationKey(key: Ed25519PublicKey): Promise<CryptoKey> {
  const imported = await importJWK(key, "EdDSA");
  if (imported instanceof Uint8Array) throw new InternalError("internal", "an Ed25519 key cannot be symmetric");
  return imported;
}

function ledgerOf(store: Store) {
  return {
    all: () => store.meta.keyDocuments(),
    append: (version: number, envelope: KeysEnvelope) => store.meta.appendKeyDocument(version, envelope),
  };
}

/** Returns the organization and domain, fixed at the first start: every node's name and license contains them. */
function identityOf(store: Store, settings: ControllerSettings): { readonly org: string; readonly domain: string } {
  const org = store.meta.get("org") ?? randomUUID();
  const stored = store.meta.get("domain");
  if (stored !== undefined && settings.domain !== undefined && stored !== settings.domain) {
    throw new InputError("invalid-settings", `--domain: this controller's domain is ${stored} and cannot change`);
  }
  const domain = stored ?? settings.domain ?? "holdfast.example";
  store.atomic(() => {
    store.meta.set("org", org);
    store.meta.set("domain", domain);
  });
  return { org, domain };
}

function originOf({ publicUrl, listen: { host } }: ControllerSettings, port: number, isTls: boolean): string {
  return publicUrl ?? `http${isTls ? "s" : ""}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

function every(clock: Clock, ms: number, run: () => void, log: Logger): () => void {
  let cancel = (): void => undefined;
  const arm = (): void => {
    cancel = clock.after(ms, () => {
      try {
        run();
      } catch (error) {
        log.error({ err: toError(error) }, "housekeeping failed");
      }
      arm();
    });
  };
  arm();
  return () => cancel();
}
