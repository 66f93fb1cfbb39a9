import { wallTimes, type Clock } from "../../host/clock.ts";
import type { Overlay } from "../../host/overlay/client.ts";
import type { Reader } from "../../host/reader.ts";
import type { Applying } from "../applying/applying.ts";
import type { FaultList } from "../faults/fault.ts";
import { repositoryState, usedRatioOf } from "../status/gathering.ts";
import type { KnownTime } from "../telemetry/known-time.ts";
import type { Registration } from "../identity/identity.ts";
import type { ManagedNode } from "./managed-node.ts";
import type { OpenedOverlay } from "./overlay.ts";
import { readProcess } from "../telemetry/metrics/process-readings.ts";
import type { Session } from "../session/session.ts";
import type { AgentSettings } from "../settings.ts";
import type { Desired } from "../shadow/desired.ts";
import type { Gathered } from "../status/status.ts";
import type { DocumentName } from "../../protocol/documents/claims.ts";
import type { StorageWatch } from "../faults/storage.ts";
import type { HealthChecks } from "../telemetry/conditions/health-checks.ts";
import type { Spool } from "../telemetry/spool.ts";
import type { Upgrades } from "../upgrades/upgrades.ts";
import type { watchMachine } from "./watch-machine.ts";

export interface GatherOptions {
  readonly clock: Clock;
  readonly reader: Reader;
  readonly settings: Pick<AgentSettings, "stateDir" | "runDir">;
  /** Monotonic milliseconds. */
  readonly startedAt: number;
  readonly isStatePersistent: boolean;
  readonly documents: {
    readonly current: Desired;
    readonly deletedAt: number | undefined;
    readonly unsaved: readonly DocumentName[];
  };
  readonly applying: Pick<Applying, "committing">;
  readonly spool: Pick<Spool, "status">;
  readonly overlay: Pick<Overlay, "status">;
  readonly mesh: OpenedOverlay["mesh"];
  readonly faults: Pick<FaultList, "all">;
  readonly storage: Pick<StorageWatch, "refusal">;
  readonly machine: Pick<ReturnType<typeof watchMachine>, "engine">;
  readonly upgrades: Pick<Upgrades, "status">;
  readonly node: () => ManagedNode | undefined;
  readonly registration: () => Registration | undefined;
  readonly session: () => Pick<Session, "status"> | undefined;
  readonly health: () => HealthChecks | undefined;
  readonly time: Pick<KnownTime, "look" | "offsetSeconds">;
}

/** Makes what gathers, from all parts of the agent, what people are told of it. */
export function gatherStatus(parts: GatherOptions): () => Gathered {
  const { clock, reader, settings, startedAt, documents, faults, storage, machine } = parts;
  const wall = wallTimes(clock);
  return () => {
    const node = parts.node();
    const session = parts.session();
    const health = parts.health();
    return {
      now: clock.now(),
      startedAt: wall.of(startedAt),
      uptimeMs: clock.elapsed() - startedAt,
      stateDir: settings.stateDir,
      runDir: settings.runDir,
      registration: parts.registration(),
      session:
        session === undefined
          ? { state: "unregistered", since: wall.of(startedAt), attempt: 0 }
          : { ...session.status(), url: parts.registration()?.node.session ?? "" },
      desired: documents.current,
      deletedAt: documents.deletedAt,
      applied: node?.applied ?? new Map(),
      pendingChange: parts.applying.committing.pending(),
      upgrade: parts.upgrades.status,
      telemetry: parts.spool.status(),
      network: machine.engine,
      overlay: parts.overlay.status(),
      dataPlane: parts.mesh.dataPlane(),
      process: readProcess(reader),
      faults: [...faults.all, ...(node?.faults ?? [])],
      clockOffsetSeconds: parts.time.offsetSeconds(),
      clockBehind: parts.time.look(),
      storageRefusal: storage.refusal,
      unsavedDocuments: documents.unsaved,
      diskUsedRatio: usedRatioOf(reader.space("/")),
      isStatePersistent: parts.isStatePersistent,
      dns: health?.results().dns?.isHealthy,
      repository: repositoryState(health),
      ssh: health?.results().isSshLocal,
      refusedSignatures: node?.refusedSignatures ?? 0,
    };
  };
}
