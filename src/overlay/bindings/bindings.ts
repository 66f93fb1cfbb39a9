import type { OverlayListener } from "../../protocol/overlay/overlay.ts";
import type { OwnSockets } from "../dial/own-sockets.ts";
import type { BindingState } from "./tcp.ts";

/** One address and port that is listened on, once it can be. */
export interface Binding {
  readonly address: string;
  readonly port: number;
  readonly state: BindingState;
  /** Begins to listen, unless it does; never rejects. */
  open(isBeside: boolean): Promise<void>;
  close(): void;
}

export interface BindingsOptions {
  readonly own: OwnSockets;
  /** Reports whether a predecessor of this overlay holds the address, so that the new socket has to share it. */
  readonly isBeside: (protocol: "tcp" | "udp", address: string, port: number) => boolean;
}

type Place = Pick<OverlayListener, "addresses" | "port">;

/** The sockets of one listener, one for each of its addresses; those that listen are known as this overlay's own. */
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

  /** How each address stands. */
  get states(): readonly Pick<Binding, "address" | "state">[] {
    return [...this.#byAddress.values()].map(({ address, state }) => ({ address, state }));
  }

  /** Binds what is not bound; what fails shows in its state. */
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

  /** Closes every socket that is not at this place. */
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

  /** Gives the sockets up, still open, to whoever closes them in a way of its own. */
  release(): readonly B[] {
    const bindings = [...this.#byAddress.values()];
    this.#byAddress.clear();
    for (const binding of bindings) this.#disown(binding);
    return bindings;
  }

  /** What failed to be bound may be another listener's. */
  #disown({ state, address, port }: B): void {
    if (state.at === "listening") this.#own.remove(this.#protocol, address, port);
  }
}
