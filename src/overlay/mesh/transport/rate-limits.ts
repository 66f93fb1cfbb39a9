import type { Clock } from "../../../host/clock.ts";
import type { OverlayMesh } from "../../../protocol/overlay/mesh.ts";
import { RateLimiter } from "../../limits/rate-limiter.ts";
import { defined } from "../../../lib/defined.ts";

/** What is read from tunnels passes `in`, and what is sent into them `out`. */
export interface TunnelLimiters {
  readonly in: RateLimiter;
  readonly out: RateLimiter;
}

/** The node's limits over all tunnels together: `in` for what is read from them, `out` for what is read to be sent into them. */
export class MeshLimiters implements TunnelLimiters {
  readonly in: RateLimiter;
  readonly out: RateLimiter;
  #rates: Pick<OverlayMesh, "ingressBitsPerSecond" | "egressBitsPerSecond"> = {};

  constructor(clock: Clock) {
    this.in = new RateLimiter(clock, undefined);
    this.out = new RateLimiter(clock, undefined);
  }

  /** Puts other rates into force, for what runs too. */
  apply(mesh: OverlayMesh | undefined): void {
    const { ingressBitsPerSecond, egressBitsPerSecond } = mesh ?? {};
    if (ingressBitsPerSecond !== this.#rates.ingressBitsPerSecond) this.in.setRate(ingressBitsPerSecond);
    if (egressBitsPerSecond !== this.#rates.egressBitsPerSecond) this.out.setRate(egressBitsPerSecond);
    this.#rates = {
      ...defined({ ingressBitsPerSecond, egressBitsPerSecond }),
    };
  }

  close(): void {
    this.in.close();
    this.out.close();
  }
}
