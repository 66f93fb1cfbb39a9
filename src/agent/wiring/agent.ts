import { InputError, toError } from "../../errors.ts";
import { AggregatedLog } from "../../host/aggregated-log.ts";
import { wallTimes } from "../../host/clock.ts";
import { hostDialler } from "../../host/net/dial.ts";
import { hostExec } from "../../host/process/exec.ts";
import { hostPower } from "../../host/process/power.ts";
import { captureExec } from "../../host/process/privileged-exec.ts";
import { hostHttpClient } from "../../host/net/http-client.ts";
import { valueOf } from "../../host/files/state-file.ts";
import { recycleLog } from "../../host/files/database.ts";
import { resolveSet, systemResolve } from "../../host/net/system-resolve.ts";
import { parseBootId } from "../../host/proc.ts";
import { diskReserve, filesWithReserve, type Reserve } from "../../host/files/reserve.ts";
import { directoriesOf } from "../../lib/text/command-line.ts";
import { buildInfo, packageVersion } from "../../lib/build-info.ts";
import type { Agent, AgentOptions } from "./options.ts";
import { Applying } from "../applying/applying.ts";
import { gatherStatus } from "./gather-status.ts";
import { identityFiles, SessionCounter, type Registration } from "../identity/identity.ts";
import { openKnownTime, reportClock } from "../telemetry/known-time.ts";
import { KnownAddresses } from "../identity/known-addresses.ts";
import { nodeParty } from "../session/party.ts";
import { readLicense, register } from "../identity/registration.ts";
import { readLastGood } from "../applying/last-good.ts";
import { checkLocalApi } from "../local-api/server.ts";
import { listSections, OVERLAY_SECTIONS } from "./sections.ts";
import { localProvider } from "./local-provider.ts";
import { ManagedNode } from "./managed-node.ts";
import { networkTargets } from "../network/targets.ts";
import { openCommit } from "./commit.ts";
import { openContainers } from "./containers/containers.ts";
import { openDataStore } from "./data-store.ts";
import { openFaces } from "./faces.ts";
import { openNetworkView } from "./network-view.ts";
import { openNetwork } from "./network.ts";
import { openOverlay } from "./overlay.ts";
import { openReports } from "./reports.ts";
import { openStreams } from "./streams.ts";
import { openTelemetry } from "./telemetry.ts";
import { openTriggers } from "./triggers.ts";
import { IDENTITY_LOST, identityLostFix } from "../../protocol/local/identity-lost.ts";
import { domainReader } from "../../protocol/documents/domain-view.ts";
import { describeDevice } from "../shadow/describe-device.ts";
import { DesiredDocuments, type Desired } from "../shadow/desired.ts";
import { nodeFacts } from "../profile.ts";
import { agentPulse } from "../pulse.ts";
import { resetter } from "../reset/resetter.ts";
import { Session } from "../session/session.ts";
import { webSocketTransport } from "../session/transport.ts";
import { StorageWatch } from "../faults/storage.ts";
import { openState } from "../state.ts";
import { FaultList } from "../faults/fault.ts";
import type { HealthChecks } from "../telemetry/conditions/health-checks.ts";
import { keepSettings } from "../settings.ts";
import { repositoryOf, resolvedHost, watchHealth } from "./watch-health.ts";
import { watchMachine } from "./watch-machine.ts";

/** More than one write of the journal takes. */
const JOURNAL_ROOM_BYTES = 32 * 1024;

/** Builds every part, lists every trigger, and starts: first from the last good state, then towards the control plane. */
export async function startAgent(options: AgentOptions): Promise<Agent> {
  const { settings, clock, reader, log, random } = options;
  const startedAt = clock.now();
  const begunAt = clock.elapsed();
  const wall = wallTimes(clock);
  const faults = new FaultList(clock, (code, message) => log.error({ code }, message));
  const fault = (code: string, message: string): void => faults.add(code, message);
  const notSaved = (error: unknown): void => log.warn({ err: toError(error) }, "not saved");
  const storage = new StorageWatch({
    clock,
    async probe() {
      if (isPersistent) reserve.refill();
      await state.probe();
    },
    onRefused: (error) => log.error({ code: "storage-unavailable", err: error }, "the disk refuses writes"),
    onTaken: () => {
      log.info("the disk takes writes again");
      spool.flush();
      void counter?.keep();
      void documents.keep();
    },
  });
  // What a full disk must not keep from being written: who the node is, and what it is told to be.
  const reserve = diskReserve(settings.stateDir);
  const reserved = ["identity", "desired"].map((name) => `${settings.stateDir}/${name}`);
  const withReserve = filesWithReserve(options.files, reserve, reserved, (error) => storage.refused(error));
  const files = faults.watched(storage.watched(withReserve));
  for (const { code, message } of [...(settings.problems ?? []), ...(options.found ?? [])]) fault(code, message);
  await checkLocalApi(settings.runDir);
  const state = await openState(files, settings.stateDir);
  const { sql, isPersistent } = state.database;
  if (settings.fileText !== undefined) await keepSettings(files, settings.stateDir, settings.fileText).catch(notSaved);
  if (!isPersistent) fault("storage-unavailable", `${settings.stateDir} cannot be written; working in memory`);
  else setAside(reserve, (error) => storage.refused(error));

  // What was last good.
  const identity = identityFiles(files, settings.stateDir);
  const documents = await DesiredDocuments.load(files, settings.stateDir);
  const lastGood = await readLastGood(files, settings.stateDir, state, identity);
  // A database that was damaged has been begun anew by now.
  if (isPersistent) faults.mended(`${settings.stateDir}/state.db`);
  faults.addDamage(settings.stateDir, [...documents.damage, ...lastGood.damage]);
  faults.foresee(settings.stateDir, lastGood.foreseen);
  const knownBootId = parseBootId(reader.read("/proc/sys/kernel/random/boot_id") ?? "");
  const bootId = knownBootId ?? crypto.randomUUID();
  const time = openKnownTime({ clock, log, state, lastGood, onFault: notSaved });
  const { stamps } = time;
  const telemetry = await openTelemetry({
    state,
    clock: stamps,
    log,
    onRefused: (error) => storage.refused(error),
    run: {
      bootId: knownBootId,
      packageVersion: packageVersion(buildInfo),
      startupErrors: faults.all.map(({ message }) => message),
      startedAt: Math.floor(stamps.now() / 1000),
    },
  });
  const { spool, pusher, events, record } = telemetry;

  const exec = hostExec(clock);
  const capture = captureExec(exec, settings.unit);
  const power = hostPower(exec, { isManaged: settings.unit !== undefined, unit: settings.unit ?? "" });
  const dialler = hostDialler(clock, settings.proxies, resolveSet(settings.hosts ?? {}, systemResolve()));
  const domain = domainReader();
  const dataPlane = openOverlay({
    ...options,
    ...telemetry,
    files,
    state,
    faults,
    exec,
    documents,
    domain,
    config: () => applying.config(),
    isOnline: () => session?.connection !== undefined,
    onStanding: () => reporting.look(),
    onChanged: (what) => applying.engine.look(what, OVERLAY_SECTIONS),
    onRecords: () => pusher.look(),
  });
  const { overlay, mesh } = dataPlane;
  const onNetwork = {
    onOwned: () => applying.engine.look("owner", ["network", "exec"]),
    onForwarding: () => applying.engine.look("forwarding", ["network"]),
    onTable: () => applying.engine.look("table", ["network"]),
  };
  const told = { onFault: fault, onDamage: faults.damageBelow(settings.stateDir) };
  const network = await openNetwork({ ...told, settings, clock, exec, files, reader, dialler, ...onNetwork });
  const { computing, view: containersView } = openContainers({
    ...options,
    ...told,
    ...telemetry,
    networkRecord: network.section.record,
    exec,
    files,
    state,
    sql,
    documents,
    config: () => applying.config(),
    registryToken: (...args) => node?.registryToken(...args),
    volumeKey: (...args) => node?.volumeKey(...args),
    unsupported: network.section.unsupported,
    onLook: () => applying.engine.look("containers", ["exec"]),
    onChanged: () => reporting.look(),
    onRefused: (error) => storage.refused(error),
  });
  const deps = {
    profile: settings.profile,
    overlay,
    domain,
    reader,
    literals: settings.literals,
    network: network.section,
    sourceFilter: network.sourceFilter,
    exec: computing.section,
  };
  const sectionsOf = (current: Desired) => listSections({ ...deps, documents: { current } });
  const sections = listSections({ ...deps, documents });
  const commit = openCommit({
    settings,
    exec,
    dialler,
    bootId,
    overlay,
    registration: () => node?.registration,
    knownAddresses: () => knownAddresses?.list ?? [],
    session: () => session,
  });
  const applying = new Applying({ ...options, ...told, files, documents, sections, sectionsOf, events, commit });
  const networkView = openNetworkView({ ...options, ...network, exec, capture, events, state, documents, applying });
  applying.onSettled(() => {
    mesh.look();
    networkView.look();
  });

  // Shadow and heartbeat.
  let health: HealthChecks | undefined;
  const { reporting, beating } = openReports({
    ...options,
    clock: stamps,
    runDir: settings.runDir,
    managedLinks: () => networkView.managedLinks(),
    acknowledged: valueOf(await state.reported.load()),
    keep: (acknowledged) => void state.reported.save(acknowledged).catch(notSaved),
    applied: () => node?.applied,
    health: () => health,
    config: () => ({
      ...applying.facts(),
      ...node?.documentFacts,
      ...networkView.facts(),
      ...containersView.facts(),
      ...upgrades.facts(),
    }),
    dataPlane,
    spool,
    hasFaults: () => faults.all.length > 0,
  });

  // Triggers.
  const dataStore = openDataStore({
    ...options,
    files,
    state,
    isInUse: (parts) => computing.volumeAt(parts),
    onRefused: (error) => storage.refused(error),
    isThere: () => standing().type === "Node",
  });
  const registration = (): Registration | undefined => node?.registration ?? lost;
  const repositoryUrl = (of: Registration | undefined): string | undefined =>
    settings.repositoryUrl ??
    (of === undefined ? undefined : repositoryOf(settings.upgrade.manifest, of.controlPlane.iss));
  const standing = nodeFacts(settings.profile, documents, () => registration()?.node.type);
  const streams = openStreams({ ...options, ...containersView, dialler: network.dialler, node: standing });
  const { dispatcher, cleanStop, upgrades, captures } = openTriggers({
    ...options,
    ...telemetry,
    state,
    record,
    bootId,
    startedAt,
    files,
    exec,
    capture,
    power,
    dialler,
    registration,
    documents,
    domain,
    overlay,
    networkView,
    applying,
    dataStore,
    node: standing,
    containers: containersView,
    onUpgrade: () => reporting.look(),
    why: () => provider.why(),
    diagnosis: {
      exec,
      reader,
      isManaged: settings.unit !== undefined,
      status: () => provider.status(),
      health: () => provider.health(),
      logs: (lines, signal) => provider.logs({ lines, follow: false }, signal),
      checks: () => health,
      resolvedName: () => {
        const session = registration()?.node.session;
        return session === undefined ? undefined : resolvedHost(session, settings);
      },
      repositoryUrl: () => repositoryUrl(registration()),
    },
    onRefused: (error) => storage.refused(error),
    makeRoom() {
      reserve.release(JOURNAL_ROOM_BYTES);
      recycleLog(sql);
      return true;
    },
  });

  // The control plane.
  const http = hostHttpClient(dialler, () => stamps.now());
  const ending = new AbortController();
  const mistakes = new AggregatedLog(log.child({ component: "session" }), clock);
  let node: ManagedNode | undefined;
  /** The registration of a node whose private keys are lost. */
  let lost: Registration | undefined;
  const sessionView = () => session ?? (lost === undefined ? undefined : sessionWithoutKeys(wall.of(begunAt)));
  let session: Session | undefined;
  let counter: SessionCounter | undefined;
  let knownAddresses: KnownAddresses | undefined;

  async function manage(registration: Registration): Promise<void> {
    const keys = valueOf(await identity.keys.load());
    if (keys === undefined) {
      lost = registration;
      fault(IDENTITY_LOST.code, `${IDENTITY_LOST.message}; ${identityLostFix(directoriesOf(settings))}`);
      // The last good configuration is applied all the same.
      applying.apply();
      return;
    }
    void overlay.identify({ uid: registration.node.uid, key: keys.overlay }, ending.signal).catch(notSaved);
    const addresses = await KnownAddresses.open(identity.addresses, notSaved);
    knownAddresses = addresses;
    const managed = new ManagedNode({
      ...options,
      http,
      registration,
      knownAddresses: () => addresses.list,
      // A disk that refuses them must not keep new keys from being used.
      saveRegistration: (changed) => identity.registration.save(changed).catch(notSaved),
      documents,
      applying,
      reporting,
      ...telemetry,
      beating,
      dispatcher,
      streams,
      onChanged: () => reporting.look(),
    });
    node = managed;
    counter = await SessionCounter.open(identity.counter, () => stamps.now(), notSaved);
    const party = await nodeParty({
      clock,
      addresses,
      counter,
      keys,
      registration: () => managed.registration,
      bootId,
      version: buildInfo.version,
      have: () => ({
        keys: managed.registration.controlPlane.keys.version,
        node: documents.newest("node"),
        cluster: documents.newest("cluster"),
        domain: documents.newest("domain"),
      }),
      reportedVersion: () => reporting.version,
      refreshKeys: (rpc, signal) => managed.sync.refreshKeys(rpc, signal),
      onForgery: (what, error) => managed.noteForgery(what, error),
    });
    session = new Session({
      clock,
      random,
      log: log.child({ component: "session" }),
      mistakes,
      open: webSocketTransport(network.dialler, clock, () => stamps.now()),
      party,
      handlers: (connection) => managed.handlers(connection),
      onOnline: (connection) => {
        time.told(connection.sessionNow() * 1000);
        reportClock(time, events);
        managed.online(connection);
        applying.committing.commit.sessionOpened();
        mesh.look();
      },
      onOffline: () => {
        managed.offline();
        mesh.look();
      },
      onDeleted: () => managed.setDeleted(true),
    });
    health = watchHealth({
      ...options,
      events,
      sessionUrl: registration.node.session,
      settings,
      dialler,
      repositoryUrl: repositoryUrl(registration),
      pins: () => managed.registration.controlPlane.keys.spki,
      onResults: () => reporting.look(),
    });
    // What was last good is in force before anybody is called.
    await applying.enforced(ending.signal);
    if (!ending.signal.aborted) session.start();
  }

  // The machine.
  const machine = watchMachine({
    ...options,
    stamps,
    events,
    managedLinks: () => networkView.managedLinks(),
    extra: async () => ({
      "event.dropped": spool.status().events.dropped,
      "flow.dropped": spool.status().flows.dropped,
      ...(await dataPlane.sample(ending.signal)),
      ...containersView.sample(),
    }),
    onNetwork: (what) => {
      reporting.look();
      applying.engine.look(what);
      overlay.wake();
      session?.wake(what === "resumed" ? "resumed" : "network");
    },
    onSample: (sample) => {
      time.look();
      reportClock(time, events);
      spool.append("metrics", sample);
      pusher.look();
      reporting.look();
    },
  });

  // People.
  const shared = { ...options, ...telemetry, documents, applying, overlay, upgrades, time };
  const gather = gatherStatus({
    ...shared,
    startedAt: begunAt,
    isStatePersistent: isPersistent,
    mesh,
    faults,
    storage,
    machine,
    node: () => node,
    registration,
    session: sessionView,
    health: () => health,
  });
  const provider = localProvider({
    ...shared,
    gather,
    containers: containersView,
    streams,
    dispatcher,
    retry: (name) => node?.sync.retry(name),
    domain,
    targets: () => networkTargets(registration(), settings, overlay.view.mesh),
    networkView,
    wake: () => session?.wake("operator"),
    reset: resetter({ ...shared, files, startedAt, isPersistent, isOnline: () => session?.connection !== undefined }),
    async activate(request) {
      if (!isPersistent) throw new InputError("storage-unavailable", `${settings.stateDir} cannot be written`);
      const device = () => describeDevice("Node", { reader, clock, exec }, ending.signal);
      const deps = { files: identity, http, device, given: directoriesOf(settings), clock };
      const { askForLicense } = await import("../identity/activation.ts");
      return askForLicense(request, deps, ending.signal);
    },
    async register(license) {
      const { type } = readLicense(license.trim());
      if (!isPersistent) throw new InputError("storage-unavailable", `${settings.stateDir} cannot be written`);
      const device = () => describeDevice(type, { reader, clock, exec }, ending.signal);
      const given = directoriesOf(settings);
      const registration = await register(license, { files: identity, http, device, given }, ending.signal);
      await manage(registration);
      return registration.node;
    },
  });
  const faces = await openFaces({ settings, provider, log, clock, dispatcher, sql, faults, power });

  await upgrades.look();
  if (standing().type === "Node") void dataStore.resume();
  if (lastGood.registration === undefined) applying.apply();
  if (lastGood.registration !== undefined) await manage(lastGood.registration);
  else log.info({ stateDir: settings.stateDir }, "not registered; waiting for holdfast register");

  return {
    pulse: agentPulse({ sql, session: sessionView }),
    wake: () => session?.wake("operator"),
    async close() {
      ending.abort(new InputError("cancelled", "the agent is stopping"));
      machine.close();
      networkView.close();
      health?.close();
      upgrades.close();
      await dispatcher.close();
      await captures.close();
      await dataStore.close();
      await streams.close();
      await containersView.close();
      await applying.close();
      await computing.close();
      dataPlane.close();
      session?.close();
      network.close();
      await faces.close();
      events.close();
      pusher.close();
      storage.close();
      await time.stopped();
      await cleanStop.mark().catch(notSaved);
      await state.close();
    },
  };
}

/** Stands in for the session of a node that cannot open one without its keys. */
function sessionWithoutKeys(startedAt: number): Pick<Session, "overdueMs" | "status"> {
  return {
    overdueMs: 0,
    status: () => ({ state: "stopped", since: startedAt, attempt: 0, reason: IDENTITY_LOST }),
  };
}

function setAside(reserve: Reserve, onRefused: (error: unknown) => void): void {
  try {
    reserve.refill();
  } catch (error) {
    onRefused(error);
  }
}
