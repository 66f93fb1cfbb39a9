import { GatewayDetails, type HopDetails } from "../../../protocol/documents/telemetry.ts";
import type { RttBucket } from "../../../protocol/overlay/mesh.ts";
import type { Hop } from "./hops.ts";

/** The hops that were found, and what names them: an address without a name is its own. */
export interface NamedHops {
  readonly found: readonly Hop[];
  readonly nameOf: (ip: string) => string;
}

/**
 * The platform's record of one minute of round trips to a gateway; `node` is what people call it, and the default path is not named.
 * None where nothing was answered, or where no control plane would take it. Pure.
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

/** Microseconds are fine enough. */
function ms(value: number): number {
  return Math.round(value * 1000) / 1000;
}
