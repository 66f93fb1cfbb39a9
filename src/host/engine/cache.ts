import type { ContainerSummary } from "./engine.ts";

export type EngineStanding =
  | { readonly state: "unknown" }
  | { readonly state: "well"; readonly since: number }
  /** Times in Unix milliseconds; what was known stays known meanwhile. */
  | { readonly state: "unwell"; readonly since: number; readonly reason: string };

/** The containers that carry our owner label, kept current by the engine's events and a full list now and then. */
export interface EngineCache {
  readonly standing: EngineStanding;
  /** Number of connections to the engine's events: while it stays the same, no event was missed. */
  readonly connections: number;
  /** By engine id; the last that was known while the engine is unwell. */
  readonly containers: ReadonlyMap<string, ContainerSummary>;
  /** Told of every change of a container or of the standing, after it is in the cache. */
  onChange(listener: (change: EngineChange) => void): void;
  /** Resolves with a list that begins no earlier than the call; all who wait share it. Rejects as the engine does. */
  refresh(signal: AbortSignal): Promise<void>;
  close(): void;
}

export type EngineChange =
  | { readonly kind: "standing" }
  | { readonly kind: "listed" }
  | { readonly kind: "event"; readonly id: string; readonly action: string; readonly exitCode: number | undefined };
