import type { ContainerSummary } from "./engine.ts";

export type EngineStanding =
  | { readonly state: "unknown" }
  | { readonly state: "well"; readonly since: number }
  /** Unix milliseconds. The cached containers stay available. */
  | { readonly state: "unwell"; readonly since: number; readonly reason: string };

/** The containers with our owner label, kept current by the engine's events and a periodic full list. */
export interface EngineCache {
  readonly standing: EngineStanding;
  /** Number of connections to the engine's events. No event was missed while it stays the same. */
  readonly connections: number;
  /** Containers by engine id; the last known ones while the engine is unwell. */
  readonly containers: ReadonlyMap<string, ContainerSummary>;
  /** Calls `listener` after each change of a container or of the engine's state. */
  onChange(listener: (change: EngineChange) => void): void;
  /** Resolves with a list that starts after the call; concurrent callers share it. Rejects with the engine's error. */
  refresh(signal: AbortSignal): Promise<void>;
  close(): void;
}

export type EngineChange =
  | { readonly kind: "standing" }
  | { readonly kind: "listed" }
  | { readonly kind: "event"; readonly id: string; readonly action: string; readonly exitCode: number | undefined };
