import type { Clock } from "../../../host/clock.ts";

/** How long a data connection is waited for, as at the source. */
const KEPT_MS = 30_000;
const MAX_PORTS = 64;

/** The data ports that FTP servers here have named to peers: a peer reaches these and no other, each once. */
export class AnnouncedPorts {
  readonly #clock: Pick<Clock, "elapsed">;
  readonly #byFlow = new Map<string, Map<number, number>>();

  constructor(clock: Pick<Clock, "elapsed">) {
    this.#clock = clock;
  }

  add(peer: string, service: string, port: number): void {
    const key = `${peer} ${service}`;
    const ports = this.#byFlow.get(key) ?? new Map<number, number>();
    this.#byFlow.set(key, ports);
    ports.delete(port);
    ports.set(port, this.#clock.elapsed() + KEPT_MS);
    const [oldest] = ports.keys();
    if (ports.size > MAX_PORTS && oldest !== undefined) ports.delete(oldest);
  }

  /** Whether the port was named not long ago; it is not any more after this. */
  take(peer: string, service: string, port: number): boolean {
    const key = `${peer} ${service}`;
    const ports = this.#byFlow.get(key);
    const until = ports?.get(port);
    ports?.delete(port);
    if (ports?.size === 0) this.#byFlow.delete(key);
    return until !== undefined && this.#clock.elapsed() < until;
  }

  /** Forgets the peers that are not among these. */
  keepOnly(peers: ReadonlySet<string>): void {
    for (const key of this.#byFlow.keys()) if (!peers.has(key.split(" ")[0] ?? "")) this.#byFlow.delete(key);
  }
}
