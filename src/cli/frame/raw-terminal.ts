import { InputError } from "../../errors.ts";

/** The user's terminal or pipes, connected to a remote program. */
export interface RawTerminal {
  readonly isTerminal: boolean;
  size(): { readonly columns: number; readonly rows: number };
  /** Enters raw mode and passes on every byte. `end` restores the terminal, and so does the end of the process. */
  begin(listener: RawTerminalListener): void;
  pause(): void;
  resume(): void;
  /** Writes bytes; returns false if the buffer is full, and calls `onDrain` once it is empty. */
  write(bytes: Uint8Array): boolean;
  /** Restores what `begin` changed; may be called more than once. */
  end(): void;
}

export interface RawTerminalListener {
  onInput(bytes: Buffer): void;
  onInputEnd(): void;
  onResize(): void;
  onDrain(): void;
  /** Raw mode is active; the terminal still translates newlines. */
  onRaw(): void;
  /** The user disconnected. */
  onHangUp(reason: Error): void;
}

const UNKNOWN = { columns: 80, rows: 24 };
const MAX_CELLS = 1000;

/** Standard input and output of this process. */
export function standardStreams(): RawTerminal {
  const { stdin, stdout } = process;
  let undo: (() => void)[] = [];
  const end = (): void => {
    for (const step of undo) step();
    undo = [];
  };
  return {
    isTerminal: stdin.isTTY,
    size: () => {
      if (!stdout.isTTY) return UNKNOWN;
      const within = (cells: number, instead: number): number => Math.min(MAX_CELLS, cells || instead);
      return { columns: within(stdout.columns, UNKNOWN.columns), rows: within(stdout.rows, UNKNOWN.rows) };
    },
    begin(listener) {
      const onInput = (bytes: Buffer): void => listener.onInput(bytes);
      const onInputEnd = (): void => listener.onInputEnd();
      const onResize = (): void => listener.onResize();
      const onDrain = (): void => listener.onDrain();
      const onHangUp = (): void => listener.onHangUp(new InputError("cancelled", "the terminal hung up"));
      if (stdin.isTTY) {
        stdin.setRawMode(true);
        undo.push(() => void stdin.setRawMode(false));
        listener.onRaw();
      }
      process.once("exit", end).once("SIGHUP", onHangUp);
      stdout.on("resize", onResize).on("drain", onDrain);
      stdin.on("data", onInput).once("end", onInputEnd).on("error", onInputEnd);
      undo.push(() => {
        process.off("exit", end).off("SIGHUP", onHangUp);
        stdout.off("resize", onResize).off("drain", onDrain);
        stdin.off("data", onInput).off("end", onInputEnd).off("error", onInputEnd);
        stdin.pause();
      });
    },
    pause: () => void stdin.pause(),
    resume: () => void stdin.resume(),
    write: (bytes) => stdout.write(bytes),
    end,
  };
}
