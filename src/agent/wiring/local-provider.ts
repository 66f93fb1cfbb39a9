import { InputError } from "../../errors.ts";
import type { LogMemory } from "../../host/log.ts";
import { addressesByLink } from "../../host/network/ip/links.ts";
import type { Overlay } from "../../host/overlay/client.ts";
import type { Reader } from "../../host/reader.ts";
import { withinTime } from "../../lib/async/within-time.ts";
import type { ReadDomain } from "../../protocol/documents/domain-view.ts";
import type { ContainerLogPiece } from "../../protocol/local/answers.ts";
import type { ContainerLogsQuery } from "../../protocol/local/api.ts";
import type { Applying } from "../applying/applying.ts";
import { parsedSections } from "../applying/parsed-sections.ts";
import type { Compute } from "../containers/model/compute.ts";
import { decodeOutput } from "../containers/output/decode-output.ts";
import { containersReport, volumesReport } from "../containers/report.ts";
import { connectorsReport } from "../data-plane/connectors-report.ts";
import { gatewaysReport, peersReport, type MeshReading } from "../data-plane/mesh-report.ts";
import { overlayStateOf, type OverlayReading } from "../data-plane/overlay-reading.ts";
import { servicesReport } from "../data-plane/services-report.ts";
import type { LocalProvider } from "../local-api/provider.ts";
import { readLogs } from "../local-api/read-logs.ts";
import { runLocally } from "../local-api/run-trigger.ts";
import { networkTargets } from "../network/targets.ts";
import type { AgentSettings } from "../settings.ts";
import type { DesiredDocuments } from "../shadow/desired.ts";
import type { DocumentSync } from "../shadow/document-sync.ts";
import type { Streams } from "../streams/streams.ts";
import type { Dispatcher } from "../triggers/execution/dispatch.ts";
import type { Upgrades } from "../upgrades/upgrades.ts";
import type { ContainersView } from "./containers/view.ts";
import type { NetworkView } from "./network-view.ts";
import type { SelfReport } from "./self-report.ts";
import type { AgentSignals } from "./signals.ts";

export interface LocalProviderDeps {
  readonly report: SelfReport;
  readonly memory: LogMemory;
  readonly reader: Reader;
  readonly dispatcher: Dispatcher;
  readonly upgrades: Pick<Upgrades, "ask" | "refresh">;
  readonly containers: Pick<ContainersView, "compute" | "audit">;
  readonly streams: Pick<Streams, "prepare">;
  readonly documents: DesiredDocuments;
  readonly sync: Pick<DocumentSync, "retry">;
  readonly applying: Pick<
    Applying,
    "plan" | "why" | "config" | "rollback" | "network" | "tryNetwork" | "keepNetwork" | "revertNetwork"
  >;
  readonly overlay: Pick<Overlay, "status" | "view" | "counters" | "mesh">;
  /** Parses the domain document. */
  readonly domain: ReadDomain;
  readonly settings: Pick<AgentSettings, "proxies" | "hosts">;
  readonly networkView: Pick<NetworkView, "report" | "routeTo">;
  readonly controlPlane: Pick<LocalProvider, "register" | "activate">;
  readonly reset: LocalProvider["reset"];
  readonly signals: Pick<AgentSignals, "registration" | "session">;
}

/** Provides the local API with everything that the agent can answer. */
export function localProvider({
  report,
  memory,
  reader,
  dispatcher,
  upgrades,
  containers: { compute, audit },
  streams,
  documents,
  sync,
  applying,
  overlay,
  domain,
  settings,
  networkView,
  controlPlane,
  reset,
  signals,
}: LocalProviderDeps): LocalProvider {
  const parsed = parsedSections();
  /** Reads the configuration and the state of the overlay, which has 3 s to answer. */
  async function readOverlay(signal: AbortSignal): Promise<OverlayReading> {
    const counters = await overlay.counters(withinTime(signal, OVERLAY_ANSWER_MS)).catch(() => undefined);
    return {
      config: applying.config(),
      node: documents.current.node?.body,
      domain: domain(documents.current.domain?.body),
      parsed,
      status: overlay.status(),
      view: overlay.view,
      counters,
      addresses: addressesByLink(reader),
      why: applying.why().reasons,
    };
  }
  /** Reads the state of the paths to other nodes, likewise. */
  async function readMesh(signal: AbortSignal): Promise<MeshReading> {
    const { mesh, standing } = overlay.view;
    const asked = mesh === undefined ? undefined : overlay.mesh(withinTime(signal, OVERLAY_ANSWER_MS));
    return {
      overlay: overlayStateOf(overlay.status()),
      domain: domain(documents.current.domain?.body),
      mesh,
      state: (await asked?.catch(() => undefined)) ?? standing,
      why: applying.why().reasons,
    };
  }
  return {
    status: () => report.status(),
    health: () => report.health(),
    logs: (query, signal) => readLogs(memory, query, signal),
    trigger: (event, body, signal, options) => runLocally(dispatcher, event, body, signal, options?.wait),
    containers: () => containersReport(compute()),
    volumes: () => volumesReport(compute()),
    register: (license) => controlPlane.register(license),
    activate: (request) => controlPlane.activate(request),
    reset,
    async resetFloor(name) {
      const reset = await documents.resetFloor(name);
      sync.retry(name);
      return reset;
    },
    plan: (config, signal) => applying.plan(config, signal),
    why: () => report.why(),
    connectors: async (signal) => connectorsReport(await readOverlay(signal)),
    services: async (signal) => servicesReport(await readOverlay(signal)),
    gateways: async (signal) => gatewaysReport(await readMesh(signal)),
    peers: async (signal) => peersReport(await readMesh(signal)),
    targets: () => networkTargets(signals.registration.current, settings, overlay.view.mesh),
    observeNetwork: (signal) => networkView.report(signal),
    routeTo: (address, signal) => networkView.routeTo(address, signal),
    config: () => applying.config(),
    rollback: (request, signal) => applying.rollback(request, signal),
    network: () => applying.network(),
    tryNetwork: (request, signal) => applying.tryNetwork(request, signal),
    keepNetwork: () => applying.keepNetwork(),
    revertNetwork: () => applying.revertNetwork(),
    containerLogs: (query, signal) => containerLogs(compute(), query, signal),
    async containerExec({ arg: command, ...where }, signal) {
      const stream = await streams.prepare("container-exec", { ...where, command }, "local", signal);
      audit(`local opened a terminal in container ${where.container}`);
      return stream;
    },
    upgrade: (order) => upgrades.ask({ ...order, by: "operator" }),
    wake() {
      signals.session.current?.wake("operator");
      void upgrades.refresh();
    },
  };
}

async function* containerLogs(
  compute: Compute | undefined,
  { container, follow, lines }: ContainerLogsQuery,
  signal: AbortSignal,
): AsyncGenerator<ContainerLogPiece> {
  if (compute === undefined) throw new InputError("not-configured", "no container is configured on this node");
  yield* decodeOutput(compute.logs(container, { follow, lines }, signal));
}

/** Shorter than the timeout of the CLI. */
const OVERLAY_ANSWER_MS = 3000;
