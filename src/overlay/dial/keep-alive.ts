/** Options that the runtime accepts beyond its declared types. */
interface KeptAlive {
  setKeepAlive(enable: boolean, initialDelayMs: number, intervalMs: number, count: number): unknown;
}

/**
 * Makes the kernel end a connection whose peer has vanished (RFC 9293 §3.8.4): after 60 s of silence it probes six
 * times, every 10 s. A vanished client thus holds a flow for two minutes.
 */
export function keepAlive(socket: KeptAlive): void {
  socket.setKeepAlive(true, 60_000, 10_000, 6);
}
