import type { DatabaseSync, SQLOutputValue, StatementSync } from "node:sqlite";
import { isDiskFull, transaction } from "../../../host/files/database.ts";
import type { AfterReply, TriggerReply } from "./trigger.ts";
import { fromStored, storedForm } from "./journal-result.ts";

/** Schema of the journal, one of the state database's migrations. */
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

/** Adds whether a row may be deleted when the journal is full. */
export const journalYieldMigration = `
ALTER TABLE trigger_journal ADD COLUMN is_read_only INTEGER NOT NULL DEFAULT 0;
CREATE INDEX trigger_journal_yield ON trigger_journal (seq) WHERE is_read_only = 1 AND state = 'done' AND to_send = 0;
`;

/** Committed before a trigger runs. */
export interface JournalEntry {
  readonly id: string;
  readonly event: string;
  /** SHA-256 of the body, hex. */
  readonly digest: string;
  readonly deadlineMs: number;
  /** Session time (for a local call: wall clock) in milliseconds. */
  readonly now: number;
  /** Expiry of the signed request, in milliseconds; undefined for a local call, which cannot be replayed. */
  readonly expiresMs: number | undefined;
  /** True if it changes nothing: its finished row may be deleted for others, since a replay does no harm. */
  readonly isReadOnly: boolean;
}

/** Journal entry of an id; without a reply it was interrupted. */
export interface KnownTrigger {
  readonly event: string;
  readonly digest: string;
  readonly reply: TriggerReply | undefined;
}

export interface UnsentResult {
  /** Position in the order of starts. */
  readonly seq: number;
  readonly id: string;
  readonly reply: TriggerReply;
}

const MAX_JOURNAL_ROWS = 10_000;
/** Limit of triggers that are kept in memory only. */
const MAX_REMEMBERED = 1000;
/** Rows are kept until the request expires, but at least for this time. */
const KEEP_MS = 24 * 3_600_000;
/** Additional time for an unacknowledged result. */
const KEEP_UNSENT_MS = 30 * 24 * 3_600_000;

const interrupted: TriggerReply = {
  error: { code: "interrupted", message: "the node stopped before this was answered; it is not run again" },
};

export interface JournalOptions {
  /** Boot id of the running kernel, /proc/sys/kernel/random/boot_id. */
  readonly bootId: string;
  /** True if the database outlives this process; if false, `begin` returns `unavailable`. */
  readonly isPersistent: boolean;
  readonly maxRows?: number;
  /** Called for each failed write. */
  readonly onFault?: (error: unknown) => void;
  /** Frees space for a write that found the disk full; returns false if it cannot. */
  readonly makeRoom?: () => boolean;
}

/**
 * Stores every trigger before its effect and its result after it, so that none runs twice. Errors of SQLite are thrown as they are, except
 * in `begin`.
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

  /** Run at start: answers triggers that a crash interrupted with `interrupted`. Returns their number. */
  reopen(): number {
    if (!this.#options.isPersistent) return 0;
    const done = this.#run(
      "UPDATE trigger_journal SET state='done', result=?, to_send=1-is_local WHERE state='running'",
      storedForm(interrupted),
    );
    return Number(done.changes);
  }

  /** Run at start, with this boot's id and the program's start in milliseconds: answers triggers whose effect ended the previous run. */
  settle(bootId: string, startedAt: number): number {
    if (!this.#options.isPersistent) return 0;
    const rows = this.#all("SELECT id, settled_by, boot_id FROM trigger_journal WHERE state='acting'");
    for (const row of rows) {
      const isDone = row["settled_by"] === "restart" || row["boot_id"] !== bootId;
      this.finish(String(row["id"]), isDone ? settledReply(row["settled_by"], startedAt) : interrupted, true);
    }
    return rows.length;
  }

  /** Returns the entry of an id. */
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

  /** Commits that a trigger is about to run; only `started` allows its effect. */
  begin(entry: JournalEntry): "started" | "full" | "unavailable" {
    if (!this.#options.isPersistent) return "unavailable";
    try {
      return this.#written(() => transaction(this.#sql, () => this.#insert(entry)));
    } catch (error) {
      this.#options.onFault?.(error);
      return "unavailable";
    }
  }

  /** Keeps a trigger in memory until its request expires or this program ends. Returns false at the limit. */
  remember({ id, event, digest, now, expiresMs = now }: JournalEntry): boolean {
    for (const [known, { keepUntilMs, reply }] of this.#remembered) {
      if (reply !== undefined && keepUntilMs < now) this.#remembered.delete(known);
    }
    if (this.#remembered.size >= MAX_REMEMBERED) return false;
    this.#remembered.set(id, { event, digest, reply: undefined, keepUntilMs: expiresMs });
    return true;
  }

  /** Extends a row: a repeated request expires later than the first. */
  extend(id: string, expiresMs: number): void {
    const remembered = this.#remembered.get(id);
    if (remembered !== undefined) this.#remembered.set(id, { ...remembered, keepUntilMs: expiresMs });
    this.#run("UPDATE trigger_journal SET keep_until_ms=max(keep_until_ms, ?) WHERE id=?", expiresMs, id);
  }

  /** Commits the reply of a trigger whose effect ends this process; `settle` completes it at the next start. */
  open(id: string, reply: TriggerReply, settledBy: AfterReply["settledBy"]): void {
    this.#run(
      "UPDATE trigger_journal SET state='acting', result=?, settled_by=? WHERE id=?",
      storedForm(reply),
      settledBy,
      id,
    );
  }

  /** Commits the result. `isToSend`: the caller has no reply yet; a local caller's result is never sent. */
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

  /** Returns unacknowledged results after `after`, oldest first. */
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

  /** Marks a result that the control plane acknowledged. */
  acknowledge(id: string): void {
    this.#run("UPDATE trigger_journal SET to_send=0 WHERE id=?", id);
  }

  /** Sends a result again that the control plane requested and that was not part of the reply. */
  sendAgain(id: string): void {
    this.#run("UPDATE trigger_journal SET to_send=1-is_local WHERE id=? AND state='done'", id);
  }

  #insert(entry: JournalEntry): "started" | "full" {
    const isLocal = entry.expiresMs === undefined;
    // A local clock may be wrong by years, so only session time decides that a request has expired.
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

  /** Makes room for one row by deleting the oldest one that changed nothing, so that polling cannot block other triggers. */
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

  /** Retries a write once if it found the disk full and space could be freed. */
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
