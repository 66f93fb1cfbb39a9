import { createHash, type Hash } from "node:crypto";
import { HostError, InputError, toError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import type { Store, StorePart } from "../host/data-store/store.ts";
import { datasync, readAt, truncate, writeAt } from "../host/files/open-bytes.ts";
import type { HashAlgorithm } from "../protocol/triggers/data-store.ts";
import type { TransferLimits } from "../protocol/triggers/transfer.ts";

const OPENSSL_NAMES: Readonly<Record<HashAlgorithm, string>> = { MD5: "md5", SHA1: "sha1", "SHA-256": "sha256" };

/** Interval of syncs and checks of free space; the space is also checked after this many bytes or this share of what is free. */
const SYNC_MS = 2000;
const LOOK_BYTES = 64 * 1024 * 1024;
const LOOKS = 16;
/** Size to which small pieces, such as TLS records, are collected before hashing and writing. */
const GATHER_BYTES = 256 * 1024;
const REREAD_BYTES = 1024 * 1024;

export interface SinkOptions {
  readonly part: StorePart;
  readonly space: Store["space"];
  readonly limits: Pick<TransferLimits, "maxBytes" | "reserveRatio" | "quotaBytes">;
  readonly clock: Clock;
  readonly algo: HashAlgorithm | undefined;
  /** Called with the number of synced bytes from the start, from which a later attempt resumes. */
  readonly onSynced: (bytes: number) => void;
  /** Called once if a background write fails or the disk becomes too full. */
  readonly fail: (error: Error) => void;
}

/**
 * The part file of a transfer. Rejects files beyond the limits or the free space: in advance if the size is known, else while writing.
 */
export class Sink {
  /** Bytes appended, buffered ones included, or left by an earlier attempt. */
  bytes: number;
  /** True if a later attempt can resume; otherwise intermediate syncs are skipped. */
  isResumable = false;
  readonly #options: SinkOptions;
  readonly #left: number;
  readonly #most: number;
  #hash: Hash | undefined;
  readonly #gathered = Buffer.allocUnsafeSlow(GATHER_BYTES);
  #gatheredBytes = 0;
  #synced: number;
  #lookAt: number;
  /** Position up to which the last check found free space; the next check may come late. */
  #roomTo = Infinity;
  /** Generation of the file; a sync from an earlier one is ignored. */
  #beginning = 0;
  #isChecking = false;
  #isClosed = false;
  #stopTimer: () => void;

  constructor(options: SinkOptions) {
    const { part, limits, clock, algo } = options;
    this.#options = options;
    this.#left = part.bytes;
    this.bytes = part.bytes;
    this.#most = Math.min(limits.maxBytes, part.bytes + (limits.quotaBytes ?? Infinity));
    this.#hash = newHash(algo);
    this.#synced = part.bytes;
    this.#lookAt = part.bytes;
    this.#stopTimer = clock.after(SYNC_MS, () => this.#tick());
  }

  /** Hashes the bytes of an earlier attempt; call it before the first `append`. @throws {HostError} `storage-failed` */
  async rehash(signal: AbortSignal): Promise<void> {
    const buffer = Buffer.allocUnsafeSlow(REREAD_BYTES);
    for (let at = 0; at < this.#left && this.#hash !== undefined;) {
      signal.throwIfAborted();
      const count = readAt(this.#options.part.fd, buffer.subarray(0, this.#left - at), 0, at);
      if (count === 0) throw new HostError("storage-failed", "the part file is shorter than it was");
      this.#hash.update(buffer.subarray(0, count));
      at += count;
      // Yields so that orders are handled.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /**
   * Rejects a size beyond the limits or the free space. An unknown size is checked while writing.
   * @throws {InputError} `too-large`, `quota-exceeded`; {HostError} `disk-full`
   */
  async admit(total: number | undefined): Promise<void> {
    await this.#judgeRoom();
    if (total === undefined) return;
    this.#judgeSize(total);
    const { freeBytes, totalBytes } = await this.#options.space();
    const room = Math.floor(freeBytes - totalBytes * this.#options.limits.reserveRatio);
    if (total - this.bytes <= room) return;
    throw new HostError(
      "disk-full",
      `${total - this.bytes} bytes are to come, and the data store has room for ${Math.max(0, room)}`,
    );
  }

  /** Appends bytes. @throws {InputError} `too-large`, `quota-exceeded`; {HostError} `disk-full`, `storage-failed` */
  append(bytes: Uint8Array, from: number, to: number): void {
    const end = this.bytes + to - from;
    if (end > this.#most) this.#judgeSize(end);
    if (end > this.#roomTo) throw new HostError("disk-full", "the room of the data store's disk is used up");
    if (this.#gatheredBytes + to - from > GATHER_BYTES) this.flush();
    if (to - from >= GATHER_BYTES / 2) {
      this.flush();
      this.#write(bytes, from, to);
    } else {
      this.#gathered.set(bytes.subarray(from, to), this.#gatheredBytes);
      this.#gatheredBytes += to - from;
    }
    this.bytes = end;
    if (end >= this.#lookAt) this.#check(false);
  }

  /** Hashes and writes buffered bytes. @throws as `append` */
  flush(): void {
    const length = this.#gatheredBytes;
    this.#gatheredBytes = 0;
    if (length > 0) this.#write(this.#gathered, 0, length, this.bytes - length);
  }

  #write(bytes: Uint8Array, from: number, to: number, position = this.bytes): void {
    writeAt(this.#options.part.fd, bytes, from, to, position);
    this.#hash?.update(from === 0 && to === bytes.length ? bytes : bytes.subarray(from, to));
  }

  /** Writes bytes at a position, unhashed; they count once `settle` covers them. @throws as `append` */
  put(bytes: Uint8Array, from: number, to: number, position: number): void {
    const end = position + to - from;
    if (end > this.#most) this.#judgeSize(end);
    writeAt(this.#options.part.fd, bytes, from, to, position);
  }

  /** Sets the number of contiguous bytes from the start. */
  settle(bytes: number): void {
    this.bytes = bytes;
    if (bytes >= this.#lookAt) this.#check(false);
  }

  /** Discards all written bytes. @throws {HostError} `storage-failed` */
  restart(): void {
    this.#gatheredBytes = 0;
    truncate(this.#options.part.fd, 0);
    this.bytes = 0;
    this.#synced = 0;
    this.#lookAt = 0;
    this.#roomTo = Infinity;
    this.#beginning += 1;
    this.#hash = newHash(this.#options.algo);
  }

  /** Returns the hash of all bytes in hexadecimal; undefined without an algorithm. @throws as `append` */
  digest(): string | undefined {
    this.flush();
    return this.#hash?.copy().digest("hex");
  }

  /** Stops background syncs. The part file stays. */
  close(): void {
    this.#stopTimer();
    this.#isClosed = true;
  }

  #judgeSize(bytes: number): void {
    const { maxBytes, quotaBytes = Infinity } = this.#options.limits;
    if (bytes > maxBytes) throw new InputError("too-large", `the file is larger than the limit of ${maxBytes} bytes`);
    if (bytes - this.#left <= quotaBytes) return;
    throw new InputError("quota-exceeded", `the file is larger than the ${quotaBytes} bytes left of the quota`);
  }

  #tick(): void {
    if (this.bytes > this.#synced) this.#check(this.isResumable);
    this.#stopTimer = this.#options.clock.after(SYNC_MS, () => this.#tick());
  }

  #check(isSync: boolean): void {
    if (this.#isChecking || this.#isClosed) return;
    this.#isChecking = true;
    this.#lookAt = Infinity;
    const work = async (): Promise<void> => {
      this.flush();
      const room = await this.#judgeRoom();
      // The descriptor may have been reused.
      if (this.#isClosed) return;
      if (isSync) await this.#sync();
      this.#lookAt = this.bytes + Math.min(LOOK_BYTES, room / LOOKS);
      this.#isChecking = false;
    };
    work().catch((error: unknown) => {
      if (!this.#isClosed) this.#options.fail(toError(error));
    });
  }

  async #sync(): Promise<void> {
    this.flush();
    const [bytes, beginning] = [this.bytes, this.#beginning];
    await datasync(this.#options.part.fd);
    // Nothing is reported after the end.
    if (beginning !== this.#beginning || this.#isClosed) return;
    this.#synced = bytes;
    this.#options.onSynced(bytes);
  }

  /** Returns how many more bytes may be written. @throws {HostError} `disk-full` */
  async #judgeRoom(): Promise<number> {
    const from = this.bytes;
    const { freeBytes, totalBytes } = await this.#options.space();
    const room = freeBytes - (totalBytes * this.#options.limits.reserveRatio) / 2;
    this.#roomTo = from + room;
    if (room >= 0) return room;
    throw new HostError("disk-full", `only ${freeBytes} of ${totalBytes} bytes of the data store's disk are free`);
  }
}

const newHash = (algo: HashAlgorithm | undefined): Hash | undefined =>
  algo === undefined ? undefined : createHash(OPENSSL_NAMES[algo]);
