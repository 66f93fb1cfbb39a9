import type { Clock } from "../../../host/clock.ts";
import type { OverlayMesh } from "../../../protocol/overlay/mesh.ts";
import { RateLimiter, type TwoWayLimiters } from "../../limits/rate-limiter.ts";
import { defined } from "../../../lib/defined.ts";

/** The node's rate limits over all tunnels. */
export class MeshLimiters implements TwoWayLimiters {
  readonly in: RateLimiter;
  readonly out: RateLimiter;
  #rates: Pick<OverlayMesh, "ingressBitsPerSecond" | "egressBitsPerSecond"> = {};

  constructor(clock: Clock) {
    this.in = new RateLimiter(clock, undefined);
    this.out = new RateLimiter(clock, undefined);
  }

  /** Applies other rates, also to running flows. */
  apply(mesh: OverlayMesh | undefined): void {
    const { ingressBitsPerSecond, egressBitsPerSecond } = mesh ?? {};
    if (ingressBitsPerSecond !== this.#rates.ingressBitsPerSecond) this.in.setRate(ingressBitsPerSecond);
    if (egressBitsPerSecond !== this.#rates.egressBitsPerSecond) this.out.setRate(egressBitsPerSecond);
    this.#rates = defined({ ingressBitsPerSecond, egressBitsPerSecond });
  }

  close(): void {
    this.in.close();
    this.out.close();
  }
}
