import type { DatabaseSync, SQLOutputValue, StatementSync } from "node:sqlite";
import { isDiskFull, transaction } from "../../../host/files/database.ts";
import type { AfterReply, TriggerReply } from "./trigger.ts";
import { fromStored, storedForm } from "./journal-result.ts";

/** Schema of the journal, for the list of migrations of the state database. */
export const journalMigration = `
CREATE TABLE trigger_journal (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  event TEXT NOT NULL,
  digest TEXT NOT NULL,
  deadline_ms INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('running', 'acting', 'done')),
  settled_by TEXT,
  boot_id TEXT NOT NULL,
  result TEXT,
  keep_until_ms INTEGER NOT NULL,
  is_local INTEGER NOT NULL,
  to_send INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX trigger_journal_keep ON trigger_journal (keep_until_ms) WHERE state = 'done';
CREATE INDEX trigger_journal_send ON trigger_journal (seq) WHERE to_send = 1;
`;

/** Says of each row whether it gives way when the journal is full. */
export const journalYieldMigration = `
ALTER TABLE trigger_journal ADD COLUMN is_read_only INTEGER NOT NULL DEFAULT 0;
CREATE INDEX trigger_journal_yield ON trigger_journal (seq) WHERE is_read_only = 1 AND state = 'done' AND to_send = 0;
`;

/** What is committed before a trigger does anything. */
export interface JournalEntry {
  readonly id: string;
  readonly event: string;
  /** SHA-256 of the body, hex. */
  readonly digest: string;
  readonly deadlineMs: number;
  /** Session time (a local call: wall clock) in milliseconds. */
  readonly now: number;
  /** When the signed request expires, in milliseconds; undefined for a local call, which nobody can repeat. */
  readonly expiresMs: number | undefined;
  /** Whether it changes nothing: its row gives way to others once it is done, since a replay of it does no harm. */
  readonly isReadOnly: boolean;
}

/** What the journal knows of an id; a reply that is absent was cut off. */
export interface KnownTrigger {
  readonly event: string;
  readonly digest: string;
  readonly reply: TriggerReply | undefined;
}

export interface UnsentResult {
  /** Its place in the order of beginning. */
  readonly seq: number;
  readonly id: string;
  readonly reply: TriggerReply;
}

export const MAX_JOURNAL_ROWS = 10_000;
/** Limit of triggers that are known from memory alone. */
const MAX_REMEMBERED = 1000;
/** Rows outlive the request's expiry and this long, whichever is later. */
const KEEP_MS = 24 * 3_600_000;
/** How long a result that nobody acknowledged is held beyond that. */
const KEEP_UNSENT_MS = 30 * 24 * 3_600_000;

const interrupted: TriggerReply = {
  error: { code: "interrupted", message: "the node stopped before this was answered; it is not run again" },
};

export interface JournalOptions {
  /** Of the running kernel, /proc/sys/kernel/random/boot_id. */
  readonly bootId: string;
  /** Whether what is written outlives this process; false makes `begin` answer `unavailable`. */
  readonly isPersistent: boolean;
  readonly maxRows?: number;
  /** Told of a write that the disk refused. */
  readonly onFault?: (error: unknown) => void;
  /** Frees room for a write that found the disk full; false when there is none to free. */
  readonly makeRoom?: () => boolean;
}

/**
 * Remembers every trigger before its effect and its result after it, so that none runs twice. A failed SQLite call throws as it
 * is, except in `begin`.
 */
export class Journal {
  readonly #sql: DatabaseSync;
  readonly #options: JournalOptions;
  readonly #statements = new Map<string, StatementSync>();
  readonly #remembered = new Map<string, KnownTrigger & { readonly keepUntilMs: number }>();

  constructor(sql: DatabaseSync, options: JournalOptions) {
    this.#sql = sql;
    this.#options = options;
  }

  /** At start: whatever a crash cut off is answered `interrupted`. Returns how many there were. */
  reopen(): number {
    if (!this.#options.isPersistent) return 0;
    const done = this.#run(
      "UPDATE trigger_journal SET state='done', result=?, to_send=1-is_local WHERE state='running'",
      storedForm(interrupted),
    );
    return Number(done.changes);
  }

  /** At start, with this boot's id and the program's start in milliseconds: answers what ended the previous run on purpose. */
  settle(bootId: string, startedAt: number): number {
    if (!this.#options.isPersistent) return 0;
    const rows = this.#all("SELECT id, settled_by, boot_id FROM trigger_journal WHERE state='acting'");
    for (const row of rows) {
      const isDone = row["settled_by"] === "restart" || row["boot_id"] !== bootId;
      this.finish(String(row["id"]), isDone ? settledReply(row["settled_by"], startedAt) : interrupted, true);
    }
    return rows.length;
  }

  /** What is known of an id. */
  find(id: string): KnownTrigger | undefined {
    const remembered = this.#remembered.get(id);
    if (remembered !== undefined) return remembered;
    const row = this.#get("SELECT event, digest, result FROM trigger_journal WHERE id=?", id);
    if (row === undefined) return undefined;
    const result = row["result"];
    return {
      event: String(row["event"]),
      digest: String(row["digest"]),
      reply: typeof result === "string" ? fromStored(result) : undefined,
    };
  }

  /** Commits that a trigger is about to run: only `started` allows its effect. */
  begin(entry: JournalEntry): "started" | "full" | "unavailable" {
    if (!this.#options.isPersistent) return "unavailable";
    try {
      return this.#written(() => transaction(this.#sql, () => this.#insert(entry)));
    } catch (error) {
      this.#options.onFault?.(error);
      return "unavailable";
    }
  }

  /** Knows a trigger from memory, until its request has expired and this program at the latest. False when there are too many. */
  remember({ id, event, digest, now, expiresMs = now }: JournalEntry): boolean {
    for (const [known, { keepUntilMs, reply }] of this.#remembered) {
      if (reply !== undefined && keepUntilMs < now) this.#remembered.delete(known);
    }
    if (this.#remembered.size >= MAX_REMEMBERED) return false;
    this.#remembered.set(id, { event, digest, reply: undefined, keepUntilMs: expiresMs });
    return true;
  }

  /** A repeated request expires later than the first: its row must too. */
  extend(id: string, expiresMs: number): void {
    const remembered = this.#remembered.get(id);
    if (remembered !== undefined) this.#remembered.set(id, { ...remembered, keepUntilMs: expiresMs });
    this.#run("UPDATE trigger_journal SET keep_until_ms=max(keep_until_ms, ?) WHERE id=?", expiresMs, id);
  }

  /** Commits the reply of a trigger whose effect follows it and ends this process; `settle` answers for it at the next start. */
  open(id: string, reply: TriggerReply, settledBy: AfterReply["settledBy"]): void {
    this.#run(
      "UPDATE trigger_journal SET state='acting', result=?, settled_by=? WHERE id=?",
      storedForm(reply),
      settledBy,
      id,
    );
  }

  /** Commits the result. `isToSend`: nobody has been told; a local caller's is never sent. */
  finish(id: string, reply: TriggerReply, isToSend: boolean): void {
    const remembered = this.#remembered.get(id);
    if (remembered !== undefined) {
      this.#remembered.set(id, { ...remembered, reply });
      return;
    }
    this.#run(
      "UPDATE trigger_journal SET state='done', result=?, to_send=(1-is_local)*? WHERE id=?",
      storedForm(reply),
      Number(isToSend),
      id,
    );
  }

  /** Results that the control plane has not acknowledged, oldest first, those up to `after` left out. */
  unacknowledged(limit: number, after = 0): readonly UnsentResult[] {
    const rows = this.#all(
      "SELECT seq, id, result FROM trigger_journal WHERE to_send=1 AND seq>? ORDER BY seq LIMIT ?",
      after,
      limit,
    );
    return rows.map((row) => ({
      seq: Number(row["seq"]),
      id: String(row["id"]),
      reply: fromStored(String(row["result"])),
    }));
  }

  /** The control plane has the result. */
  acknowledge(id: string): void {
    this.#run("UPDATE trigger_journal SET to_send=0 WHERE id=?", id);
  }

  /** The control plane asked again for a result that was not part of the reply. */
  sendAgain(id: string): void {
    this.#run("UPDATE trigger_journal SET to_send=1-is_local WHERE id=? AND state='done'", id);
  }

  #insert(entry: JournalEntry): "started" | "full" {
    const isLocal = entry.expiresMs === undefined;
    // A local clock may be wrong by years, so only session time may decide that a request cannot come again.
    if (!isLocal) {
      this.#run("DELETE FROM trigger_journal WHERE state='done' AND to_send=0 AND keep_until_ms<?", entry.now);
      this.#run("DELETE FROM trigger_journal WHERE state='done' AND keep_until_ms<?", entry.now - KEEP_UNSENT_MS);
    } else {
      this.#run("DELETE FROM trigger_journal WHERE state='done' AND is_local=1");
    }
    if (!this.#makeRoom()) return "full";
    this.#run(
      `INSERT INTO trigger_journal (id, event, digest, deadline_ms, state, boot_id, keep_until_ms, is_local, is_read_only)
       VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?)`,
      entry.id,
      entry.event,
      entry.digest,
      entry.deadlineMs,
      this.#options.bootId,
      entry.expiresMs === undefined ? 0 : Math.ceil(Math.max(entry.expiresMs, entry.now + KEEP_MS)),
      Number(isLocal),
      Number(entry.isReadOnly),
    );
    return "started";
  }

  /** Has room for one more row, the oldest that changed nothing forgotten for it: whoever polls must not keep others out. */
  #makeRoom(): boolean {
    const rows = Number(this.#get("SELECT count(*) AS n FROM trigger_journal")?.["n"]);
    if (rows < (this.#options.maxRows ?? MAX_JOURNAL_ROWS)) return true;
    const oldest = `SELECT seq FROM trigger_journal WHERE is_read_only=1 AND state='done' AND to_send=0 ORDER BY seq LIMIT 1`;
    return this.#run(`DELETE FROM trigger_journal WHERE seq=(${oldest})`).changes > 0;
  }

  #prepare(text: string): StatementSync {
    const known = this.#statements.get(text);
    if (known !== undefined) return known;
    const statement = this.#sql.prepare(text);
    this.#statements.set(text, statement);
    return statement;
  }

  #run(text: string, ...values: readonly (string | number)[]): { readonly changes: number | bigint } {
    const run = (): { readonly changes: number | bigint } => this.#prepare(text).run(...values);
    return this.#sql.isTransaction ? run() : this.#written(run);
  }

  /** Repeats once what found the disk full, if room could be made. */
  #written<T>(write: () => T): T {
    try {
      return write();
    } catch (error) {
      if (!isDiskFull(error) || this.#options.makeRoom?.() !== true) throw error;
      this.#options.onFault?.(error);
      return write();
    }
  }

  #get(text: string, ...values: readonly (string | number)[]): Record<string, SQLOutputValue> | undefined {
    return this.#prepare(text).get(...values);
  }

  #all(text: string, ...values: readonly (string | number)[]): Record<string, SQLOutputValue>[] {
    return this.#prepare(text).all(...values);
  }
}

function settledReply(settledBy: SQLOutputValue | undefined, startedAt: number): TriggerReply {
  const message = settledBy === "reboot" ? "Node host restarted" : "Node service restarted";
  return { body: { output: { message, startedAt } } };
}
