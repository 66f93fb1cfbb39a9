/** The options that the runtime accepts beyond its declared types. */
interface KeptAlive {
  setKeepAlive(enable: boolean, initialDelayMs: number, intervalMs: number, count: number): unknown;
}

/**
 * Has the kernel end a connection whose peer has vanished (RFC 9293 §3.8.4): a peer that was silent for 60 s is asked six times, every
 * 10 s. Every TCP connection of the overlay has this, so that a vanished client holds a flow for two minutes.
 */
export function keepAlive(socket: KeptAlive): void {
  socket.setKeepAlive(true, 60_000, 10_000, 6);
}
