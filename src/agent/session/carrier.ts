import { isIPv4 } from "node:net";
import type { Dialler } from "../../host/net/dial.ts";
import type { Carrier } from "../sections/network/actual.ts";

/** A dialler for the control session that knows the ends of the socket it opened last. */
export interface CarryingDialler extends Dialler {
  /** Undefined before the first, and for one that is not of IPv4. */
  carrier(): Carrier | undefined;
}

/** Remembers which address of this machine the control plane was reached from. */
export function carryingDialler(dialler: Dialler): CarryingDialler {
  let carrier: Carrier | undefined;
  return {
    async dial(request, signal) {
      const dialled = await dialler.dial(request, signal);
      const { localAddress: local = "", remoteAddress: remote = "" } = dialled.socket;
      carrier = isIPv4(local) && isIPv4(remote) ? { local, remote } : undefined;
      return dialled;
    },
    carrier: () => carrier,
  };
}
