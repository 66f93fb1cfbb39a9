import type { GatewayDetails } from "../../protocol/documents/telemetry.ts";

/** How long gateway details are kept, and how far a node's clock may be ahead. */
export const DETAILS_SECONDS = 90 * 24 * 3600;
const AHEAD_SECONDS = 24 * 3600;

/** The most records one search finds; a wider one is refused, since a part would look like the whole. */
export const MAX_DETAILS_FOUND = 100_000;

/** Leaves out records of intervals outside the time that is kept. Pure. */
export function keptDetails(records: readonly GatewayDetails[], nowSeconds: number): readonly GatewayDetails[] {
  return records.filter(
    ({ time }) => time / 1000 > nowSeconds - DETAILS_SECONDS && time / 1000 <= nowSeconds + AHEAD_SECONDS,
  );
}
