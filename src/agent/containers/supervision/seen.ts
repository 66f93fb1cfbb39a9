import type { EngineStanding } from "../../../host/engine/cache.ts";
import type { ContainerSummary, EngineInfo } from "../../../host/engine/engine.ts";
import type { DefinitionRow } from "../model/ledger.ts";
import type { Standing } from "../model/standing.ts";
import type { Tampered } from "./upholding.ts";
import type { Wanted } from "../model/wanted.ts";

/** What is known of one definition. */
export interface WorkView {
  readonly id: string;
  readonly row: DefinitionRow | undefined;
  /** Undefined until somebody said so since the agent began. */
  readonly wanted: Wanted | undefined;
  readonly standing: Standing;
  readonly since: number;
  /** Of its container, of the limits it was given last. */
  readonly limits: string | undefined;
  /** What its container was given of the machine when it was made, as `privilegesText` writes it. */
  readonly privileges?: string | undefined;
  /** Limits that its container was not given, and why. */
  readonly refusedLimits?: { readonly limits: string; readonly reason: string } | undefined;
  /** Why its image could not be compared with the registry's when it was started last. */
  readonly unaskedImage?: { readonly reference: string; readonly reason: string } | undefined;
  /** Changes that somebody made to its container at the engine. */
  readonly tampered?: Tampered | undefined;
  /** Fields that the engine does not set as requested. */
  readonly unsetFields?: readonly string[];
  readonly container: ContainerSummary | undefined;
  /** How often the kernel killed a process of it for want of memory. */
  readonly oomKills: number;
}

/** What a pass sees. */
export interface Seen {
  readonly engine: EngineStanding | { readonly state: "unused" };
  readonly info: EngineInfo | undefined;
  readonly now: number;
  /** By definition. */
  readonly works: ReadonlyMap<string, WorkView>;
  /** Containers that only claim to be ours. */
  readonly foreign: readonly ContainerSummary[];
}
