import type { DatabaseSync, StatementSync } from "node:sqlite";
import { transaction } from "../../host/database.ts";
import type { StreamName } from "../../protocol/telemetry.ts";
import type { JsonObject } from "../../protocol/values.ts";

/** SQL of the spool's tables, run once by whoever opens the state database. */
export const spoolMigration = `
  CREATE TABLE spool_stream (
    name TEXT PRIMARY KEY, reserved INTEGER NOT NULL, dropped INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE spool_record (
    stream TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (stream, seq)
  ) STRICT, WITHOUT ROWID;
`;

/** How much of a stream is kept while nobody takes it. */
export interface StreamBounds {
  readonly maxRecords: number;
  readonly maxBytes: number;
  /** Written when it is appended; otherwise kept in memory and written when it has waited a minute, or at shutdown. */
  readonly isUrgent: boolean;
}

export const streamBounds: Readonly<Record<StreamName, StreamBounds>> = {
  events: { maxRecords: 1000, maxBytes: 4 * 1024 * 1024, isUrgent: true },
  audits: { maxRecords: 1000, maxBytes: 1024 * 1024, isUrgent: true },
  metrics: { maxRecords: 1440, maxBytes: 8 * 1024 * 1024, isUrgent: false },
  "gateway-details": { maxRecords: 14_400, maxBytes: 16 * 1024 * 1024, isUrgent: false },
  flows: { maxRecords: 50_000, maxBytes: 32 * 1024 * 1024, isUrgent: false },
  output: { maxRecords: 1000, maxBytes: 16 * 1024 * 1024, isUrgent: true },
};

/** A run of records as `telemetry.push` carries them. */
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
  isWritten: boolean;
}

interface Stream {
  readonly name: StreamName;
  readonly bounds: StreamBounds;
  readonly entries: Entry[];
  bytes: number;
  next: number;
  reserved: number;
  dropped: number;
  droppedReported: number;
}

/** Numbers are set aside in blocks, so that one used only in memory is never used again after a crash. */
const RESERVE = 65_536;
const BATCH = { maxRecords: 500, maxBytes: 256 * 1024 };

/**
 * Telemetry that waits for the control plane: numbered per stream, kept until acknowledged, bounded, drops counted. A disk
 * that refuses a write costs durability, never a record.
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
    // At the start, when there is writing anyway: the first record of an idle node must not be a reason to write.
    this.#try(() => {
      transaction(sql, () => {
        for (const stream of this.#streams.values()) this.#saveReserved(stream);
      });
    });
  }

  /** Takes one record. When the stream is full the oldest goes, and is counted. */
  append(name: StreamName, record: JsonObject): void {
    const stream = this.#stream(name);
    const text = JSON.stringify(record);
    // No message could carry it, and everything behind it would wait for ever.
    if (text.length > BATCH.maxBytes) {
      stream.dropped += 1;
      this.#try(() => this.#saveStream.run(name, stream.reserved, stream.dropped));
      return;
    }
    const entry: Entry = { seq: this.#number(stream), text, isWritten: false };
    stream.entries.push(entry);
    stream.bytes += entry.text.length;
    const kept = stream.entries.length;
    let oldest = stream.entries[0];
    while (
      oldest !== undefined &&
      (stream.entries.length > stream.bounds.maxRecords || stream.bytes > stream.bounds.maxBytes)
    ) {
      stream.entries.shift();
      stream.bytes -= oldest.text.length;
      stream.dropped += 1;
      if (oldest.isWritten) this.#try(() => this.#removeUpTo.run(name, oldest?.seq ?? 0));
      oldest = stream.entries[0];
    }
    if (stream.bounds.isUrgent) this.#write(stream);
    else if (stream.entries.length < kept) this.#try(() => this.#saveStream.run(name, stream.reserved, stream.dropped));
  }

  /** The oldest unacknowledged records of a stream, at most one message full; undefined when there are none. */
  batch(name: StreamName): Batch | undefined {
    const stream = this.#stream(name);
    const [head] = stream.entries;
    if (head === undefined) return undefined;
    const records: JsonObject[] = [];
    let bytes = 0;
    for (const [index, entry] of stream.entries.entries()) {
      bytes += entry.text.length;
      // A gap in the numbers ends the message, since they are counted from the first.
      if (records.length >= BATCH.maxRecords || (index > 0 && bytes > BATCH.maxBytes) || entry.seq !== head.seq + index)
        break;
      records.push(JSON.parse(entry.text) as JsonObject);
    }
    return { stream: name, first: head.seq, records, dropped: stream.dropped - stream.droppedReported };
  }

  /** Forgets what the control plane has: everything up to `last`. */
  acknowledge(batch: Batch, last: number): void {
    const stream = this.#stream(batch.stream);
    if (last < batch.first) return;
    stream.droppedReported += batch.dropped;
    if (last >= stream.next) return this.#renumber(stream, last + 1);
    let wasWritten = false;
    while (stream.entries[0] !== undefined && stream.entries[0].seq <= last) {
      const [gone] = stream.entries.splice(0, 1);
      stream.bytes -= gone?.text.length ?? 0;
      wasWritten ||= gone?.isWritten === true;
    }
    if (wasWritten) this.#try(() => this.#removeUpTo.run(batch.stream, last));
  }

  /** Writes what waits only in memory: at shutdown, and when it has waited long enough. */
  flush(): void {
    for (const stream of this.#streams.values()) this.#write(stream);
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
    const entries = rows.map((record) => ({
      seq: Number(record["seq"]),
      text: String(record["body"]),
      isWritten: true,
    }));
    const reserved = Number(row?.["reserved"] ?? 1);
    const dropped = Number(row?.["dropped"] ?? 0);
    return {
      name,
      bounds,
      entries,
      bytes: entries.reduce((sum, entry) => sum + entry.text.length, 0),
      next: Math.max(reserved, (entries.at(-1)?.seq ?? 0) + 1),
      reserved,
      dropped,
      droppedReported: dropped,
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

  /** The control plane knows numbers that a lost disk does not: what waits here was taken for old, and goes again above them. */
  #renumber(stream: Stream, first: number): void {
    const written = stream.entries.at(-1)?.seq ?? 0;
    stream.entries.forEach((entry, i) => {
      stream.entries[i] = { seq: first + i, text: entry.text, isWritten: false };
    });
    stream.next = first + stream.entries.length;
    this.#reserve(stream);
    this.#try(() => this.#removeUpTo.run(stream.name, written));
    this.#write(stream);
  }

  #write(stream: Stream): void {
    const waiting = stream.entries.filter((entry) => !entry.isWritten);
    if (waiting.length === 0) return;
    this.#try(() => {
      transaction(this.#sql, () => {
        for (const { seq, text } of waiting) this.#insert.run(stream.name, seq, text);
        this.#saveStream.run(stream.name, stream.reserved, stream.dropped);
      });
      for (const entry of waiting) entry.isWritten = true;
    });
  }

  #try(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#onFault(error);
    }
  }
}

/** Everything that waits and everything that was dropped, over all streams and the heartbeats that were left out. */
export function queueOf(status: ReturnType<Spool["status"]>, leftOut: number): { records: number; dropped: number } {
  const streams = Object.values(status);
  return {
    records: streams.reduce((sum, { queued }) => sum + queued, 0),
    dropped: streams.reduce((sum, { dropped }) => sum + dropped, leftOut),
  };
}
