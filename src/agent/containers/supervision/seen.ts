import type { EngineStanding } from "../../../host/engine/cache.ts";
import type { ContainerSummary, EngineInfo } from "../../../host/engine/engine.ts";
import type { DefinitionRow } from "../model/ledger.ts";
import type { Standing } from "../model/standing.ts";
import type { Tampered } from "./running-settings.ts";
import type { Wanted } from "../model/wanted.ts";

/** Snapshot of one definition. */
export interface WorkView {
  readonly id: string;
  readonly row: DefinitionRow | undefined;
  /** Undefined until set since the agent started. */
  readonly wanted: Wanted | undefined;
  readonly standing: Standing;
  readonly since: number;
  /** Hash of its container's last applied limits. */
  readonly limits: string | undefined;
  /** Privileges of its container, as `privilegesText` writes them. */
  readonly privileges?: string | undefined;
  /** Refused limits of its container, with the reason. */
  readonly refusedLimits?: { readonly limits: string; readonly reason: string } | undefined;
  /** Reason why its image could not be compared with the registry at the last start. */
  readonly unaskedImage?: { readonly reference: string; readonly reason: string } | undefined;
  /** Changes made to its container at the engine by others. */
  readonly tampered?: Tampered | undefined;
  /** Fields that the engine does not set as requested. */
  readonly unsetFields?: readonly string[];
  readonly container: ContainerSummary | undefined;
  /** Out-of-memory kills. */
  readonly oomKills: number;
}

/** Observation of a pass. */
export interface Seen {
  readonly engine: EngineStanding | { readonly state: "unused" };
  readonly info: EngineInfo | undefined;
  readonly now: number;
  /** Returns the rows of a definition. */
  readonly works: ReadonlyMap<string, WorkView>;
  /** Containers with our label that the ledger does not know. */
  readonly foreign: readonly ContainerSummary[];
}
