import { InputError } from "../../errors.ts";

/** The user's terminal or pipes, connected to a remote program. */
export interface RawTerminal {
  readonly isTerminal: boolean;
  size(): { readonly columns: number; readonly rows: number };
  /** Hands over every byte from now on. What it changes is put back by `end`, and when the process ends in any other way. */
  begin(listener: RawTerminalListener): void;
  pause(): void;
  resume(): void;
  /** Shows bytes; false when it is behind, and `onDrain` is told when it is not any longer. */
  write(bytes: Uint8Array): boolean;
  /** Restores what `begin` changed; may be called more than once. */
  end(): void;
}

export interface RawTerminalListener {
  onInput(bytes: Buffer): void;
  onInputEnd(): void;
  onResize(): void;
  onDrain(): void;
  /** The terminal does nothing by itself any longer but translate newlines. */
  onRaw(): void;
  /** The user has gone. */
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
