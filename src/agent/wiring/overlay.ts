import { toError } from "../../errors.ts";
import type { Files } from "../../host/files/files.ts";
import { keepDirectory } from "../../host/net/kept-sockets.ts";
import { switchOn } from "../../host/network/switched-on.ts";
import { Overlay } from "../../host/overlay/client.ts";
import { startOverlayProcess } from "../../host/overlay/process.ts";
import type { Reader } from "../../host/reader.ts";
import { makeManagedDirectory } from "../../host/process/tmpfiles.ts";
import type { OverlayFlow } from "../../protocol/overlay/overlay.ts";
import type { ShadowMap } from "../../protocol/values/shadow.ts";
import type { FaultList } from "../faults/fault.ts";
import { withinDeadline } from "../reconcile/deadline.ts";
import { namesOf } from "../data-plane/mesh-report.ts";
import { openMesh, type OpenedMesh, type OpenMeshOptions } from "./mesh.ts";
import { OVERLAY_SECTIONS } from "./sections.ts";
import type { AgentSignals } from "./signals.ts";
import type { AgentSettings } from "../settings.ts";
import type { AgentState } from "../state.ts";
import { flowRecorder, type FlowNames } from "../telemetry/flow-records.ts";
import { overlayMeter } from "../telemetry/metrics/overlay-meter.ts";
import { serviceEvents } from "../telemetry/conditions/service-events.ts";
import type { Pusher } from "../telemetry/pusher.ts";
import type { Spool } from "../telemetry/spool.ts";

export interface OpenOverlayOptions extends Omit<
  OpenMeshOptions,
  "overlay" | "config" | "isOnline" | "onRecords" | "onChanged"
> {
  readonly settings: Pick<AgentSettings, "unit" | "overlay" | "profile">;
  readonly files: Files;
  readonly reader: Reader;
  readonly state: Pick<AgentState, "noteAdjusted">;
  readonly spool: Spool;
  readonly faults: Pick<FaultList, "add" | "settled">;
  readonly pusher: Pick<Pusher, "push">;
  readonly signals: Pick<AgentSignals, "config" | "connection" | "facts" | "settled" | "surroundings">;
}

/** The client of the overlay program, and the records and metrics made from its reports. */
export interface OpenedOverlay {
  readonly overlay: Overlay;
  readonly mesh: Pick<OpenedMesh, "dataPlane">;
  /** Reads the counters and returns the metrics since the last sample; empty when the overlay is off or does not answer within 5 s. */
  sample(signal: AbortSignal): Promise<Readonly<Record<string, number>>>;
  /** The shadow facts about connectors, from the last sample, and about gateways. */
  facts(): ShadowMap;
}

const COUNTERS_WITHIN_MS = 5000;
/** Moves pending connections of a listener that closes to another listener of the same port (kernel ip-sysctl). */
const MIGRATE_CONNECTS = "net.ipv4.tcp_migrate_req";

/** Opens the overlay. A managed install runs it in its own unit; any other install has the agent start it. It keeps serving after the agent stops. */
export function openOverlay(options: OpenOverlayOptions, stack: AsyncDisposableStack): OpenedOverlay {
  const { settings, clock, files, reader, state, events, spool, faults, pusher, signals } = options;
  const { stateDir, runDir } = settings.overlay;
  const log = options.log.child({ component: "overlay" });
  // Without it, replacing the overlay resets connections that it has not accepted yet.
  switchOn([MIGRATE_CONNECTS], { reader, record: state.noteAdjusted }).catch((error: unknown) => {
    log.info({ reason: toError(error).message }, "a connect may be lost when an overlay is replaced");
  });
  const names = flowNames(options);
  const flows = flowRecorder({ clock, spool, names, onReady: () => pusher.push() });
  const meter = overlayMeter({ clock, events });
  const services = serviceEvents(events);
  const mesh = openMesh({
    ...options,
    log,
    overlay: () => overlay,
    config: () => signals.config.current,
    isOnline: () => signals.connection.current !== undefined,
    onRecords: () => pusher.push(),
    onChanged: () => signals.facts.set(),
  });
  const overlay: Overlay = new Overlay({
    ...mesh.notices,
    clock,
    log,
    files,
    stateDir,
    runDir,
    ...(settings.unit === undefined ? { start: () => startOverlayProcess(stateDir, runDir) } : {}),
    onChanged: (cause) => signals.surroundings.set({ cause, sections: OVERLAY_SECTIONS }),
    onHealth: (health) => services.refresh(health),
    onFlows(ended) {
      for (const flow of ended)
        log.debug(flowFields(flow, names), flow.interim === true ? "flow goes on" : "flow ended");
      flows.take(ended);
    },
    onFault({ code = "overlay-fault", message, file }) {
      faults.add(code, message, file === undefined ? undefined : `${stateDir}/${file}`);
      events.notice({ eventType: "Network Error", object: "overlay state", level: "WARNING", message });
    },
    onMended(file) {
      faults.settled(`${stateDir}/${file}`);
      const message = `The overlay has recreated its ${file}`;
      events.notice({ eventType: "Network Error", object: "overlay state", level: "INFO", message });
    },
  });
  stack.defer(() => flows.close());
  stack.defer(() => overlay.close());
  stack.defer(() => mesh.close());
  if (settings.unit !== undefined) {
    // The overlay keeps serving without its run directory, and is not permitted to create it.
    const make = (): Promise<void> => makeManagedDirectory(options.exec, runDir);
    const onError = (err: Error): void =>
      log.error({ err }, "the overlay's run directory is missing and cannot be created");
    stack.defer(keepDirectory(clock, runDir, make, onError));
  }
  signals.connection.changed(() => mesh.refresh());
  signals.settled.changed(() => mesh.refresh());
  return {
    overlay,
    mesh,
    async sample(signal) {
      const bounds = { clock, ms: COUNTERS_WITHIN_MS, what: "overlay: counters", signal };
      const asked = withinDeadline(bounds, (signal) => overlay.counters(signal));
      const counters = await asked.catch(() => undefined);
      if (counters !== undefined) services.lookAtAll(counters.services);
      else if (overlay.status().state === "off") services.lookAtAll([]);
      return { ...meter.sample(counters), ...(await mesh.sample(signal)) };
    },
    facts: () => ({ ...meter.facts(), ...mesh.facts() }),
  };
}

/** Returns the fields of a flow that `node-debug` shows and filters by. */
function flowFields(flow: OverlayFlow, { own, nameOf }: FlowNames): Readonly<Record<string, unknown>> {
  const { peer, service, connector, protocol, sourceIp, sourcePort, sourceBytes, destBytes, reason } = flow;
  return {
    local: own(),
    peer: peer === undefined ? "local" : nameOf(peer),
    service,
    connector,
    protocol,
    source: `${sourceIp}:${sourcePort}`,
    sourceBytes,
    destBytes,
    reason,
  };
}

function flowNames({ documents, domain }: Pick<OpenOverlayOptions, "documents" | "domain">): FlowNames {
  return {
    own: () => documents.current.node?.body.name ?? "local",
    nameOf: (uid) => namesOf(domain(documents.current.domain?.body))(uid),
  };
}
