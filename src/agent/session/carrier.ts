import { isIPv4 } from "node:net";
import type { Dialler } from "../../host/net/dial.ts";
import type { Carrier } from "../sections/network/actual.ts";

/** A dialler for the control session that remembers the local address of the socket it opened last. */
export interface CarryingDialler extends Dialler {
  /** Undefined before the first socket, and if that uses IPv6. */
  carrier(): Carrier | undefined;
}

/** Remembers the local address from which the control plane was reached. */
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
