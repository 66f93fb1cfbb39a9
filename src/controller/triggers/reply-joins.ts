import { InputError } from "../../errors.ts";
import { ReplyCollector } from "../../protocol/channel/reply-parts.ts";

/** Limit of multi-part replies assembled concurrently: each may be large in memory. */
const MAX_JOINS = 8;
/** Limit of one node, so that a slow node does not block others. */
const MAX_JOINS_PER_NODE = 2;

/** Limits multi-part replies that are being assembled. A reply in one part is never rejected. */
export class ReplyJoins {
  readonly #running = new Map<string, number>();
  #all = 0;

  /** Opens a collector for one reply of a node. The caller must dispose of it in any case. */
  open(uid: string): ReplyJoin {
    let isCounted = false;
    const count = (): void => {
      if (isCounted) return;
      const ofNode = this.#running.get(uid) ?? 0;
      if (this.#all >= MAX_JOINS || ofNode >= MAX_JOINS_PER_NODE) {
        const scope = ofNode >= MAX_JOINS_PER_NODE ? "of this node " : "";
        throw new InputError("overloaded", `too many large replies ${scope}are in progress; try again later`);
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

/** One reply, counted from its first part. */
export class ReplyJoin implements Disposable {
  readonly #collector = new ReplyCollector();
  readonly #count: () => void;
  readonly #end: () => void;

  constructor(count: () => void, end: () => void) {
    this.#count = count;
    this.#end = end;
  }

  /** Accepts output of a trigger. @throws {InputError} `overloaded`; {SessionError} `too-large` */
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
