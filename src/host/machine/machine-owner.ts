import { createServer, type Server } from "node:net";
import type { Clock } from "../clock.ts";

/** The abstract socket (unix(7)) that the owner of a network namespace holds; the kernel releases it when the process exits. */
const OWNER_SOCKET = "\0holdfast-host";

const RETRY_MS = 30_000;

export interface MachineOwnerOptions {
  readonly clock: Clock;
  /** Called when this process becomes the owner after another process was. */
  readonly onOwned: () => void;
  readonly name?: string;
}

/** Elects one agent of a network namespace to manage the network: the first one, and another after it exits. */
export class MachineOwner {
  readonly #options: MachineOwnerOptions;
  #server: Server | undefined;
  #isClosed = false;
  #cancelRetry: () => void = () => undefined;

  constructor(options: MachineOwnerOptions) {
    this.#options = options;
  }

  get isOwner(): boolean {
    return this.#server !== undefined;
  }

  /** Tries to become the owner; keeps trying while another process is, and calls `onOwned` on success. */
  async claim(): Promise<boolean> {
    if (this.#isClosed || this.#server !== undefined) return this.isOwner;
    this.#server = await bound(this.#options.name ?? OWNER_SOCKET);
    if (this.#isClosed) this.close();
    else if (this.#server === undefined)
      this.#cancelRetry = this.#options.clock.after(RETRY_MS, () => void this.#again());
    return this.isOwner;
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelRetry();
    this.#server?.close();
    this.#server = undefined;
  }

  async #again(): Promise<void> {
    if (await this.claim()) this.#options.onOwned();
  }
}

/** Returns the listening socket; undefined if another process has the name, or abstract sockets are unsupported. */
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
