import type { ContainerOutput } from "../../protocol/documents/telemetry.ts";

/** Retention of container output, and the allowed lead of a node's clock, in seconds. */
export const OUTPUT_SECONDS = 30 * 24 * 3600;
const AHEAD_SECONDS = 24 * 3600;

/** Drops records outside the retention period. Pure. */
export function keptOutput(records: readonly ContainerOutput[], nowSeconds: number): readonly ContainerOutput[] {
  return records.filter(({ at }) => at / 1000 > nowSeconds - OUTPUT_SECONDS && at / 1000 <= nowSeconds + AHEAD_SECONDS);
}
