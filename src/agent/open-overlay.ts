import type { Logger } from "pino";
import type { Clock } from "../host/clock.ts";
import type { Files } from "../host/files.ts";
import { Overlay, type OverlayCounters } from "../host/overlay.ts";
import { startOverlayProcess } from "../host/overlay-process.ts";
import type { OverlayFlow } from "../protocol/overlay.ts";
import { withinDeadline } from "./reconcile/deadline.ts";
import type { AgentSettings } from "./settings.ts";

export interface OpenOverlayOptions {
  readonly settings: Pick<AgentSettings, "unit" | "overlay">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly files: Files;
  /** Something of the overlay is otherwise than it was seen last. */
  readonly onChanged: (what: string) => void;
  readonly onFlows: (flows: readonly OverlayFlow[]) => void;
}

const COUNTERS_WITHIN_MS = 5000;

/** The overlay's counters; undefined when there is none, or it does not answer soon. */
export async function readCounters(
  overlay: Overlay,
  clock: Clock,
  signal: AbortSignal,
): Promise<OverlayCounters | undefined> {
  try {
    const bounds = { clock, ms: COUNTERS_WITHIN_MS, what: "overlay: counters", signal };
    return await withinDeadline(bounds, (signal) => overlay.counters(signal));
  } catch {
    return undefined;
  }
}

/** The agent's side of the overlay: a managed install has it run by its own unit, any other has the agent start it. */
export function openOverlay({ settings, clock, log, files, onChanged, onFlows }: OpenOverlayOptions): Overlay {
  const { stateDir, runDir } = settings.overlay;
  const component = log.child({ component: "overlay" });
  return new Overlay({
    clock,
    log: component,
    files,
    stateDir,
    runDir,
    ...(settings.unit === undefined ? { start: () => startOverlayProcess(stateDir, runDir) } : {}),
    onChanged,
    onFlows,
    onFault: (message) => component.error({ reason: message }, "the overlay reports a fault"),
  });
}
