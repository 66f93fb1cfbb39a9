import { InputError } from "../../errors.ts";
import { hostDialler } from "../../host/net/dial.ts";
import { hostHttpClient } from "../../host/net/http-client.ts";
import { resolveSet, systemResolve } from "../../host/net/system-resolve.ts";
import { hostExec } from "../../host/process/exec.ts";
import { hostPower } from "../../host/process/power.ts";
import { captureExec } from "../../host/process/privileged-exec.ts";
import { domainReader } from "../../protocol/documents/domain-view.ts";
import { KnownAddresses } from "../identity/known-addresses.ts";
import { checkLocalApi } from "../local-api/server.ts";
import { nodeFacts } from "../profile.ts";
import { agentPulse } from "../pulse.ts";
import { resetter } from "../reset/resetter.ts";
import { openApplying } from "./applying.ts";
import { openContainers } from "./containers.ts";
import { openControlPlane, openDocumentSync } from "./control-plane.ts";
import { openDataStore } from "./data-store.ts";
import { openFaces } from "./faces.ts";
import { localProvider } from "./local-provider.ts";
import { openMachine } from "./machine.ts";
import { openNetworkView } from "./network-view.ts";
import { openNetwork } from "./network.ts";
import type { Agent, AgentOptions } from "./options.ts";
import { openOverlay } from "./overlay.ts";
import { openReports } from "./reports.ts";
import { selfReport } from "./self-report.ts";
import { agentSignals } from "./signals.ts";
import { openStorage } from "./storage.ts";
import { openStreams } from "./streams.ts";
import { openTelemetry } from "./telemetry.ts";
import { openDispatcher, serveTriggers } from "./triggers.ts";
import { openUpgrades } from "./upgrades.ts";

/** Opens every part of the agent, applies the documents of the last run, and connects to the control plane. */
export async function startAgent(options: AgentOptions): Promise<Agent> {
  const { settings, clock, log } = options;
  await using stack = new AsyncDisposableStack();
  const stopper = new AbortController();
  const base = { ...options, signals: agentSignals(), stopping: stopper.signal };
  const { signals } = base;

  // State and telemetry.
  await checkLocalApi(settings.runDir);
  const stored = { ...base, ...(await openStorage(base, stack)) };
  const { sql, documents, lastGood, faults } = stored;
  const addresses = await KnownAddresses.open(stored.identity.addresses, stored.notSaved);
  const telemetry = await openTelemetry(stored, stack);

  // The machine.
  const exec = hostExec(clock);
  const power = hostPower(exec, { isManaged: settings.unit !== undefined, unit: settings.unit ?? "" });
  const dialler = hostDialler(clock, settings.proxies, resolveSet(settings.hosts ?? {}, systemResolve()));
  const host = {
    ...stored,
    ...telemetry,
    addresses,
    exec,
    capture: captureExec(exec, settings.unit),
    power,
    dialler,
    http: hostHttpClient(dialler, () => telemetry.stamps.now()),
    domain: domainReader(),
  };
  // The session and the local API outlast every part that reports through them.
  const outward = stack.use(new AsyncDisposableStack());
  const dataPlane = openOverlay(host, stack);
  const { overlay, mesh } = dataPlane;
  const network = await openNetwork(host, stack);
  const { section } = network;
  const given = { ...host, networkRecord: section.record, unsupported: section.unsupported };
  const { computing, view: containers } = openContainers(given, stack);

  // The documents.
  const { applying, accepted } = openApplying({ ...host, overlay, network, computing }, stack);
  const { sync, forgeries } = openDocumentSync({ ...host, accepted });
  const networkView = openNetworkView({ ...host, driver: network.driver, applying }, stack);

  // Work that others order, which stops while its results can still be reported.
  await using work = new AsyncDisposableStack();
  const node = nodeFacts(settings.profile, documents, () => signals.registration.current?.node.type);
  const streams = openStreams({ ...host, dialler: network.dialler, compute: containers.compute, node }, work);
  const isInUse = (parts: readonly string[]): string | undefined => computing.volumeAt(parts);
  const hasDataStore = (): boolean => node().type === "Node";
  const dataStore = openDataStore({ ...host, isInUse, isThere: hasDataStore });
  work.defer(() => dataStore.close());
  const dispatcher = openDispatcher({ ...host, node });
  const upgrades = openUpgrades({ ...host, node, applying, dispatcher }, stack);

  // Reports.
  const parts = {
    ...host,
    dataPlane,
    overlay,
    mesh,
    network,
    networkView,
    containers,
    applying,
    accepted,
    sync,
    forgeries,
    upgrades,
    streams,
    dataStore,
    dispatcher,
  };
  const reporting = await openReports(parts);
  const machine = openMachine(parts, stack);
  const report = selfReport({ ...parts, machine });
  serveTriggers({ ...parts, report }, work);

  // The control plane, and people on this machine.
  const controlPlane = openControlPlane({ ...parts, reporting }, outward);
  const isOnline = (): boolean => signals.connection.current !== undefined;
  const provider = localProvider({ ...parts, report, controlPlane, reset: resetter({ ...parts, isOnline }) });
  await openFaces({ settings, provider, log, clock, dispatcher, sql, faults, power }, outward);
  stack.use(work.move());

  await upgrades.refresh();
  if (hasDataStore()) void dataStore.resume();
  if (lastGood.registration !== undefined) {
    await controlPlane.manage(lastGood.registration);
  } else {
    accepted.apply();
    log.info({ stateDir: settings.stateDir }, "not registered; waiting for holdfast register");
  }

  const running = stack.move();
  return {
    pulse: agentPulse({ sql, session: () => signals.session.current }),
    wake: () => signals.session.current?.wake("operator"),
    async close() {
      stopper.abort(new InputError("cancelled", "the agent is stopping"));
      await running.disposeAsync();
    },
  };
}
