import type { DatabaseSync, StatementSync } from "node:sqlite";
import { transaction } from "../../host/files/database.ts";
import { Fifo } from "../../lib/async/fifo.ts";
import type { StreamName } from "../../protocol/documents/telemetry.ts";
import type { JsonObject } from "../../protocol/values/values.ts";

/** SQL of the spool's tables, run once when the state database is opened. */
export const spoolMigration = `
  CREATE TABLE spool_stream (
    name TEXT PRIMARY KEY, reserved INTEGER NOT NULL, dropped INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE spool_record (
    stream TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (stream, seq)
  ) STRICT, WITHOUT ROWID;
`;

/** Limit of a stream's unsent records. */
export interface StreamBounds {
  readonly maxRecords: number;
  readonly maxBytes: number;
  /** True if written when appended; otherwise written after a minute, or at shutdown. */
  readonly isUrgent: boolean;
}

export const streamBounds: Readonly<Record<StreamName, StreamBounds>> = {
  events: { maxRecords: 1000, maxBytes: 4 * 1024 * 1024, isUrgent: true },
  audits: { maxRecords: 1000, maxBytes: 1024 * 1024, isUrgent: true },
  metrics: { maxRecords: 1440, maxBytes: 8 * 1024 * 1024, isUrgent: false },
  "gateway-details": { maxRecords: 14_400, maxBytes: 16 * 1024 * 1024, isUrgent: false },
  flows: { maxRecords: 50_000, maxBytes: 32 * 1024 * 1024, isUrgent: false },
  output: { maxRecords: 5000, maxBytes: 16 * 1024 * 1024, isUrgent: true },
};

/** Consecutive records in the form of `telemetry.push`. */
export interface Batch {
  readonly stream: StreamName;
  readonly first: number;
  readonly records: JsonObject[];
  readonly dropped: number;
}

export interface StreamStatus {
  readonly queued: number;
  readonly dropped: number;
}

interface Entry {
  readonly seq: number;
  readonly text: string;
}

interface Stream {
  readonly name: StreamName;
  readonly bounds: StreamBounds;
  entries: Fifo<Entry>;
  bytes: number;
  next: number;
  reserved: number;
  dropped: number;
  droppedReported: number;
  /** Numbers up to this one are on disk, if still unacknowledged. */
  written: number;
  /** True if the disk lacks the number of dropped records. */
  isStale: boolean;
}

/** Numbers are reserved in blocks, so that a number used only in memory is not reused after a crash. */
const RESERVE = 65_536;
const BATCH = { maxRecords: 500, maxBytes: 256 * 1024 };

/**
 * Queue of telemetry for the control plane: numbered per stream, kept until acknowledged, limited, with drops counted. A failed write costs
 * durability, but no record.
 */
export class Spool {
  readonly #sql: DatabaseSync;
  readonly #onFault: (error: unknown) => void;
  readonly #streams = new Map<StreamName, Stream>();
  readonly #insert: StatementSync;
  readonly #removeUpTo: StatementSync;
  readonly #saveStream: StatementSync;

  constructor(sql: DatabaseSync, onFault: (error: unknown) => void) {
    this.#sql = sql;
    this.#onFault = onFault;
    this.#insert = sql.prepare("INSERT OR REPLACE INTO spool_record (stream, seq, body) VALUES (?, ?, ?)");
    this.#removeUpTo = sql.prepare("DELETE FROM spool_record WHERE stream = ? AND seq <= ?");
    this.#saveStream = sql.prepare("INSERT OR REPLACE INTO spool_stream (name, reserved, dropped) VALUES (?, ?, ?)");
    for (const [name, bounds] of Object.entries(streamBounds) as [StreamName, StreamBounds][]) {
      this.#streams.set(name, this.#load(name, bounds));
    }
    // Reserved at the start, which writes anyway, so that the first record of an idle node causes no write.
    this.#try(() => {
      transaction(sql, () => {
        for (const stream of this.#streams.values()) this.#saveReserved(stream);
      });
    });
  }

  /** Appends one record. A full stream drops and counts its oldest record. */
  append(name: StreamName, record: JsonObject): void {
    this.appendAll(name, [record]);
  }

  /** Appends many records with at most one write. */
  appendAll(name: StreamName, records: readonly JsonObject[]): void {
    const stream = this.#stream(name);
    for (const record of records) {
      const text = JSON.stringify(record);
      // No message could carry it, and it would block all later records.
      if (text.length > BATCH.maxBytes) this.#drop(stream);
      else {
        stream.entries.push({ seq: this.#number(stream), text });
        stream.bytes += text.length;
      }
    }
    while (stream.entries.length > stream.bounds.maxRecords || stream.bytes > stream.bounds.maxBytes) {
      stream.bytes -= stream.entries.shift()?.text.length ?? 0;
      this.#drop(stream);
    }
    if (stream.bounds.isUrgent) this.#write(stream);
  }

  /** Returns the oldest unacknowledged records of a stream, at most one full message; undefined without any. */
  batch(name: StreamName): Batch | undefined {
    const stream = this.#stream(name);
    const head = stream.entries.at(0);
    if (head === undefined) return undefined;
    const records: JsonObject[] = [];
    let bytes = 0;
    for (const { seq, text } of stream.entries) {
      bytes += text.length;
      const isFull = records.length >= BATCH.maxRecords || (records.length > 0 && bytes > BATCH.maxBytes);
      // A gap in the numbers ends the message, since the first number implies the others.
      if (isFull || seq !== head.seq + records.length) break;
      records.push(JSON.parse(text) as JsonObject);
    }
    return { stream: name, first: head.seq, records, dropped: stream.dropped - stream.droppedReported };
  }

  /** Deletes acknowledged records: all up to `last`. */
  acknowledge(batch: Batch, last: number): void {
    const stream = this.#stream(batch.stream);
    if (last < batch.first) return;
    stream.droppedReported += batch.dropped;
    if (last >= stream.next) return this.#renumber(stream, last + 1);
    const wasWritten = (stream.entries.at(0)?.seq ?? Infinity) <= stream.written;
    for (let head = stream.entries.at(0); head !== undefined && head.seq <= last; head = stream.entries.at(0)) {
      stream.entries.shift();
      stream.bytes -= head.text.length;
    }
    if (wasWritten && !this.#try(() => this.#removeUpTo.run(batch.stream, last))) stream.isStale = true;
  }

  /**
   * Writes records that are only in memory, at most `most` per stream: all at shutdown, in parts after a minute. Returns whether a further
   * call would write more.
   */
  flush(most = Infinity): boolean {
    const wasTaken = [...this.#streams.values()].map((stream) => this.#write(stream, most));
    return wasTaken.every(Boolean) && [...this.#streams.values()].some((stream) => unwritten(stream) > 0);
  }

  status(): Readonly<Record<StreamName, StreamStatus>> {
    const entries = [...this.#streams].map(([name, { entries, dropped }]) => [
      name,
      { queued: entries.length, dropped },
    ]);
    return Object.fromEntries(entries) as Record<StreamName, StreamStatus>;
  }

  #load(name: StreamName, bounds: StreamBounds): Stream {
    const row = this.#sql.prepare("SELECT reserved, dropped FROM spool_stream WHERE name = ?").get(name);
    const rows = this.#sql.prepare("SELECT seq, body FROM spool_record WHERE stream = ? ORDER BY seq").all(name);
    const entries = new Fifo(rows.map((record) => ({ seq: Number(record["seq"]), text: String(record["body"]) })));
    const reserved = Number(row?.["reserved"] ?? 1);
    const dropped = Number(row?.["dropped"] ?? 0);
    const written = entries.last()?.seq ?? 0;
    return {
      name,
      bounds,
      entries,
      bytes: [...entries].reduce((sum, entry) => sum + entry.text.length, 0),
      next: Math.max(reserved, written + 1),
      reserved,
      dropped,
      droppedReported: dropped,
      written,
      isStale: false,
    };
  }

  #stream(name: StreamName): Stream {
    return this.#streams.get(name) ?? this.#load(name, streamBounds[name]);
  }

  #number(stream: Stream): number {
    const seq = stream.next;
    stream.next += 1;
    if (stream.next > stream.reserved) this.#reserve(stream);
    return seq;
  }

  #reserve(stream: Stream): void {
    this.#try(() => this.#saveReserved(stream));
  }

  #saveReserved(stream: Stream): void {
    stream.reserved = stream.next + RESERVE;
    this.#saveStream.run(stream.name, stream.reserved, stream.dropped);
  }

  /** Renumbers waiting records above the control plane's last number: after a lost disk they would be taken for old ones. */
  #renumber(stream: Stream, first: number): void {
    const texts = [...stream.entries].map(({ text }) => text);
    stream.entries = new Fifo(texts.map((text, index) => ({ seq: first + index, text })));
    stream.next = first + texts.length;
    stream.written = 0;
    stream.isStale = true;
    this.#reserve(stream);
    this.#write(stream);
  }

  #drop(stream: Stream): void {
    stream.dropped += 1;
    stream.isStale = true;
  }

  /** Updates the disk in one transaction; false if it failed. */
  #write(stream: Stream, most = Infinity): boolean {
    const waiting = Math.min(unwritten(stream), most);
    if (waiting === 0 && !stream.isStale) return true;
    const from = stream.entries.length - unwritten(stream);
    const head = stream.entries.at(0)?.seq ?? stream.next;
    return this.#try(() => {
      transaction(this.#sql, () => {
        if (stream.isStale) this.#removeUpTo.run(stream.name, head - 1);
        for (let index = from; index < from + waiting; index += 1) {
          const entry = stream.entries.at(index);
          if (entry !== undefined) this.#insert.run(stream.name, entry.seq, entry.text);
        }
        this.#saveStream.run(stream.name, stream.reserved, stream.dropped);
      });
      stream.written = stream.entries.at(from + waiting - 1)?.seq ?? stream.written;
      stream.isStale = false;
    });
  }

  #try(work: () => void): boolean {
    try {
      work();
      return true;
    } catch (error) {
      this.#onFault(error);
      return false;
    }
  }
}

/** Number of a stream's newest entries that are only in memory, since they are written in order. */
function unwritten({ entries, written }: Stream): number {
  const [first, last] = [entries.at(0)?.seq ?? 0, entries.last()?.seq ?? 0];
  if (last <= written) return 0;
  if (first > written) return entries.length;
  let [low, high] = [0, entries.length - 1];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if ((entries.at(middle)?.seq ?? 0) > written) high = middle;
    else low = middle + 1;
  }
  return entries.length - low;
}

/** Returns the numbers of waiting and of dropped records over all streams; skipped heartbeats count as dropped. */
export function queueOf(status: ReturnType<Spool["status"]>, leftOut: number): { records: number; dropped: number } {
  const streams = Object.values(status);
  return {
    records: streams.reduce((sum, { queued }) => sum + queued, 0),
    dropped: streams.reduce((sum, { dropped }) => sum + dropped, leftOut),
  };
}
