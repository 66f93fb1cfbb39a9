import { GatewayDetails, type HopDetails } from "../../../protocol/documents/telemetry.ts";
import type { RttBucket } from "../../../protocol/overlay/mesh.ts";
import type { Hop } from "./hops.ts";

/** Hops of a path and their names; an address without a name stands for itself. */
export interface NamedHops {
  readonly found: readonly Hop[];
  readonly nameOf: (ip: string) => string;
}

/**
 * Builds the platform's record of one minute of round trips to a gateway; `node` is the display name, and the default path is not named.
 * Undefined without answers, or if no control plane would accept it. Pure.
 */
export function gatewayDetails(
  { path, time, numRtt, answered, minRtt, maxRtt, meanRtt, stdRtt }: RttBucket,
  node: string,
  isDefault: boolean,
  { found, nameOf }: NamedHops,
): GatewayDetails | undefined {
  if (answered === 0) return undefined;
  const statistics = { numRtt, minRtt: ms(minRtt), maxRtt: ms(maxRtt), meanRtt: ms(meanRtt), stdRtt: ms(stdRtt) };
  const record = {
    time,
    node,
    ...statistics,
    ...(isDefault || path === "" ? {} : { path }),
    ...(found.length === 0 ? {} : { hops: found.map((hop) => hopRecord(hop, nameOf(hop.ip))) }),
  };
  return GatewayDetails.safeParse(record).data;
}

function hopRecord({ hop, ip, minRtt, maxRtt, meanRtt, numRtt }: Hop, fqdn: string): HopDetails {
  return { hop, ip, fqdn, minRtt: ms(minRtt), maxRtt: ms(maxRtt), meanRtt: ms(meanRtt), numRtt };
}

/** Rounds to microseconds. */
function ms(value: number): number {
  return Math.round(value * 1000) / 1000;
}
