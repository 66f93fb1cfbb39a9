import { SessionError, toError } from "../../../errors.ts";
import { hostExec } from "../../../host/process/exec.ts";
import type { FrameSocket } from "../../../host/net/frame-socket.ts";
import { parseStreamText, STREAM_LIMITS, StreamEnd, type StreamCommand } from "../../../protocol/channel/streams.ts";
import { openStream } from "../../frame/client.ts";
import type { RawTerminal } from "../../frame/raw-terminal.ts";
import type { Call } from "../../frame/verb.ts";

/** Container and command; without a command, a shell. */
export interface WantedExec {
  readonly container: string;
  readonly command: readonly string[];
}

const STTY_MS = 2000;
const NEWLINE = 0x0a;

/**
 * Joins the user's terminal, or pipes, to a command in a container; resolves with the command's exit code.
 * @throws {SessionError} what the agent refuses, or why it broke off.
 */
export async function containersExec(
  call: Call,
  { container, command }: WantedExec,
  terminal: RawTerminal,
): Promise<number> {
  const { columns, rows } = terminal.size();
  const query = new URLSearchParams({ container, cols: String(columns), rows: String(rows) });
  for (const word of command) query.append("arg", word);
  const socket = await openStream(call, `/v1/containers/exec?${query.toString()}`);
  try {
    const end = await carry(socket, terminal, call.signal, () => void leaveNewlines(call));
    if (end.type === "error") throw new SessionError(end.code, `the terminal was ended: ${end.message}`);
    if (end.code === null) throw new SessionError("failed", "the command has ended, and its exit code is not known");
    return end.code;
  } finally {
    terminal.end();
    // The command ends with the connection.
    socket.terminate();
  }
}

/**
 * Disables the translation of newlines (OPOST, termios(3)), which Node's raw mode leaves on, because full-screen programs send single line
 * feeds. Leaving raw mode restores it. A missing stty(1) only affects the display.
 */
async function leaveNewlines({ clock, signal }: Call): Promise<void> {
  const options = { deadlineMs: STTY_MS, maxOutputBytes: 4096, signal };
  await hostExec(clock)
    .run("stty", ["-F", `/proc/${process.pid}/fd/0`, "-opost"], options)
    .catch(() => undefined);
}

function carry(socket: FrameSocket, terminal: RawTerminal, signal: AbortSignal, onRaw: () => void): Promise<StreamEnd> {
  const { unsentBytes, sentFrameBytes } = STREAM_LIMITS;
  const say = (command: StreamCommand): void => socket.send(JSON.stringify(command));
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(toError(signal.reason));
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) return onAbort();
    let end: StreamEnd | undefined;
    let hasLine = true;
    const onInput = (bytes: Buffer): void => {
      hasLine = bytes.at(-1) === NEWLINE;
      for (let at = 0; at < bytes.length; at += sentFrameBytes) {
        socket.send(bytes.subarray(at, at + sentFrameBytes), () => {
          if (socket.buffered() <= unsentBytes / 2) terminal.resume();
        });
      }
      if (socket.buffered() > unsentBytes) terminal.pause();
    };
    terminal.begin({
      onInput,
      onInputEnd() {
        // The first ^D after an unfinished line only hands that line over, termios(3).
        if (!hasLine) say({ type: "close" });
        say({ type: "close" });
      },
      onResize() {
        const { columns, rows } = terminal.size();
        say({ type: "resize", cols: columns, rows });
      },
      onDrain: () => socket.resume(),
      onRaw,
      onHangUp: reject,
    });
    socket.listen({
      onData: (bytes) => {
        if (!terminal.write(bytes)) socket.pause();
      },
      onText: (text) => {
        end = parseStreamText(StreamEnd, text);
      },
      onEnd: ({ reason }) => {
        signal.removeEventListener("abort", onAbort);
        if (end !== undefined) resolve(end);
        else reject(new SessionError("interrupted", `the agent ended the terminal: ${reason}`));
      },
    });
  });
}
