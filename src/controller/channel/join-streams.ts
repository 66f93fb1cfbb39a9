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

/** Two ends of a stream that are joined. */
export interface Joint {
  /** How it ended; resolves as soon as that is known. Never rejects. */
  readonly ended: Promise<StreamEnd>;
  /** Ends it for a reason of ours; both sides are told. */
  end(reason: StreamEnd): void;
}

const PING_MS = 15_000;
/** Who has given no sign of life for so long, and has taken nothing that was sent, is gone. */
const SILENT_MS = 45_000;
/** How long a goodbye may take of a side that takes nothing. */
const CLOSE_GRACE_MS = 2000;

/**
 * Joins a caller and a node: bytes and commands there, bytes and one end back. Who is sent more than it takes holds back the
 * other, so that little waits in memory.
 */
export function joinStreams(client: FrameSocket, node: FrameSocket, clock: Clock): Joint {
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
  const tellClient = (end: StreamEnd): void => {
    client.send(JSON.stringify(end));
    const isGood = end.type === "exit";
    ends.client.close(isGood ? streamCloseCodes.ended : streamCloseCodes.failed, isGood ? "" : end.code);
  };
  const end = (reason: StreamEnd): void => {
    if (!conclude(reason)) return;
    tellClient(reason);
    ends.node.close(streamCloseCodes.ended, "");
  };

  let cancel = (): void => undefined;
  const look = (): void => {
    for (const name of ["client", "node"] as const) {
      if (!ends[name].isSilent()) continue;
      end(streamError("timeout", `the ${name} gave no sign of life`));
      ends[name].cut();
    }
    cancel = clock.after(PING_MS, look);
    if (ends.client.isOver && ends.node.isOver) cancel();
  };
  cancel = clock.after(PING_MS, look);

  ends.client.listen(ends.node, {
    onText(text) {
      if (parseStreamText(StreamCommand, text) !== undefined) return ends.client.pass(text, ends.node);
      if (!conclude(streamError("invalid-body", "a text frame that is no command"))) return;
      ends.client.close(streamCloseCodes.protocol, "a text frame that is no command");
      ends.node.close(streamCloseCodes.ended, "");
    },
    onEnd() {
      conclude(streamError("cancelled", "the caller is gone"));
      ends.node.close(streamCloseCodes.ended, "");
      if (ends.node.isOver) cancel();
    },
  });
  ends.node.listen(ends.client, {
    onText(text) {
      const told = parseStreamText(StreamEnd, text) ?? streamError("internal", "the node said what is not understood");
      if (conclude(told)) tellClient(told);
    },
    onEnd() {
      const lost = streamError("offline", "the connection to the node was lost");
      if (conclude(lost)) tellClient(lost);
      if (ends.client.isOver) cancel();
    },
  });
  return { ended, end };
}

/** One side, with what is needed to judge whether it is alive. */
class End {
  readonly #socket: FrameSocket;
  readonly #clock: Clock;
  #aliveAt: number;
  #isHeldBack = false;
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

  /** Sends on what came from here; nothing more is read while too much of it waits there. */
  pass(frame: Uint8Array | string, to: End): void {
    if (to.isOver || to.#isClosing) return;
    to.#socket.send(frame, () => {
      to.#alive();
      if (this.#isHeldBack && to.#socket.buffered() <= STREAM_LIMITS.unsentBytes / 2) this.#release();
    });
    if (this.#isHeldBack || to.#socket.buffered() <= STREAM_LIMITS.unsentBytes) return;
    this.#isHeldBack = true;
    this.#socket.pause();
  }

  /** Says goodbye after what was sent; cut when nothing of that is taken any more. */
  close(code: number, reason: string): void {
    if (this.#isClosing || this.isOver) return;
    this.#isClosing = true;
    this.#socket.close(code, reason);
    this.#cutWhenStuck(this.#socket.buffered());
  }

  cut(): void {
    this.#socket.terminate();
  }

  /** Asks for a sign of life, and tells whether one is overdue. What we do not read ourselves cannot be held against it. */
  isSilent(): boolean {
    if (this.isOver) return false;
    if (this.#isHeldBack) this.#alive();
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

  #release(): void {
    this.#isHeldBack = false;
    this.#alive();
    this.#socket.resume();
  }

  #alive(): void {
    this.#aliveAt = this.#clock.elapsed();
  }
}
