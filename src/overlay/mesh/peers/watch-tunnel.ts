import type { Clock } from "../../../host/clock.ts";
import type { Connected } from "./tunnel.ts";

const CHECK_MS = 5000;
/** Consecutive checks without received bytes, despite pings, after which the session ends. */
const MAX_SILENT = 3;

/**
 * Pings the other end of a session that is in use and silent, and ends the session when nothing arrives: the hops below
 * may work without passing anything on.
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
      session.destroy(new Error("the other node stopped answering"));
      return;
    }
    // Node cancels the pings of a closing session, and its flows may be silent.
    if (session.closed) return;
    if (silent > 0) session.ping(() => undefined);
    cancel = clock.after(CHECK_MS, check);
  };
  cancel = clock.after(CHECK_MS, check);
  session.once("close", () => cancel?.());
}
