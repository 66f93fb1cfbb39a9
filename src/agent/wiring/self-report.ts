import { wallTimes, type Clock } from "../../host/clock.ts";
import type { Overlay } from "../../host/overlay/client.ts";
import type { Reader } from "../../host/reader.ts";
import type { Health, Status } from "../../protocol/local/answers.ts";
import type { WhyReport } from "../../protocol/documents/reconcile.ts";
import type { AcceptedDocuments } from "../applying/accepted-documents.ts";
import type { Applying } from "../applying/applying.ts";
import type { FaultList } from "../faults/fault.ts";
import type { Forgeries } from "../faults/forgeries.ts";
import type { StorageWatch } from "../faults/storage.ts";
import type { AgentSettings } from "../settings.ts";
import type { DesiredDocuments } from "../shadow/desired.ts";
import type { DocumentSync } from "../shadow/document-sync.ts";
import { repositoryState, usedRatioOf } from "../status/gathering.ts";
import { judge, type Judgement } from "../status/judgement.ts";
import { buildStatus, identityReasons, type Gathered } from "../status/status.ts";
import { clockReasons, type KnownTime } from "../telemetry/known-time.ts";
import { readProcess } from "../telemetry/metrics/process-readings.ts";
import type { Spool } from "../telemetry/spool.ts";
import type { Upgrades } from "../upgrades/upgrades.ts";
import type { openMachine } from "./machine.ts";
import type { OpenedOverlay } from "./overlay.ts";
import type { AgentSignals } from "./signals.ts";

export interface SelfReportOptions {
  readonly clock: Clock;
  readonly reader: Reader;
  readonly settings: Pick<AgentSettings, "stateDir" | "runDir">;
  /** Monotonic milliseconds. */
  readonly begunAt: number;
  readonly isPersistent: boolean;
  readonly documents: Pick<DesiredDocuments, "current" | "deletedAt" | "unsaved">;
  readonly applying: Pick<Applying, "committing" | "why">;
  readonly accepted: Pick<AcceptedDocuments, "applied" | "faults">;
  readonly sync: Pick<DocumentSync, "faults">;
  readonly forgeries: Pick<Forgeries, "count">;
  readonly spool: Pick<Spool, "status">;
  readonly overlay: Pick<Overlay, "status">;
  readonly mesh: OpenedOverlay["mesh"];
  readonly faults: Pick<FaultList, "all">;
  readonly storage: Pick<StorageWatch, "refusal">;
  readonly machine: ReturnType<typeof openMachine>;
  readonly upgrades: Pick<Upgrades, "status" | "why">;
  readonly time: KnownTime;
  readonly signals: Pick<AgentSignals, "registration" | "session" | "health">;
}

/** The agent's reports about itself, from memory. */
export interface SelfReport {
  status(): Status;
  health(): Health;
  why(): WhyReport;
}

export function selfReport(options: SelfReportOptions): SelfReport {
  const { clock, applying, upgrades, time } = options;
  const wall = wallTimes(clock);
  /** Monotonic milliseconds. */
  const failingSince = new Map<string, number>();
  function judgement(): Judgement {
    const gathered = gather(options);
    const at = clock.elapsed();
    const status = buildStatus(gathered);
    const reasons = [...identityReasons(status), ...clockReasons(time), ...upgrades.why(applying.why()).reasons];
    const failing = new Set<string>();
    const judged = judge({ ...gathered, status }, reasons, (name) => {
      failing.add(name);
      if (!failingSince.has(name)) failingSince.set(name, at);
      return wall.of(failingSince.get(name) ?? at);
    });
    for (const name of failingSince.keys()) if (!failing.has(name)) failingSince.delete(name);
    return judged;
  }
  return {
    status: () => buildStatus(gather(options)),
    health: () => judgement().health,
    why: () => judgement().why,
  };
}

/** Reads the state of every part of the agent. */
function gather(options: SelfReportOptions): Gathered {
  const { clock, reader, settings, begunAt, documents, accepted, faults, storage, signals } = options;
  const wall = wallTimes(clock);
  const registration = signals.registration.current;
  const session = signals.session.current;
  const health = signals.health.current;
  return {
    now: clock.now(),
    startedAt: wall.of(begunAt),
    uptimeMs: clock.elapsed() - begunAt,
    stateDir: settings.stateDir,
    runDir: settings.runDir,
    registration,
    session:
      session === undefined
        ? { state: "unregistered", since: wall.of(begunAt), attempt: 0 }
        : { ...session.status(), url: registration?.node.session ?? "" },
    desired: documents.current,
    deletedAt: documents.deletedAt,
    applied: accepted.applied,
    pendingChange: options.applying.committing.pending(),
    upgrade: options.upgrades.status,
    telemetry: options.spool.status(),
    network: options.machine.engine,
    overlay: options.overlay.status(),
    dataPlane: options.mesh.dataPlane(),
    process: readProcess(reader),
    faults: [...faults.all, ...options.sync.faults, ...accepted.faults],
    clockOffsetSeconds: options.time.offsetSeconds(),
    clockBehind: options.time.refresh(),
    storageRefusal: storage.refusal,
    unsavedDocuments: documents.unsaved,
    diskUsedRatio: usedRatioOf(reader.space("/")),
    isStatePersistent: options.isPersistent,
    dns: health?.results().dns?.isHealthy,
    repository: repositoryState(health),
    ssh: health?.results().isSshLocal,
    refusedSignatures: options.forgeries.count,
  };
}
