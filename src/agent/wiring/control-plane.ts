import type { Random } from "../../lib/async/backoff.ts";
import type { Logger } from "pino";
import { InputError, InternalError } from "../../errors.ts";
import { AggregatedLog } from "../../host/aggregated-log.ts";
import { wallTimes, type Clock } from "../../host/clock.ts";
import { valueOf } from "../../host/files/state-file.ts";
import type { Dialler } from "../../host/net/dial.ts";
import type { HttpClient } from "../../host/net/http-client.ts";
import type { Overlay } from "../../host/overlay/client.ts";
import type { Exec } from "../../host/process/exec.ts";
import type { Reader } from "../../host/reader.ts";
import { buildInfo } from "../../lib/build-info.ts";
import { directoriesOf } from "../../lib/text/command-line.ts";
import { IDENTITY_LOST, identityLostFix } from "../../protocol/local/identity-lost.ts";
import type { AcceptedDocuments } from "../applying/accepted-documents.ts";
import type { Applying } from "../applying/applying.ts";
import { Forgeries } from "../faults/forgeries.ts";
import {
  SessionCounter,
  trustOf,
  type IdentityFiles,
  type PrivateKeys,
  type Registration,
} from "../identity/identity.ts";
import type { KnownAddresses } from "../identity/known-addresses.ts";
import { readLicense, register } from "../identity/registration.ts";
import type { LocalProvider } from "../local-api/provider.ts";
import { nodeParty } from "../session/party.ts";
import { Session } from "../session/session.ts";
import { webSocketTransport } from "../session/transport.ts";
import type { AgentSettings } from "../settings.ts";
import { describeDevice } from "../shadow/describe-device.ts";
import type { DesiredDocuments } from "../shadow/desired.ts";
import { DocumentSync } from "../shadow/document-sync.ts";
import type { ShadowReporting } from "../shadow/reporting.ts";
import { signedStreams } from "../streams/signed.ts";
import type { Streams } from "../streams/streams.ts";
import type { EventLog } from "../telemetry/events.ts";
import type { Pusher } from "../telemetry/pusher.ts";
import type { Dispatcher } from "../triggers/execution/dispatch.ts";
import { SignedTriggers } from "../triggers/execution/signed.ts";
import { repositoryUrlOf, watchHealth } from "./health.ts";
import { ManagedNode } from "./managed-node.ts";
import type { AgentSignals } from "./signals.ts";

export interface OpenDocumentSyncOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly http: HttpClient;
  readonly identity: IdentityFiles;
  readonly addresses: Pick<KnownAddresses, "list">;
  readonly documents: DesiredDocuments;
  readonly accepted: AcceptedDocuments;
  readonly events: EventLog;
  readonly signals: Pick<AgentSignals, "registration" | "facts">;
  readonly notSaved: (error: unknown) => void;
}

/** Opens the fetching of documents, and the count of what was not signed by the control plane. */
export function openDocumentSync(options: OpenDocumentSyncOptions): {
  readonly sync: DocumentSync;
  readonly forgeries: Forgeries;
} {
  const { log, identity, addresses, accepted, events, signals, notSaved } = options;
  const forgeries = new Forgeries(events);
  const fetching = { eventType: "Configuration Update Failure", object: "documents" };
  const sync = new DocumentSync({
    ...options,
    log: log.child({ component: "documents" }),
    registration: () => registered(signals),
    knownAddresses: () => addresses.list,
    async saveRegistration(registration) {
      // New keys are used even if the disk refuses them.
      await identity.registration.save(registration).catch(notSaved);
      signals.registration.set(registration);
    },
    trust: () => trustOf(registered(signals)),
    onAccepted: (name, version) => accepted.accepted(name, version),
    onRefused(name, version, error) {
      forgeries.judge(`the ${name} document`, error);
      accepted.refused(name, version, error);
    },
    onHealth(isHealthy, why) {
      if (isHealthy) return events.clear({ ...fetching, message: "The most recent configuration was pulled" });
      const message = `Unexpected error pulling the most recent configuration: ${why}`.slice(0, 1024);
      events.raise({ ...fetching, level: "INFO", message });
    },
    onOverdue: () => signals.facts.set(),
  });
  return { sync, forgeries };
}

export interface OpenControlPlaneOptions extends OpenDocumentSyncOptions {
  readonly settings: AgentSettings;
  readonly stamps: Clock;
  readonly begunAt: number;
  readonly bootId: string;
  readonly reader: Reader;
  readonly exec: Exec;
  readonly dialler: Dialler;
  /** Dials the session. */
  readonly network: { readonly dialler: Dialler };
  readonly overlay: Pick<Overlay, "identify">;
  readonly applying: Applying;
  readonly sync: DocumentSync;
  readonly forgeries: Forgeries;
  readonly reporting: ShadowReporting;
  readonly pusher: Pick<Pusher, "online" | "offline">;
  readonly addresses: KnownAddresses;
  readonly dispatcher: Dispatcher;
  readonly streams: Pick<Streams, "obey">;
  readonly isPersistent: boolean;
  readonly signals: AgentSignals;
  readonly stopping: AbortSignal;
  readonly onFault: (code: string, message: string) => void;
}

export interface ControlPlane extends Pick<LocalProvider, "register" | "activate"> {
  /** Applies the documents, and then connects to the control plane of a registration. */
  manage(registration: Registration): Promise<void>;
}

/**
 * Opens the registration of this node and the session with its control plane.
 * @param stack accepts parts until the agent stops: the session begins with the registration, which may come long after the start.
 */
export function openControlPlane(options: OpenControlPlaneOptions, stack: AsyncDisposableStack): ControlPlane {
  const { settings, clock, log, stamps, reader, exec, http, identity, applying, accepted, signals, stopping } = options;
  const { addresses, documents, sync, forgeries, notSaved } = options;
  const given = directoriesOf(settings);
  const wall = wallTimes(clock);
  const sessionLog = log.child({ component: "session" });
  const trust = () => trustOf(registered(signals));
  const node = new ManagedNode({
    ...options,
    reports: signals.reports,
    triggers: new SignedTriggers({
      clock,
      log: log.child({ component: "triggers" }),
      trust,
      dispatcher: options.dispatcher,
      onRefused: (error) => forgeries.judge("a trigger", error),
    }),
    openStream: signedStreams({
      trust,
      target: () => {
        const { node, controlPlane } = registered(signals);
        return { url: node.session, pins: controlPlane.keys.spki, knownAddresses: addresses.list };
      },
      streams: options.streams,
      onRefused: (error) => forgeries.judge("a stream", error),
    }),
  });
  // Telemetry comes last: a long spool would delay the documents.
  signals.connection.changed((connection) => {
    for (const part of [node, options.pusher]) {
      if (connection === undefined) part.offline();
      else part.online(connection);
    }
  });

  async function connect(registration: Registration, keys: PrivateKeys): Promise<void> {
    const counter = await SessionCounter.open(identity.counter, () => stamps.now(), notSaved);
    signals.isWritable.changed((isWritable) => {
      if (isWritable) void counter.keep();
    });
    const party = await nodeParty({
      ...options,
      counter,
      keys,
      registration: () => registered(signals),
      version: buildInfo.version,
      have: () => ({
        keys: registered(signals).controlPlane.keys.version,
        node: documents.newest("node"),
        cluster: documents.newest("cluster"),
        domain: documents.newest("domain"),
      }),
      reportedVersion: () => options.reporting.version,
      refreshKeys: (rpc, signal) => sync.refreshKeys(rpc, signal),
      onForgery: (what, error) => forgeries.note(what, error),
    });
    const session = new Session({
      ...options,
      log: sessionLog,
      mistakes: new AggregatedLog(sessionLog, clock),
      open: webSocketTransport(options.network.dialler, clock, () => stamps.now()),
      party,
      handlers: (connection) => node.handlers(connection),
      onOnline: (connection) => signals.connection.set(connection),
      onOffline: () => signals.connection.set(undefined),
      onDeleted: () => accepted.setDeleted(true),
    });
    stack.defer(() => session.close());
    signals.session.set(session);
    const health = watchHealth({
      ...options,
      sessionUrl: registration.node.session,
      repositoryUrl: repositoryUrlOf(registration, settings),
      pins: () => registered(signals).controlPlane.keys.spki,
      onResults: () => signals.facts.set(),
    });
    stack.defer(() => health.close());
    signals.health.set(health);
    stack.defer(signals.connection.changed((connection) => connection !== undefined && health.sessionOpened()));
    accepted.apply();
    await applying.enforced(stopping);
    if (!stopping.aborted) session.start();
  }

  async function manage(registration: Registration): Promise<void> {
    signals.registration.set(registration);
    const keys = valueOf(await identity.keys.load());
    if (keys !== undefined) {
      void options.overlay.identify({ uid: registration.node.uid, key: keys.overlay }, stopping).catch(notSaved);
      return connect(registration, keys);
    }
    signals.session.set(sessionWithoutKeys(() => wall.of(options.begunAt)));
    options.onFault(IDENTITY_LOST.code, `${IDENTITY_LOST.message}; ${identityLostFix(given)}`);
    accepted.apply();
  }

  function requirePersistence(): void {
    if (!options.isPersistent) throw new InputError("storage-unavailable", `${settings.stateDir} cannot be written`);
  }

  return {
    manage,
    async register(license) {
      const { type } = readLicense(license.trim());
      requirePersistence();
      const device = () => describeDevice(type, { reader, clock, exec }, stopping);
      const registration = await register(license, { files: identity, http, device, given }, stopping);
      await manage(registration);
      return registration.node;
    },
    async activate(request) {
      requirePersistence();
      const device = () => describeDevice("Node", { reader, clock, exec }, stopping);
      const { askForLicense } = await import("../identity/activation.ts");
      return askForLicense(request, { files: identity, http, device, given, clock }, stopping);
    },
  };
}

function registered({ registration }: Pick<AgentSignals, "registration">): Registration {
  if (registration.current === undefined) throw new InternalError("internal", "the node is not registered");
  return registration.current;
}

/** The session of a node that has lost its private keys and cannot connect. `since` returns Unix milliseconds. */
function sessionWithoutKeys(since: () => number): NonNullable<AgentSignals["session"]["current"]> {
  return {
    overdueMs: 0,
    wake: () => undefined,
    status: () => ({ state: "stopped", since: since(), attempt: 0, reason: IDENTITY_LOST }),
  };
}
