import type { ContainerOutput } from "../../protocol/documents/telemetry.ts";

/** How long the output of containers is kept, and how far a node's clock may be ahead. */
export const OUTPUT_SECONDS = 30 * 24 * 3600;
const AHEAD_SECONDS = 24 * 3600;

/** Leaves out records from outside the time that is kept. Pure. */
export function keptOutput(records: readonly ContainerOutput[], nowSeconds: number): readonly ContainerOutput[] {
  return records.filter(({ at }) => at / 1000 > nowSeconds - OUTPUT_SECONDS && at / 1000 <= nowSeconds + AHEAD_SECONDS);
}
