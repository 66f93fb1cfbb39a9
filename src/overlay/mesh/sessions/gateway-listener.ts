import type { Clock } from "../../../host/clock.ts";
import type { MeshServer as ServerPlace, ServerState } from "../../../protocol/overlay/mesh.ts";
import { Bindings, type BindingsOptions } from "../../bindings/bindings.ts";
import { TcpBinding, type BindingUser } from "../../bindings/tcp.ts";

export interface GatewayListenerOptions extends BindingsOptions {
  readonly clock: Clock;
  readonly user: BindingUser;
  /** Called when the state of the listener has changed. */
  readonly onChanged: () => void;
}

type Place = Pick<ServerPlace, "addresses" | "port">;
type Sockets = Bindings<TcpBinding>;

/** Time for which a replaced address stays open, until the dialling nodes know the new one. */
const KEPT_MS = 120_000;
const RETRY_MS = 5000;

/** Listens for the gateway. Opens a new address before it closes the old one; retries a failed one indefinitely. */
export class GatewayListener {
  readonly #options: GatewayListenerOptions;
  readonly #byPort = new Map<number, { readonly sockets: Sockets; cancel: (() => void) | undefined }>();
  #place: Place | undefined;
  #cancelRetry: (() => void) | undefined;
  #reported = "";

  constructor(options: GatewayListenerOptions) {
    this.#options = options;
  }

  get state(): Pick<ServerState, "state" | "reason" | "message"> {
    if (this.#place === undefined) return { state: "off" };
    for (const { address, state } of this.#byPort.get(this.#place.port)?.sockets.states ?? []) {
      if (state.at !== "failed" || !this.#place.addresses.includes(address)) continue;
      return { state: "failed", reason: state.reason, message: `${address}: ${state.message}`.slice(0, 1024) };
    }
    return { state: "listening" };
  }

  /** Listens at `place`; if undefined, closes all sockets. Resolves when every socket is bound or has failed. */
  async move(place: Place | undefined): Promise<void> {
    this.#place = place;
    if (place === undefined) this.#closeAll();
    else await this.#open(place);
    this.#reportState();
  }

  /** Retries after a failure. */
  async retry(): Promise<void> {
    if (this.#place !== undefined && this.state.state === "failed") await this.move(this.#place);
  }

  /** Stops accepting, except for connections that the kernel has already accepted. */
  async stop(): Promise<void> {
    this.#place = undefined;
    this.#cancelRetry?.();
    const all = [...this.#byPort.values()];
    this.#byPort.clear();
    for (const { cancel } of all) cancel?.();
    await Promise.all(all.flatMap(({ sockets }) => sockets.release().map((binding) => binding.closeAfterBacklog())));
  }

  close(): void {
    this.#place = undefined;
    this.#closeAll();
  }

  async #open(place: Place): Promise<void> {
    const entry = this.#byPort.get(place.port) ?? { sockets: this.#newSockets(), cancel: undefined };
    entry.cancel?.();
    entry.cancel = undefined;
    this.#byPort.set(place.port, entry);
    await entry.sockets.open(place);
    if (this.#place !== place) return;
    // A failure at a replaced address must not be retried.
    const isOpen = this.state.state === "listening";
    if (isOpen) this.#leaveOthers(place);
    else this.#retryLater();
  }

  /** Schedules the close of sockets at other addresses. */
  #leaveOthers(place: Place): void {
    for (const [port, entry] of this.#byPort) {
      const has = entry.sockets.states.some(({ address }) => port !== place.port || !place.addresses.includes(address));
      if (!has) continue;
      entry.cancel ??= this.#options.clock.after(KEPT_MS, () => {
        entry.cancel = undefined;
        if (port === this.#place?.port) return entry.sockets.keepOnly(this.#place);
        entry.sockets.close();
        this.#byPort.delete(port);
      });
    }
  }

  #newSockets(): Sockets {
    const { own, isBeside, user } = this.#options;
    const beside: BindingsOptions["isBeside"] = (protocol, address, port) =>
      isBeside(protocol, address, port) || this.#holds(port);
    return new Bindings("tcp", { own, isBeside: beside }, (address, port) => new TcpBinding(address, port, user));
  }

  /** Reports whether this gateway already listens on the port, at an address that may cover the new one. */
  #holds(port: number): boolean {
    return this.#byPort.get(port)?.sockets.states.some(({ state }) => state.at === "listening") === true;
  }

  #retryLater(): void {
    this.#cancelRetry?.();
    this.#cancelRetry = this.#options.clock.after(RETRY_MS, () => void this.retry());
  }

  #closeAll(): void {
    this.#cancelRetry?.();
    for (const { sockets, cancel } of this.#byPort.values()) {
      cancel?.();
      sockets.close();
    }
    this.#byPort.clear();
  }

  #reportState(): void {
    const state = JSON.stringify(this.state);
    if (state === this.#reported) return;
    this.#reported = state;
    this.#options.onChanged();
  }
}
