import { HostError, InputError, toError } from "../../errors.ts";
import type { Terminal } from "../../host/engine/engine.ts";
import { withinTime } from "../../lib/async/within-time.ts";
import { LocalContainerExec, type StreamCommand, type StreamEnd } from "../../protocol/channel/streams.ts";
import type { Compute } from "../containers/model/compute.ts";
import { readParams, type OpenedStream, type StreamKind } from "./kind.ts";
import type { StreamLink } from "./stream-link.ts";

const EXIT_CODE_MS = 5000;
const RESIZE_MS = 5000;
const END_OF_TRANSMISSION = "\u0004"; // what termios(3) calls VEOF

/** A terminal in a container: a shell or, for a local caller, a command. It ends with its stream. */
export function containerExec(compute: () => Pick<Compute, "terminal"> | undefined): StreamKind {
  return {
    kind: "container-exec",
    needsDataPlane: true,
    agents: false,
    async open(params, signal) {
      const { container, cols, rows, command } = readParams(LocalContainerExec, params);
      const there = compute();
      if (there === undefined) throw new InputError("not-configured", "no container is configured on this node");
      const size = { columns: cols, rows, ...(command.length === 0 ? {} : { command }) };
      return new OpenTerminal(container, await there.terminal(container, size, signal));
    },
  };
}

class OpenTerminal implements OpenedStream {
  readonly subject: string;
  readonly #terminal: Terminal;
  readonly #over = new AbortController();
  #hasEnded = false;
  #closing: Promise<void> | undefined;
  #wanted: { readonly columns: number; readonly rows: number } | undefined;
  #isResizing = false;

  constructor(subject: string, terminal: Terminal) {
    this.subject = subject;
    this.#terminal = terminal;
    // It may fail before it is joined.
    terminal.stream.on("error", () => undefined);
  }

  async carry(link: StreamLink, signal: AbortSignal): Promise<StreamEnd> {
    const { stream } = this.#terminal;
    await new Promise<void>((resolve, reject) => {
      const onAbort = (): void => reject(toError(signal.reason));
      signal.addEventListener("abort", onAbort, { once: true });
      const clear = (): void => signal.removeEventListener("abort", onAbort);
      stream.once("end", () => {
        clear();
        resolve();
      });
      stream.once("error", (error: Error) =>
        reject(new HostError("exec-failed", `the terminal was disconnected: ${error.message}`, { cause: error })),
      );
      stream.once("close", () => reject(new HostError("exec-failed", "the terminal was disconnected")));
      if (signal.aborted) return onAbort();
      link.pipe(stream);
      stream.pipe(link, { end: false });
    });
    link.unpipe(stream);
    const code = await this.#terminal.exitCode(withinTime(signal, EXIT_CODE_MS)).catch(() => undefined);
    // A process whose end is unknown is killed.
    this.#hasEnded = code !== undefined;
    return { type: "exit", code: code ?? null };
  }

  command(command: StreamCommand, link: StreamLink): void {
    switch (command.type) {
      case "resize":
        this.#wanted = { columns: command.cols, rows: command.rows };
        void this.#resize();
        return;
      case "close":
        // Queued behind earlier input; repeated requests beyond the limit are ignored.
        if (link.readableLength < link.readableHighWaterMark) link.push(END_OF_TRANSMISSION);
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  async #end(): Promise<void> {
    this.#over.abort(new InputError("cancelled", "the terminal is closed"));
    const killed = this.#hasEnded ? undefined : this.#terminal.kill();
    // Discards late output, which would keep the process from ending.
    this.#terminal.stream.destroy();
    await killed;
  }

  /** One call at a time; of the sizes that arrive meanwhile only the last is set. */
  async #resize(): Promise<void> {
    if (this.#isResizing) return;
    this.#isResizing = true;
    try {
      while (this.#wanted !== undefined && !this.#over.signal.aborted) {
        const { columns, rows } = this.#wanted;
        this.#wanted = undefined;
        // A failed resize does not end the terminal.
        await this.#terminal.resize(columns, rows, withinTime(this.#over.signal, RESIZE_MS)).catch(() => undefined);
      }
    } finally {
      this.#isResizing = false;
    }
  }
}
