import type { Clock } from "../../../host/clock.ts";
import type { Connected } from "./tunnel.ts";

const CHECK_MS = 5000;
/** So many looks in a row without a byte, though asked for one. */
const MAX_SILENT = 3;

/**
 * Asks the other end of a session now and then whether it is there, and ends the session when nothing comes any more: the hops below
 * may all be well and yet pass nothing on. One without streams is left alone.
 */
export function watchTunnel(clock: Clock, { session, socket }: Connected, isBusy: () => boolean): void {
  if (socket === undefined) return;
  let seen = -1;
  let silent = 0;
  let cancel: (() => void) | undefined;
  const check = (): void => {
    const { bytesRead } = socket;
    silent = bytesRead === seen && isBusy() ? silent + 1 : 0;
    seen = bytesRead;
    if (silent > MAX_SILENT && !session.closed) {
      session.destroy(new Error("the other node does not answer any more"));
      return;
    }
    // Node takes back the probes of a session that is closing, and its flows may be quiet.
    if (session.closed) return;
    if (silent > 0) session.ping(() => undefined);
    cancel = clock.after(CHECK_MS, check);
  };
  cancel = clock.after(CHECK_MS, check);
  session.once("close", () => cancel?.());
}
