import type { Clock } from "../../../host/clock.ts";
import type { OverlayMesh } from "../../../protocol/overlay/mesh.ts";
import { Gate } from "../../limits/rate-limiter.ts";
import { defined } from "../../../lib/defined.ts";

/** What is read from tunnels passes `in`, and what is sent into them `out`. */
export interface TunnelGates {
  readonly in: Gate;
  readonly out: Gate;
}

/** The node's limits over all tunnels together: `in` for what is read from them, `out` for what is read to be sent into them. */
export class MeshGates implements TunnelGates {
  readonly in: Gate;
  readonly out: Gate;
  #rates: Pick<OverlayMesh, "ingressBitsPerSecond" | "egressBitsPerSecond"> = {};

  constructor(clock: Clock) {
    this.in = new Gate(clock, undefined);
    this.out = new Gate(clock, undefined);
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
