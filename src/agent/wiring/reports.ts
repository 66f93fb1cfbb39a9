import type { Logger } from "pino";
import type { Clock } from "../../host/clock.ts";
import { readAddresses, readAddresses4, type LinkAddress } from "../../host/network/ip/links.ts";
import type { Reader } from "../../host/reader.ts";
import { buildInfo, packageVersion } from "../../lib/build-info.ts";
import type { ShadowMap } from "../../protocol/values/shadow.ts";
import { repositoryState, secondsOf } from "../status/gathering.ts";
import type { AppliedReports } from "../shadow/applied.ts";
import type { OpenedOverlay } from "./overlay.ts";
import { shadowFacts } from "../shadow/facts.ts";
import { readMachine } from "../shadow/readings.ts";
import { ShadowReporting, type ReportingOptions } from "../shadow/reporting.ts";
import { Beating } from "../telemetry/beating.ts";
import type { HealthChecks } from "../telemetry/conditions/health-checks.ts";
import { buildHeartbeat, overlayBeat, readHeartbeat } from "../telemetry/heartbeat.ts";
import { queueOf, type Spool } from "../telemetry/spool.ts";

export interface OpenReportsOptions extends Pick<ReportingOptions, "acknowledged" | "keep"> {
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: Logger;
  readonly reader: Reader;
  readonly runDir: string;
  /** The names of the links that the configuration sets. */
  readonly managedLinks: () => ReadonlySet<string>;
  /** What became of the documents; undefined before there is a registration. */
  readonly applied: () => AppliedReports | undefined;
  readonly health: () => HealthChecks | undefined;
  /** What became of the configuration. */
  readonly config: () => ShadowMap;
  readonly dataPlane: Pick<OpenedOverlay, "overlay" | "mesh" | "facts">;
  readonly spool: Pick<Spool, "status">;
  readonly hasFaults: () => boolean;
}

/** What the node says of itself without being asked: its shadow, and its heartbeat. */
export function openReports(options: OpenReportsOptions): {
  readonly reporting: ShadowReporting;
  readonly beating: Beating;
} {
  const {
    clock,
    random,
    log,
    reader,
    runDir,
    managedLinks,
    acknowledged,
    keep,
    applied,
    health,
    config,
    dataPlane,
    spool,
    hasFaults,
  } = options;
  const reporting = new ShadowReporting({
    clock,
    log: log.child({ component: "shadow" }),
    acknowledged,
    facts: () => ({
      ...shadowFacts(
        { ...readMachine(reader, clock, () => everyAddress(reader), runDir), managed: managedLinks() },
        {
          packageVersion: packageVersion(buildInfo),
          build: buildInfo.build,
          version: secondsOf(applied()?.get("node")?.at),
          domainUpdatedAt: secondsOf(applied()?.get("domain")?.at),
          publishTime: clock.now(),
          startupError: hasFaults(),
          config: config(),
          isDnsHealthy: health()?.results().dns?.isHealthy,
          isRepositoryReachable: repositoryState(health()),
          isSshLocal: health()?.results().isSshLocal,
        },
      ),
      ...dataPlane.facts(),
    }),
    keep,
  });
  const beating = new Beating({
    clock,
    random,
    heartbeat: (seq, connection, leftOut) =>
      buildHeartbeat(readHeartbeat(reader), {
        seq,
        at: clock.now(),
        sessionRttMs: connection.rttMs(),
        overlay: overlayBeat(dataPlane.overlay.status(), dataPlane.mesh.dataPlane()),
        queue: queueOf(spool.status(), leftOut),
      }),
  });
  return { reporting, beating };
}

/** A cable that is pulled takes no IPv4 address out of the shadow. */
function everyAddress(reader: Reader): readonly LinkAddress[] {
  const running = readAddresses();
  return [...readAddresses4(reader, running), ...running.filter(({ family }) => family === 6)];
}
