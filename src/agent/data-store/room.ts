import { HostError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { Store } from "../../host/data-store/store.ts";
import { sizeText } from "../../lib/text/size-text.ts";
import { untilAborted } from "../../lib/async/until-aborted.ts";

export interface RoomOptions {
  readonly clock: Clock;
  readonly store: Pick<Store, "space" | "used">;
  /** Quota of all files in bytes; undefined without one. */
  readonly maxBytes: number | undefined;
  /** Share of the disk that stays free. */
  readonly reserveRatio: number;
  /** Aborts the count. */
  readonly signal: AbortSignal;
}

/** Received and total bytes of one download. */
interface Claim {
  bytes: number;
  /** Bytes that the last count included. */
  counted: number;
  total: number | undefined;
  isOver: boolean;
}

const COUNT_EVERY_MS = 60_000;

/**
 * Shares the quota and the disk among downloads: outstanding bytes of earlier downloads count as used. Each process enforces its own limit;
 * this class checks their sum as they report progress.
 */
export class Room {
  readonly #options: RoomOptions;
  /** Downloads in the order of their start. */
  readonly #claims = new Map<string, Claim>();
  #counted: { readonly bytes: number; readonly goodUntil: number } | undefined;
  #counting: Promise<void> | undefined;

  constructor(options: RoomOptions) {
    this.#options = options;
  }

  /**
   * Returns the bytes of the quota left for a download besides the others; undefined without a quota.
   * @throws {HostError} `disk-full` when nothing is left of it, or of the disk but the reserve
   */
  async left(signal: AbortSignal, id?: string): Promise<number | undefined> {
    const { store, maxBytes, reserveRatio } = this.#options;
    const { freeBytes, totalBytes } = await store.space();
    const reserve = totalBytes * reserveRatio;
    const coming = this.#coming(this.#others(id));
    if (freeBytes - coming <= reserve) {
      const others = coming === 0 ? "" : `, of which others will take ${sizeText(coming)}`;
      const text = `${sizeText(freeBytes)} are free on the disk${others}, and ${sizeText(reserve)} of it stay free`;
      throw new HostError("disk-full", `no file is begun: ${text}`);
    }
    if (maxBytes === undefined) return undefined;
    if (this.#counted === undefined || this.#options.clock.elapsed() >= this.#counted.goodUntil) {
      this.#counting ??= this.#count().finally(() => (this.#counting = undefined));
      await untilAborted(this.#counting, signal);
    }
    const left = maxBytes - this.#used() - this.#coming(this.#others(id));
    if (left > 0) return left;
    throw new HostError("disk-full", `the data store's quota of ${sizeText(maxBytes)} is used up`);
  }

  /** Adds a download that starts, with the bytes of an earlier attempt. */
  begin(id: string, bytes: number): void {
    if (!this.#claims.has(id)) this.#claims.set(id, { bytes, counted: bytes, total: undefined, isOver: false });
  }

  /** Records a download's progress. Returns why it must stop if it exceeds the quota. */
  heard(id: string, bytes: number, total: number | undefined): string | undefined {
    const { maxBytes } = this.#options;
    const claim = this.#claims.get(id);
    if (claim === undefined) return undefined;
    Object.assign(claim, { bytes, total: total ?? claim.total });
    if (maxBytes === undefined || this.#counted === undefined) return undefined;
    if (this.#used() + this.#coming(this.#upTo(id)) <= maxBytes) return undefined;
    return `with the other downloads it is more than the data store's quota of ${sizeText(maxBytes)} leaves`;
  }

  /** Returns why a download of known size must stop: earlier ones will use the disk's free space up to the reserve. */
  async judge(id: string): Promise<string | undefined> {
    const { freeBytes, totalBytes } = await this.#options.store.space();
    const left = freeBytes - totalBytes * this.#options.reserveRatio - this.#coming(this.#upTo(id));
    return left >= 0 ? undefined : `with the other downloads it is ${sizeText(-left)} more than the disk has room for`;
  }

  /** Removes an ended download; `isKept` tells whether its file stays. */
  end(id: string, isKept: boolean): void {
    const claim = this.#claims.get(id);
    if (claim === undefined) return;
    claim.isOver = true;
    if (isKept && this.#options.maxBytes !== undefined) return;
    this.#claims.delete(id);
    this.forget();
  }

  /** Invalidates the count after a removal, so that no download is refused by a stale one. */
  forget(): void {
    if (this.#counted !== undefined) this.#counted = { ...this.#counted, goodUntil: -Infinity };
  }

  async #count(): Promise<void> {
    const seen = [...this.#claims].map(([id, claim]) => ({ id, claim, bytes: claim.bytes, isOver: claim.isOver }));
    const goodUntil = this.#options.clock.elapsed() + COUNT_EVERY_MS;
    const bytes = await this.#options.store.used(this.#options.signal);
    this.#counted = { bytes, goodUntil };
    for (const { id, claim, bytes, isOver } of seen) {
      claim.counted = bytes;
      if (isOver) this.#claims.delete(id);
    }
  }

  /** Bytes used by the store: the last count plus later bytes. */
  #used(): number {
    const since = [...this.#claims.values()].map(({ bytes, counted }) => Math.max(0, bytes - counted));
    return (this.#counted?.bytes ?? 0) + sum(since);
  }

  /** Returns the outstanding bytes of downloads, as far as their sizes are known. */
  #coming(ids: readonly string[]): number {
    return sum(
      ids.map((id) => {
        const { bytes = 0, total = 0, isOver = true } = this.#claims.get(id) ?? {};
        return isOver ? 0 : Math.max(0, total - bytes);
      }),
    );
  }

  #others(id: string | undefined): readonly string[] {
    return [...this.#claims.keys()].filter((other) => other !== id);
  }

  /** Returns a download and those that started before it. */
  #upTo(id: string): readonly string[] {
    const ids = [...this.#claims.keys()];
    return ids.slice(0, ids.indexOf(id) + 1);
  }
}

const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0);
