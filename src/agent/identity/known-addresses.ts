import { valueOf, type StateFile } from "../../host/files/state-file.ts";
import type { Addresses } from "./identity.ts";

const MAX_KNOWN = 8;

/** The addresses of the control plane that worked, the last one first; on disk for use when no name can be resolved. */
export class KnownAddresses {
  readonly #file: StateFile<Addresses>;
  readonly #onFault: (error: unknown) => void;
  #known: readonly string[];

  private constructor(file: StateFile<Addresses>, onFault: (error: unknown) => void, known: readonly string[]) {
    this.#file = file;
    this.#onFault = onFault;
    this.#known = known;
  }

  static async open(file: StateFile<Addresses>, onFault: (error: unknown) => void): Promise<KnownAddresses> {
    return new KnownAddresses(file, onFault, valueOf(await file.load())?.addresses ?? []);
  }

  get list(): readonly string[] {
    return this.#known;
  }

  /** Notes an address that worked. */
  reached(address: string): void {
    if (this.#known[0] === address) return;
    this.#known = [address, ...this.#known.filter((other) => other !== address)].slice(0, MAX_KNOWN);
    this.#file.save({ addresses: [...this.#known] }).catch(this.#onFault);
  }
}
