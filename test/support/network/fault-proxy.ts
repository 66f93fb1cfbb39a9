import { createServer, connect, type Server, type Socket } from "node:net";
import { onTestFinished } from "vitest";

/** Treatment of open and new connections through a proxy. */
export type Fault =
  | { readonly kind: "pass" }
  /** Refuses, and resets open connections. */
  | { readonly kind: "refuse" }
  /** Accepts connections without an answer. */
  | { readonly kind: "hang" }
  /** Drops what one side, or both, send, silently. */
  | { readonly kind: "black-hole"; readonly from: "node" | "controller" | "both" }
  /** Passes bytes from the controller at this rate at most. */
  | { readonly kind: "slow"; readonly bytesPerSecond: number }
  /** Passes what the controller sends this much later. */
  | { readonly kind: "late"; readonly delayMs: number }
  /** Passes this number of bytes from the controller, then ends the connection: in order, or by a reset. */
  | { readonly kind: "cut"; readonly afterBytes: number; readonly by: "end" | "reset" }
  /** Answers every new connection itself, as a server that is not the controller. */
  | { readonly kind: "answer"; readonly text: string };

interface Pair {
  readonly node: Socket;
  readonly controller: Socket;
  /** Number of bytes passed from the controller to the node. */
  delivered: number;
}

/** A TCP proxy on a loopback address between nodes and their controller, with faults at run time. */
export class FaultProxy {
  readonly port: number;
  readonly #target: number;
  readonly #address: string;
  readonly #pairs = new Set<Pair>();
  readonly #held = new Set<Socket>();
  #server: Server | undefined;
  #fault: Fault = { kind: "pass" };
  /** Connections accepted since the start. */
  connections = 0;
  bytesFromNodes = 0;

  constructor(port: number, target: number, address: string) {
    this.port = port;
    this.#target = target;
    this.#address = address;
  }

  /** Listens on `port` of `address` and connects to the port `target` of 127.0.0.1; ends with the test, by default. */
  static async start(
    port: number,
    target: number,
    address = "127.0.0.1",
    onFinished: (end: () => Promise<void>) => void = onTestFinished,
  ): Promise<FaultProxy> {
    const proxy = new FaultProxy(port, target, address);
    await proxy.#listen();
    onFinished(() => proxy.set({ kind: "refuse" }));
    return proxy;
  }

  /** Changes the fault; `hang` and `answer` affect only new connections, so `reset` may have to come first. */
  async set(fault: Fault): Promise<void> {
    this.#fault = fault;
    for (const pair of this.#pairs) pair.delivered = 0;
    if (fault.kind === "refuse") {
      this.reset();
      const server = this.#server;
      this.#server = undefined;
      await new Promise<void>((resolve) => (server === undefined ? resolve() : server.close(() => resolve())));
    } else if (this.#server === undefined) {
      await this.#listen();
    }
  }

  /** Resets all open connections. */
  reset(): void {
    for (const { node, controller } of this.#pairs) {
      node.resetAndDestroy();
      controller.resetAndDestroy();
    }
    for (const socket of this.#held) socket.resetAndDestroy();
  }

  async #listen(): Promise<void> {
    const server = createServer((socket) => this.#take(socket));
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject).listen(this.port, this.#address, resolve);
    });
    this.#server = server;
  }

  #take(node: Socket): void {
    this.connections += 1;
    const fault = this.#fault;
    if (fault.kind === "hang" || fault.kind === "answer") {
      this.#held.add(node);
      node.on("error", () => undefined).on("close", () => this.#held.delete(node));
      if (fault.kind === "answer") node.once("data", () => node.end(fault.text));
      node.resume();
      return;
    }
    const controller = connect(this.#target, "127.0.0.1");
    const pair: Pair = { node, controller, delivered: 0 };
    this.#pairs.add(pair);
    node.on("data", (chunk) => {
      this.bytesFromNodes += chunk.length;
      // A slow reader slows the other side.
      if (!this.#swallows("node") && !controller.write(chunk)) node.pause();
    });
    controller.on("drain", () => node.resume());
    controller.on("data", (chunk: Buffer) => void this.#deliver(pair, chunk));
    for (const [one, other] of [
      [node, controller],
      [controller, node],
    ] as const) {
      one.on("error", () => undefined);
      one.on("close", () => {
        this.#pairs.delete(pair);
        // In a black hole the end of one side is hidden from the other.
        if (this.#fault.kind === "black-hole") this.#held.add(other);
        else other.destroy();
      });
    }
  }

  async #deliver(pair: Pair, chunk: Buffer): Promise<void> {
    const fault = this.#fault;
    const { node, controller } = pair;
    if (this.#swallows("controller")) return;
    if (fault.kind === "slow") {
      controller.pause();
      for (let at = 0; at < chunk.length; at += 1) {
        await new Promise((resolve) => setTimeout(resolve, 1000 / fault.bytesPerSecond));
        node.write(chunk.subarray(at, at + 1));
      }
      controller.resume();
      return;
    }
    if (fault.kind === "late") {
      setTimeout(() => node.write(chunk), fault.delayMs);
      return;
    }
    if (fault.kind !== "cut") {
      node.write(chunk);
      return;
    }
    const part = chunk.subarray(0, fault.afterBytes - pair.delivered);
    pair.delivered += part.length;
    const cut = (): void => void (fault.by === "end" ? node.destroySoon() : node.resetAndDestroy());
    node.write(part, () => (pair.delivered >= fault.afterBytes ? cut() : undefined));
  }

  #swallows(from: "node" | "controller"): boolean {
    return this.#fault.kind === "black-hole" && (this.#fault.from === "both" || this.#fault.from === from);
  }
}

/** The text of an HTTP answer. */
export function httpText(status: string, headers: Readonly<Record<string, string>> = {}, body = ""): string {
  const lines = Object.entries({ ...headers, "content-length": String(Buffer.byteLength(body)), connection: "close" });
  return [`HTTP/1.1 ${status}`, ...lines.map(([name, value]) => `${name}: ${value}`), "", body].join("\r\n");
}
