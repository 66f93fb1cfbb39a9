import { BoundSocket, createServer, isIP, type Server, type Socket } from "node:net";
import { toError } from "../../errors.ts";
import type { OverlayReason } from "../../protocol/overlay/overlay.ts";
import { keepAlive } from "../dial/keep-alive.ts";
import { bindReason } from "../dial/reasons.ts";

export type BindingState =
  | { readonly at: "closed" }
  | { readonly at: "opening" }
  | { readonly at: "listening" }
  | { readonly at: "failed"; readonly reason: OverlayReason; readonly message: string };

export interface BindingUser {
  accepted(socket: Socket): void;
  /** A connection was lost because the process is out of resources. */
  acceptFailed(reason: OverlayReason): void;
}

/** Larger than a burst of connects; the kernel limits it to net.core.somaxconn. */
const BACKLOG = 65_535;
const MAX_TURNS = 100_000;
/**
 * Sockets per address; the kernel distributes connects among them. The limit of 4,096 waiting connects holds for each
 * of them, and each accepts one connection per turn of the event loop.
 */
export const SOCKETS_PER_ADDRESS = 2;

/** Listens on one TCP address and port. */
export class TcpBinding {
  readonly address: string;
  readonly port: number;
  readonly #user: BindingUser;
  #state: BindingState = { at: "closed" };
  readonly #servers: Server[] = [];
  #accepted = 0;

  constructor(address: string, port: number, user: BindingUser) {
    this.address = address;
    this.port = port;
    this.#user = user;
  }

  get state(): BindingState {
    return this.#state;
  }

  /**
   * Starts listening unless already listening. Never rejects. Fails if another process holds the port, except a
   * predecessor when `isBeside`.
   */
  async open(isBeside: boolean): Promise<void> {
    if (this.#state.at === "listening" || this.#state.at === "opening") return;
    this.#state = { at: "opening" };
    try {
      await Promise.all(this.#bind(isBeside).map((bound) => this.#listen(bound)));
      if (this.#servers.length > 0) this.#state = { at: "listening" };
    } catch (thrown) {
      const error = toError(thrown);
      this.close();
      this.#state = { at: "failed", reason: bindReason(error), message: error.message };
    }
  }

  close(): void {
    this.#state = { at: "closed" };
    for (const server of this.#servers.splice(0)) server.close();
  }

  /** Stops listening when the accept queue is empty. Each turn of the event loop accepts one connection. */
  async closeAfterBacklog(): Promise<void> {
    for (let turns = 0, seen = -1; seen !== this.#accepted && turns < MAX_TURNS; turns += 1) {
      seen = this.#accepted;
      await nextTurn();
    }
    this.close();
  }

  #bind(isBeside: boolean): readonly BoundSocket[] {
    const place = { host: this.address, port: this.port, ipv6Only: isIP(this.address) === 6 };
    // A shared bind succeeds beside another process of the same user, so an exclusive bind checks first.
    if (!isBeside) new BoundSocket(place).close();
    return Array.from({ length: SOCKETS_PER_ADDRESS }, () => new BoundSocket({ ...place, reusePort: true }));
  }

  #listen(bound: BoundSocket): Promise<void> {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (socket) => {
      this.#accepted += 1;
      keepAlive(socket);
      this.#user.accepted(socket);
    });
    this.#servers.push(server);
    return new Promise((resolve, reject) => {
      // For a bound handle Node takes the backlog as an argument only and ignores it in the options.
      server.once("error", reject).listen(bound, BACKLOG, () => {
        server.off("error", reject);
        server.on("error", (error) => this.#user.acceptFailed(bindReason(error)));
        resolve();
      });
      server.once("close", resolve);
    });
  }
}

/** Resolves after the event loop has polled its sockets once more. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
}
