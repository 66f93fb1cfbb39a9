import { createServer, type Server } from "node:net";
import type { Clock } from "../clock.ts";

/** The abstract socket (unix(7)) that the owner of a network namespace holds; it ends with its process. */
export const OWNER_SOCKET = "\0holdfast-host";

const RETRY_MS = 30_000;

export interface MachineOwnerOptions {
  readonly clock: Clock;
  /** Called when the machine became ours after it was another's. */
  readonly onOwned: () => void;
  readonly name?: string;
}

/** Who runs the network of this machine: of several agents in one network namespace the first, and after it another. */
export class MachineOwner {
  readonly #options: MachineOwnerOptions;
  #server: Server | undefined;
  #isClosed = false;
  #takeBack: () => void = () => undefined;

  constructor(options: MachineOwnerOptions) {
    this.#options = options;
  }

  get isOwner(): boolean {
    return this.#server !== undefined;
  }

  /** Tries to become the owner; goes on trying while another is, and tells when it worked. */
  async claim(): Promise<boolean> {
    if (this.#isClosed || this.#server !== undefined) return this.isOwner;
    this.#server = await bound(this.#options.name ?? OWNER_SOCKET);
    if (this.#isClosed) this.close();
    else if (this.#server === undefined) this.#takeBack = this.#options.clock.after(RETRY_MS, () => void this.#again());
    return this.isOwner;
  }

  close(): void {
    this.#isClosed = true;
    this.#takeBack();
    this.#server?.close();
    this.#server = undefined;
  }

  async #again(): Promise<void> {
    if (await this.claim()) this.#options.onOwned();
  }
}

/** The listening socket; undefined when another has the name, or there are no abstract sockets. */
function bound(name: string): Promise<Server | undefined> {
  return new Promise((resolve) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", () => resolve(undefined));
    server.listen(name, () => {
      server.removeAllListeners("error").on("error", () => undefined);
      resolve(server);
    });
  });
}
