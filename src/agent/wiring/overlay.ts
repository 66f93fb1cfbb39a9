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
import type { AgentSettings } from "../settings.ts";
import type { AgentState } from "../state.ts";
import { flowRecorder, type FlowNames } from "../telemetry/flow-records.ts";
import { overlayMeter } from "../telemetry/metrics/overlay-meter.ts";
import { serviceEvents } from "../telemetry/conditions/service-events.ts";
import type { Spool } from "../telemetry/spool.ts";

export interface OpenOverlayOptions extends Omit<OpenMeshOptions, "overlay" | "onChanged"> {
  readonly settings: Pick<AgentSettings, "unit" | "overlay" | "profile">;
  readonly files: Files;
  readonly reader: Reader;
  readonly state: Pick<AgentState, "noteAdjusted">;
  readonly spool: Spool;
  readonly faults: Pick<FaultList, "add" | "settled">;
  /** Something of the overlay is otherwise than it was seen last. */
  readonly onChanged: (what: string) => void;
  /** How the ways to other nodes stand may be otherwise than it was told last. */
  readonly onStanding: () => void;
}

/** The agent's side of the overlay, and what it makes of the overlay's records and counters. */
export interface OpenedOverlay {
  readonly overlay: Overlay;
  readonly mesh: Pick<OpenedMesh, "look" | "dataPlane">;
  /** Asks for the counters and makes the metrics since the last time of them; empty when there is none, or it does not answer soon. */
  sample(signal: AbortSignal): Promise<Readonly<Record<string, number>>>;
  /** What the last sample says of connectors, for the shadow. */
  facts(): ShadowMap;
  /** Lets go of the overlay, which goes on serving. */
  close(): void;
}

const COUNTERS_WITHIN_MS = 5000;
/** ip-sysctl of the kernel: connects that wait at a listener that is closed go over to another one of the same port. */
const MIGRATE_CONNECTS = "net.ipv4.tcp_migrate_req";

/** Opens it: a managed install has the overlay run by its own unit, any other has the agent start it. */
export function openOverlay(options: OpenOverlayOptions): OpenedOverlay {
  const { settings, clock, files, reader, state, events, spool, faults, onChanged, onRecords } = options;
  const { stateDir, runDir } = settings.overlay;
  const log = options.log.child({ component: "overlay" });
  // An overlay that is replaced would reset the few of which it has not heard yet.
  switchOn([MIGRATE_CONNECTS], { reader, record: state.noteAdjusted }).catch((error: unknown) => {
    log.info({ reason: toError(error).message }, "a connect may be lost when an overlay is replaced");
  });
  const names = flowNames(options);
  const flows = flowRecorder({ clock, spool, names, look: onRecords });
  const meter = overlayMeter({ clock, events });
  const services = serviceEvents(events);
  const mesh = openMesh({ ...options, log, overlay: () => overlay, onChanged: options.onStanding });
  const overlay: Overlay = new Overlay({
    ...mesh.notices,
    clock,
    log,
    files,
    stateDir,
    runDir,
    ...(settings.unit === undefined ? { start: () => startOverlayProcess(stateDir, runDir) } : {}),
    onChanged,
    onHealth: (health) => services.look(health),
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
      const message = `The overlay has written its ${file} anew`;
      events.notice({ eventType: "Network Error", object: "overlay state", level: "INFO", message });
    },
  });
  // The overlay continues to serve without it, and may not make it itself.
  const leaveDirectory =
    settings.unit === undefined
      ? () => undefined
      : keepDirectory(
          clock,
          runDir,
          () => makeManagedDirectory(options.exec, runDir),
          (error) => {
            log.error({ err: error }, "the overlay's run directory is missing and was not made again");
          },
        );
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
    close() {
      leaveDirectory();
      mesh.close();
      overlay.close();
      flows.close();
    },
  };
}

/** A flow as `node-debug` shows and filters it. */
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
