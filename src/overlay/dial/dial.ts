import { isIP, Socket, type OnReadOpts } from "node:net";
import type { Clock } from "../../host/clock.ts";
import type { OverlayReason } from "../../protocol/overlay/overlay.ts";
import { withoutAvoided, type Avoided } from "./avoided.ts";
import type { NameCache } from "./name-cache.ts";
import type { OwnSockets } from "./own-sockets.ts";
import { keepAlive } from "./keep-alive.ts";
import { connectReason } from "./reasons.ts";

/** Target of a flow. */
export interface DialTarget {
  /** Name shown in flow records. */
  readonly label: string;
  readonly host: string;
  readonly port: number;
  readonly sourceAddress: string | undefined;
  /** Limit for all addresses together, in milliseconds. */
  readonly connectTimeoutMs: number;
  /** Addresses that must not be dialled, because another node requested the dial. */
  readonly avoids?: Avoided;
}

/** Callbacks of a dial; exactly one of them is called, unless the dial is cancelled. */
export interface DialUser {
  /** Read options of the socket; without them the socket allocates its buffers itself. */
  readonly onread?: OnReadOpts;
  /** Receives the connected socket, which keeps half-closes and has no listeners. */
  connected(socket: Socket, address: string): void;
  failed(reason: OverlayReason): void;
}

/** A dial in progress. */
export interface Dial {
  cancel(): void;
}

export interface DialerOptions {
  readonly clock: Clock;
  readonly names: NameCache;
  readonly own: OwnSockets;
}

/** Precision of timeouts; one timer serves all dials. */
const TICK_MS = 100;

/** Opens TCP connections: tries the addresses of a name in order, but never this overlay's own sockets. */
export class Dialer {
  readonly #options: DialerOptions;
  readonly #running = new Set<RunningDial>();
  #cancelTick: (() => void) | undefined;

  constructor(options: DialerOptions) {
    this.#options = options;
  }

  /** Starts a dial; may call `user` before it returns. */
  dial(target: DialTarget, user: DialUser): Dial {
    const dial = new RunningDial(this.#options, target, user, (ended) => this.#running.delete(ended));
    this.#running.add(dial);
    dial.begin();
    this.#arm();
    return dial;
  }

  #arm(): void {
    if (this.#running.size === 0 || this.#cancelTick !== undefined) return;
    this.#cancelTick = this.#options.clock.after(TICK_MS, () => {
      this.#cancelTick = undefined;
      const now = this.#options.clock.elapsed();
      for (const dial of this.#running) dial.tick(now);
      this.#arm();
    });
  }
}

class RunningDial implements Dial {
  readonly #options: DialerOptions;
  readonly #target: DialTarget;
  readonly #user: DialUser;
  readonly #onEnd: (dial: RunningDial) => void;
  readonly #deadline: number;
  #attemptDeadline = Infinity;
  #addresses: readonly string[] = [];
  #next = 0;
  #socket: Socket | undefined;
  #reason: OverlayReason = "resolve-failed";
  #isOver = false;

  constructor(options: DialerOptions, target: DialTarget, user: DialUser, onEnd: (dial: RunningDial) => void) {
    this.#options = options;
    this.#target = target;
    this.#user = user;
    this.#onEnd = onEnd;
    this.#deadline = options.clock.elapsed() + target.connectTimeoutMs;
  }

  begin(): void {
    const { host, avoids } = this.#target;
    if (isIP(host) === 0) this.#resolve(host).catch(() => this.#fail("resolve-failed"));
    else if (avoids === undefined) this.#tryAll([host]);
    else this.#tryPermitted([host]).catch(() => this.#fail("other"));
  }

  tick(now: number): void {
    if (now >= this.#deadline) {
      this.#fail(this.#socket === undefined ? "resolve-failed" : "connect-timeout");
    } else if (now >= this.#attemptDeadline) {
      this.#dropSocket();
      this.#reason = "connect-timeout";
      this.#tryNext();
    }
  }

  cancel(): void {
    this.#isOver = true;
    this.#dropSocket();
    this.#onEnd(this);
  }

  async #resolve(name: string): Promise<void> {
    const addresses = await this.#options.names.resolve(name);
    await this.#tryPermitted(addresses);
  }

  async #tryPermitted(all: readonly string[]): Promise<void> {
    const { avoids } = this.#target;
    const { addresses, reason } = await withoutAvoided(avoids, all, this.#options.own.localAddresses);
    if (this.#isOver) return;
    if (reason !== undefined && addresses.length === 0) this.#fail(reason);
    else this.#tryAll(addresses);
  }

  #tryAll(addresses: readonly string[]): void {
    const { port, sourceAddress } = this.#target;
    const family = sourceAddress === undefined ? 0 : isIP(sourceAddress);
    const fitting = family === 0 ? addresses : addresses.filter((address) => isIP(address) === family);
    if (addresses.length > 0) this.#reason = "unreachable";
    this.#addresses = fitting.filter((address) => !this.#options.own.leadsHere("tcp", address, port));
    if (this.#addresses.length < fitting.length) this.#reason = "loop";
    this.#tryNext();
  }

  #tryNext(): void {
    const address = this.#addresses[this.#next];
    if (address === undefined) return this.#fail(this.#reason);
    this.#next += 1;
    const left = this.#addresses.length - this.#next;
    if (left > 0) {
      const now = this.#options.clock.elapsed();
      this.#attemptDeadline = now + (this.#deadline - now) / (left + 1);
    } else this.#attemptDeadline = Infinity;
    this.#connect(address);
  }

  #connect(host: string): void {
    const { port, sourceAddress } = this.#target;
    const { onread } = this.#user;
    const socket = new Socket(onread === undefined ? { allowHalfOpen: true } : { allowHalfOpen: true, onread });
    this.#socket = socket;
    socket.once("connect", this.#onConnect);
    socket.once("error", this.#onError);
    const options = { host, port, noDelay: true };
    socket.connect(sourceAddress === undefined ? options : { ...options, localAddress: sourceAddress });
  }

  readonly #onConnect = (): void => {
    const socket = this.#socket;
    if (socket === undefined) return;
    socket.off("error", this.#onError);
    keepAlive(socket);
    this.#socket = undefined;
    this.#isOver = true;
    this.#onEnd(this);
    this.#user.connected(socket, this.#addresses[this.#next - 1] ?? "");
  };

  readonly #onError = (error: Error): void => {
    this.#socket = undefined;
    this.#reason = connectReason(error, this.#target.sourceAddress !== undefined);
    this.#tryNext();
  };

  #fail(reason: OverlayReason): void {
    if (this.#isOver) return;
    this.cancel();
    // The name may have new addresses: resolve it again before the time to live of the failed ones ends.
    this.#options.names.expireSoon(this.#target.host);
    this.#user.failed(reason);
  }

  #dropSocket(): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    this.#socket = undefined;
    socket.off("connect", this.#onConnect).off("error", this.#onError);
    socket.on("error", () => undefined).destroy();
  }
}
