import type { OverlayListener } from "../../protocol/overlay/overlay.ts";
import type { OwnSockets } from "../dial/own-sockets.ts";
import type { BindingState } from "./tcp.ts";

/** A socket for one address and port. */
export interface Binding {
  readonly address: string;
  readonly port: number;
  readonly state: BindingState;
  /** Starts listening unless already listening. Never rejects. */
  open(isBeside: boolean): Promise<void>;
  close(): void;
}

export interface BindingsOptions {
  readonly own: OwnSockets;
  /** Reports whether a predecessor of this overlay holds the address, so that the new socket has to share it. */
  readonly isBeside: (protocol: "tcp" | "udp", address: string, port: number) => boolean;
}

type Place = Pick<OverlayListener, "addresses" | "port">;

/** The sockets of one listener, one per address. Listening sockets are registered as this overlay's own. */
export class Bindings<B extends Binding> {
  readonly #protocol: OverlayListener["protocol"];
  readonly #make: (address: string, port: number) => B;
  readonly #own: OwnSockets;
  readonly #isBeside: BindingsOptions["isBeside"];
  readonly #byAddress = new Map<string, B>();

  constructor(
    protocol: OverlayListener["protocol"],
    { own, isBeside }: BindingsOptions,
    make: (address: string, port: number) => B,
  ) {
    this.#protocol = protocol;
    this.#make = make;
    this.#own = own;
    this.#isBeside = isBeside;
  }

  /** State of each address. */
  get states(): readonly Pick<Binding, "address" | "state">[] {
    return [...this.#byAddress.values()].map(({ address, state }) => ({ address, state }));
  }

  /** Binds the sockets that are not bound; failures show in `states`. */
  async open({ addresses, port }: Place): Promise<void> {
    for (const address of addresses) {
      if (!this.#byAddress.has(address)) this.#byAddress.set(address, this.#make(address, port));
    }
    const opened = [...this.#byAddress.values()].map(async (binding) => {
      await binding.open(this.#isBeside(this.#protocol, binding.address, binding.port));
      if (binding.state.at === "listening") this.#own.add(this.#protocol, binding.address, binding.port);
    });
    await Promise.all(opened);
  }

  /** Closes every socket that is not at the given addresses and port. */
  keepOnly({ addresses, port }: Place): void {
    for (const binding of this.#byAddress.values()) {
      if (binding.port === port && addresses.includes(binding.address)) continue;
      this.#byAddress.delete(binding.address);
      this.#disown(binding);
      binding.close();
    }
  }

  close(): void {
    this.keepOnly({ addresses: [], port: 0 });
  }

  /** Removes the sockets without closing them and returns them; the caller closes them. */
  release(): readonly B[] {
    const bindings = [...this.#byAddress.values()];
    this.#byAddress.clear();
    for (const binding of bindings) this.#disown(binding);
    return bindings;
  }

  /** A socket that failed to bind is not registered: its address may belong to another listener. */
  #disown({ state, address, port }: B): void {
    if (state.at === "listening") this.#own.remove(this.#protocol, address, port);
  }
}
