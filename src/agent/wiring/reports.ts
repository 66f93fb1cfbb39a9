import type { Random } from "../../lib/async/backoff.ts";
import type { Logger } from "pino";
import type { Clock } from "../../host/clock.ts";
import { valueOf } from "../../host/files/state-file.ts";
import { readAddresses, readAddresses4, type LinkAddress } from "../../host/network/ip/links.ts";
import type { Reader } from "../../host/reader.ts";
import { buildInfo, buildTime, packageVersion } from "../../lib/build-info.ts";
import type { ShadowMap } from "../../protocol/values/shadow.ts";
import type { AcceptedDocuments } from "../applying/accepted-documents.ts";
import type { Applying } from "../applying/applying.ts";
import type { FaultList } from "../faults/fault.ts";
import type { AgentSettings } from "../settings.ts";
import type { DocumentSync } from "../shadow/document-sync.ts";
import { shadowFacts } from "../shadow/facts.ts";
import { readMachine } from "../shadow/readings.ts";
import { ShadowReporting } from "../shadow/reporting.ts";
import type { AgentState } from "../state.ts";
import { repositoryState, secondsOf } from "../status/gathering.ts";
import { Beating } from "../telemetry/beating.ts";
import { buildHeartbeat, overlayBeat, readHeartbeat } from "../telemetry/heartbeat.ts";
import { queueOf, type Spool } from "../telemetry/spool.ts";
import type { Upgrades } from "../upgrades/upgrades.ts";
import type { ContainersView } from "./containers/view.ts";
import type { NetworkView } from "./network-view.ts";
import type { OpenedOverlay } from "./overlay.ts";
import type { AgentSignals } from "./signals.ts";

export interface OpenReportsOptions {
  readonly settings: Pick<AgentSettings, "runDir">;
  /** The clock that stamps reports. */
  readonly stamps: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly reader: Reader;
  readonly state: Pick<AgentState, "reported">;
  readonly networkView: Pick<NetworkView, "managedLinks" | "facts">;
  readonly containers: Pick<ContainersView, "facts">;
  readonly upgrades: Pick<Upgrades, "facts">;
  readonly applying: Pick<Applying, "facts">;
  readonly accepted: Pick<AcceptedDocuments, "applied">;
  readonly sync: Pick<DocumentSync, "facts">;
  readonly dataPlane: Pick<OpenedOverlay, "overlay" | "mesh" | "facts">;
  readonly spool: Pick<Spool, "status">;
  readonly faults: Pick<FaultList, "all">;
  readonly signals: Pick<AgentSignals, "connection" | "facts" | "health">;
  readonly notSaved: (error: unknown) => void;
}

/** Reports the shadow and heartbeats while the node is online. */
export async function openReports(options: OpenReportsOptions): Promise<ShadowReporting> {
  const { settings, stamps, random, log, reader, state, networkView, dataPlane, spool, signals } = options;
  const facts = (): ShadowMap => {
    const { applied } = options.accepted;
    const health = signals.health.current;
    const machine = readMachine(reader, stamps, () => everyAddress(reader), settings.runDir);
    return {
      ...shadowFacts(
        { ...machine, managed: networkView.managedLinks() },
        {
          packageVersion: packageVersion(buildInfo),
          builtAt: secondsOf(buildTime(buildInfo)),
          build: buildInfo.build,
          version: secondsOf(applied.get("node")?.at),
          domainUpdatedAt: secondsOf(applied.get("domain")?.at),
          publishTime: stamps.now(),
          startupError: options.faults.all.length > 0,
          config: {
            ...options.applying.facts(),
            ...options.sync.facts,
            ...networkView.facts(),
            ...options.containers.facts(),
            ...options.upgrades.facts(),
          },
          isDnsHealthy: health?.results().dns?.isHealthy,
          isRepositoryReachable: repositoryState(health),
          isSshLocal: health?.results().isSshLocal,
        },
      ),
      ...dataPlane.facts(),
    };
  };
  const reporting = new ShadowReporting({
    clock: stamps,
    log: log.child({ component: "shadow" }),
    acknowledged: valueOf(await state.reported.load()),
    facts,
    keep: (acknowledged) => void state.reported.save(acknowledged).catch(options.notSaved),
  });
  const beating = new Beating({
    clock: stamps,
    random,
    heartbeat: (seq, connection, leftOut) =>
      buildHeartbeat(readHeartbeat(reader), {
        seq,
        at: stamps.now(),
        sessionRttMs: connection.rttMs(),
        overlay: overlayBeat(dataPlane.overlay.status(), dataPlane.mesh.dataPlane()),
        queue: queueOf(spool.status(), leftOut),
      }),
  });
  signals.facts.changed(() => reporting.evaluate());
  signals.connection.changed((connection) => {
    for (const reporter of [reporting, beating]) {
      if (connection === undefined) reporter.offline();
      else reporter.online(connection);
    }
  });
  return reporting;
}

/** Returns the addresses of all links, including the IPv4 addresses of links without a carrier. */
function everyAddress(reader: Reader): readonly LinkAddress[] {
  const running = readAddresses();
  return [...readAddresses4(reader, running), ...running.filter(({ family }) => family === 6)];
}
