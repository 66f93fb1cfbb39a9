import type { Clock } from "../../host/clock.ts";
import type { FrameSocket } from "../../host/net/frame-socket.ts";
import {
  parseStreamText,
  STREAM_LIMITS,
  streamCloseCodes,
  StreamCommand,
  StreamEnd,
  streamError,
} from "../../protocol/channel/streams.ts";

/** Two joined ends of a stream. */
export interface JoinedStream {
  /** Resolves with the result as soon as it is known; never rejects. */
  readonly ended: Promise<StreamEnd>;
  /** Ends the stream for a reason of ours and notifies both sides. */
  end(reason: StreamEnd): void;
}

const PING_MS = 15_000;
/** Time without any response or progress after which a peer counts as unreachable, in milliseconds. */
const SILENT_MS = 45_000;
/** Time limit of the closing handshake while nothing is sent, in milliseconds. */
const CLOSE_GRACE_MS = 2000;

/**
 * Joins a caller and a node: bytes and commands go to the node, bytes and one end message come back. A slow side pauses reading from the
 * other, so that little is buffered.
 */
export function joinStreams(client: FrameSocket, node: FrameSocket, clock: Clock): JoinedStream {
  let outcome: StreamEnd | undefined;
  let settle: (end: StreamEnd) => void = () => undefined;
  const ended = new Promise<StreamEnd>((resolve) => {
    settle = resolve;
  });
  const ends = { client: new End(client, clock), node: new End(node, clock) };

  const conclude = (end: StreamEnd): boolean => {
    if (outcome !== undefined) return false;
    outcome = end;
    settle(end);
    return true;
  };
  const endClient = (end: StreamEnd): void => {
    client.send(JSON.stringify(end));
    const isGood = end.type === "exit";
    ends.client.close(isGood ? streamCloseCodes.ended : streamCloseCodes.failed, isGood ? "" : end.code);
  };
  const end = (reason: StreamEnd): void => {
    if (!conclude(reason)) return;
    endClient(reason);
    ends.node.close(streamCloseCodes.ended, "");
  };

  let cancel = (): void => undefined;
  const checkAlive = (): void => {
    for (const name of ["client", "node"] as const) {
      if (!ends[name].isSilent()) continue;
      end(streamError("timeout", `the ${name} did not respond for ${SILENT_MS / 1000} s`));
      ends[name].cut();
    }
    cancel = clock.after(PING_MS, checkAlive);
    if (ends.client.isOver && ends.node.isOver) cancel();
  };
  cancel = clock.after(PING_MS, checkAlive);

  ends.client.listen(ends.node, {
    onText(text) {
      if (parseStreamText(StreamCommand, text) !== undefined) return ends.client.pass(text, ends.node);
      if (!conclude(streamError("invalid-body", "text frame is not a command"))) return;
      ends.client.close(streamCloseCodes.protocol, "text frame is not a command");
      ends.node.close(streamCloseCodes.ended, "");
    },
    onEnd() {
      conclude(streamError("cancelled", "the caller disconnected"));
      ends.node.close(streamCloseCodes.ended, "");
      if (ends.node.isOver) cancel();
    },
  });
  ends.node.listen(ends.client, {
    onText(text) {
      const result = parseStreamText(StreamEnd, text) ?? streamError("internal", "the node sent an unknown message");
      if (conclude(result)) endClient(result);
    },
    onEnd() {
      const lost = streamError("offline", "the connection to the node was lost");
      if (conclude(lost)) endClient(lost);
      if (ends.client.isOver) cancel();
    },
  });
  return { ended, end };
}

/** One side of a stream, with its liveness. */
class End {
  readonly #socket: FrameSocket;
  readonly #clock: Clock;
  #aliveAt: number;
  #isPaused = false;
  #isClosing = false;
  isOver = false;

  constructor(socket: FrameSocket, clock: Clock) {
    this.#socket = socket;
    this.#clock = clock;
    this.#aliveAt = clock.elapsed();
  }

  listen(to: End, listener: { onText(text: string): void; onEnd(): void }): void {
    this.#socket.listen({
      onHeard: () => this.#alive(),
      onData: (bytes) => this.pass(bytes, to),
      onText: (text) => {
        if (!this.#isClosing) listener.onText(text);
      },
      onEnd: () => {
        this.isOver = true;
        listener.onEnd();
      },
    });
  }

  /** Forwards a frame; pauses reading from this side while too much is unsent on the other. */
  pass(frame: Uint8Array | string, to: End): void {
    if (to.isOver || to.#isClosing) return;
    to.#socket.send(frame, () => {
      to.#alive();
      if (this.#isPaused && to.#socket.buffered() <= STREAM_LIMITS.unsentBytes / 2) this.#resume();
    });
    if (this.#isPaused || to.#socket.buffered() <= STREAM_LIMITS.unsentBytes) return;
    this.#isPaused = true;
    this.#socket.pause();
  }

  /** Closes after the pending data; terminates the socket if none of that is sent any more. */
  close(code: number, reason: string): void {
    if (this.#isClosing || this.isOver) return;
    this.#isClosing = true;
    this.#socket.close(code, reason);
    this.#cutWhenStuck(this.#socket.buffered());
  }

  cut(): void {
    this.#socket.terminate();
  }

  /** Sends a ping and reports whether a response is overdue. A side that we paused counts as alive. */
  isSilent(): boolean {
    if (this.isOver) return false;
    if (this.#isPaused) this.#alive();
    this.#socket.ping();
    return this.#clock.elapsed() - this.#aliveAt > SILENT_MS;
  }

  #cutWhenStuck(before: number): void {
    this.#clock.after(CLOSE_GRACE_MS, () => {
      if (this.isOver) return;
      const left = this.#socket.buffered();
      if (left === 0 || left >= before) this.cut();
      else this.#cutWhenStuck(left);
    });
  }

  #resume(): void {
    this.#isPaused = false;
    this.#alive();
    this.#socket.resume();
  }

  #alive(): void {
    this.#aliveAt = this.#clock.elapsed();
  }
}
