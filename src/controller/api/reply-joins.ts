import { InputError } from "../../errors.ts";
import { ReplyCollector } from "../../protocol/channel/reply-parts.ts";

/** Answers that are put together at a time: each may be large, and what it is made into larger. */
const MAX_JOINS = 8;
/** Of one node, so that one that sends slowly keeps nobody from the others. */
const MAX_JOINS_OF_NODE = 2;

/** Counts the answers that come in parts and are being put together. One that comes whole is never refused. */
export class ReplyJoins {
  readonly #running = new Map<string, number>();
  #all = 0;

  /** What takes the parts of an answer of a node. It has to be disposed of, whatever became of the answer. */
  open(uid: string): ReplyJoin {
    let isCounted = false;
    const count = (): void => {
      if (isCounted) return;
      const ofNode = this.#running.get(uid) ?? 0;
      if (this.#all >= MAX_JOINS || ofNode >= MAX_JOINS_OF_NODE) {
        const whose = ofNode >= MAX_JOINS_OF_NODE ? "of this node " : "";
        throw new InputError("overloaded", `too many large answers ${whose}are under way; try again in a while`);
      }
      isCounted = true;
      this.#all += 1;
      this.#running.set(uid, ofNode + 1);
    };
    const end = (): void => {
      if (!isCounted) return;
      isCounted = false;
      this.#all -= 1;
      const left = (this.#running.get(uid) ?? 1) - 1;
      if (left === 0) this.#running.delete(uid);
      else this.#running.set(uid, left);
    };
    return new ReplyJoin(count, end);
  }
}

/** One answer, counted from its first part on. */
export class ReplyJoin implements Disposable {
  readonly #collector = new ReplyCollector();
  readonly #count: () => void;
  readonly #end: () => void;

  constructor(count: () => void, end: () => void) {
    this.#count = count;
    this.#end = end;
  }

  /** Takes what a trigger put out. @throws {InputError} `overloaded`; {SessionError} `too-large`. */
  take(data: unknown): void {
    if (this.#collector.take(data)) this.#count();
  }

  /** As `ReplyCollector.whole`. */
  whole(result: unknown): unknown {
    return this.#collector.whole(result);
  }

  [Symbol.dispose](): void {
    this.#end();
  }
}
