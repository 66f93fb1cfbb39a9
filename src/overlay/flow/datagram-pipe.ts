import type { Http2Stream } from "node:http2";
import type { Clock } from "../../host/clock.ts";
import { hasRoom } from "./datagram-queue.ts";
import type { TwoWayLimiters } from "../limits/rate-limiter.ts";
import { PROTOCOL_ERROR, resetStream } from "./stream-reset.ts";
import { CapsuleReader, datagramCapsule } from "./capsules.ts";

export interface DatagramPipeOptions {
  readonly stream: Http2Stream;
  readonly clock: Clock;
  /** Rate limits over all tunnels; datagrams beyond them are dropped. */
  readonly tunnels: TwoWayLimiters;
  readonly onDatagram: (datagram: Buffer) => void;
  readonly onDrop: () => void;
  /** Called once when the stream has ended, with its code (RFC 9113 §7). */
  readonly onEnd: (code: number) => void;
}

/** Maximum age of a queued datagram; an older one is useless to its receiver. */
const MAX_AGE_MS = 500;

interface Waiting {
  readonly capsule: Buffer;
  readonly since: number;
}

/** Sends datagrams over a stream (RFC 9298) and drops those that the stream does not accept soon. */
export class DatagramPipe {
  readonly #options: DatagramPipeOptions;
  #queue: Waiting[] = [];
  #queuedBytes = 0;
  #isFull = false;
  #isOver = false;

  constructor(options: DatagramPipeOptions) {
    const { stream, onDatagram, onDrop, tunnels } = options;
    this.#options = options;
    const reader = new CapsuleReader((datagram) => {
      if (this.#isOver) return;
      if (!tunnels.in.admits(datagram.length)) onDrop();
      else onDatagram(datagram);
    });
    const read = (work: () => void): void => {
      try {
        if (!this.#isOver) work();
      } catch {
        this.close(PROTOCOL_ERROR);
      }
    };
    stream
      .on("error", () => undefined)
      .on("data", (chunk: Buffer) => read(() => reader.push(chunk)))
      .on("end", () => read(() => reader.end()))
      // A datagram flow has no half-closed state.
      .on("end", () => stream.end())
      .on("drain", () => this.#flush())
      .on("close", () => this.#end(stream.rstCode));
    if (stream.destroyed) this.#end(stream.rstCode);
  }

  /** Sends, queues or drops a datagram; false when it was dropped. */
  send(datagram: Buffer): boolean {
    if (this.#isOver) return false;
    if (!this.#options.tunnels.out.admits(datagram.length)) {
      this.#options.onDrop();
      return false;
    }
    if (!this.#isFull) {
      this.#write(datagramCapsule(datagram));
      return true;
    }
    if (!hasRoom(this.#queue.length, this.#queuedBytes, datagram.length)) {
      this.#expire();
      if (!hasRoom(this.#queue.length, this.#queuedBytes, datagram.length)) {
        this.#options.onDrop();
        return false;
      }
    }
    const capsule = datagramCapsule(datagram);
    this.#queue.push({ capsule, since: this.#options.clock.elapsed() });
    this.#queuedBytes += capsule.length;
    return true;
  }

  /** Ends the stream; in order without a code. */
  close(code?: number): void {
    const { stream } = this.#options;
    if (code === undefined) stream.end();
    else resetStream(stream, code);
    this.#end(code ?? 0);
  }

  #write(capsule: Buffer): void {
    if (!this.#options.stream.write(capsule)) this.#isFull = true;
  }

  #flush(): void {
    this.#isFull = false;
    this.#expire();
    let sent = 0;
    for (const { capsule } of this.#queue) {
      if (this.#isFull) break;
      this.#queuedBytes -= capsule.length;
      this.#write(capsule);
      sent += 1;
    }
    this.#queue.splice(0, sent);
  }

  #expire(): void {
    const oldest = this.#options.clock.elapsed() - MAX_AGE_MS;
    let old = 0;
    for (const { capsule, since } of this.#queue) {
      if (since > oldest) break;
      this.#queuedBytes -= capsule.length;
      this.#options.onDrop();
      old += 1;
    }
    this.#queue.splice(0, old);
  }

  #end(code: number): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#queue = [];
    this.#options.onEnd(code);
  }
}
