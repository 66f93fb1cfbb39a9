import type { GatewayDetails } from "../../protocol/documents/telemetry.ts";

/** Retention of gateway details, and the allowed lead of a node's clock, in seconds. */
export const DETAILS_SECONDS = 90 * 24 * 3600;
const AHEAD_SECONDS = 24 * 3600;

/** Limit of records in one search result. A search that exceeds it is rejected, because a partial result could pass for a complete one. */
export const MAX_DETAILS_FOUND = 100_000;

/** Drops records outside the retention period. Pure. */
export function keptDetails(records: readonly GatewayDetails[], nowSeconds: number): readonly GatewayDetails[] {
  return records.filter(
    ({ time }) => time / 1000 > nowSeconds - DETAILS_SECONDS && time / 1000 <= nowSeconds + AHEAD_SECONDS,
  );
}
