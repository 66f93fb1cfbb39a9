import type { Duplex } from "node:stream";
import type { Gate, GateUser } from "../../gate.ts";

const FULL = 1;
const LIMITED = 2;

/** One direction between a socket and a stream: it stops reading while the other side is full or the rate is used up, and only then. */
export class Pump implements GateUser {
  /** What was read so far. */
  bytes = 0;
  readonly #from: Duplex;
  readonly #to: Duplex;
  readonly #gate: Gate | undefined;
  #stops = 0;
  #isCorked = false;
  #isOver = false;

  constructor(from: Duplex, to: Duplex, gate: Gate | undefined) {
    this.#from = from;
    this.#to = to;
    this.#gate = gate;
  }

  get isAtGate(): boolean {
    return (this.#stops & LIMITED) !== 0;
  }

  start(): void {
    this.#to.on("drain", () => this.#go(FULL));
    this.#from.on("data", this.#pass);
  }

  resumeFromGate(): void {
    this.#go(LIMITED);
  }

  close(): void {
    this.#isOver = true;
    this.#gate?.leave(this);
  }

  readonly #pass = (chunk: Buffer): void => {
    if (this.#isOver) return;
    this.bytes += chunk.length;
    this.#cork();
    if (!this.#to.write(chunk)) this.#stops |= FULL;
    if (this.#gate?.isOpen === false && !this.#gate.pass(this, chunk.length)) this.#stops |= LIMITED;
    if (this.#stops !== 0) this.#from.pause();
  };

  /** What arrives in one turn, frame by frame, leaves in one call. */
  #cork(): void {
    if (this.#isCorked) return;
    this.#isCorked = true;
    this.#to.cork();
    process.nextTick(this.#uncork);
  }

  readonly #uncork = (): void => {
    this.#isCorked = false;
    this.#to.uncork();
  };

  #go(why: number): void {
    if (this.#stops === 0) return;
    this.#stops &= ~why;
    if (this.#stops === 0 && !this.#isOver) this.#from.resume();
  }
}
