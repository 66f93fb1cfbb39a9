import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  Journal,
  journalMigration,
  journalYieldMigration,
  type JournalEntry,
} from "../../../../../src/agent/triggers/execution/journal.ts";
import { openDatabase } from "../../../../../src/host/files/database.ts";
import { BOOT_ID, DAY, memoryJournal, NOW } from "../../../../unit/agent/triggers/rig.ts";

const OTHER_BOOT = "3f0c5c1e-0000-4000-8000-000000000002";
let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "journal-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function entry(fields: Partial<JournalEntry> = {}): JournalEntry {
  const expiresMs = NOW + 300_000;
  return {
    id: randomUUID(),
    event: "tg-ping",
    digest: "d",
    deadlineMs: 1000,
    now: NOW,
    expiresMs,
    isReadOnly: false,
    ...fields,
  };
}

describe("one trigger", () => {
  test("is recorded before its effect, and with its reply after it", () => {
    const { journal } = memoryJournal();
    const it = entry();
    expect(journal.find(it.id)).toBeUndefined();
    expect(journal.begin(it)).toBe("started");
    expect(journal.find(it.id)).toEqual({ event: "tg-ping", digest: "d", reply: undefined });
    journal.finish(it.id, { body: { a: 1 } }, false);
    expect(journal.find(it.id)?.reply).toEqual({ body: { a: 1 } });
    expect(journal.unacknowledged(10)).toEqual([]);
  });

  test("without a delivered result is listed until acknowledged, oldest first", () => {
    const { journal } = memoryJournal();
    const [first, second] = [entry(), entry()];
    for (const it of [first, second]) journal.begin(it);
    journal.finish(second.id, { body: 2 }, true);
    journal.finish(first.id, { error: { code: "timeout", message: "late" } }, true);
    expect(journal.unacknowledged(10).map(({ id }) => id)).toEqual([first.id, second.id]);
    expect(journal.unacknowledged(1).map(({ id }) => id)).toEqual([first.id]);
    expect(journal.unacknowledged(1, 1).map(({ id }) => id)).toEqual([second.id]);
    journal.acknowledge(first.id);
    expect(journal.unacknowledged(10)).toEqual([{ seq: 2, id: second.id, reply: { body: 2 } }]);
    journal.acknowledge(second.id);
    journal.sendAgain(second.id);
    expect(journal.unacknowledged(10)).toHaveLength(1);
  });
});

describe("the stored result", () => {
  const kept = (body: unknown): unknown => {
    const { journal } = memoryJournal();
    const it = entry();
    journal.begin(it);
    journal.finish(it.id, { body }, true);
    return journal.find(it.id)?.reply;
  };

  test("is free of secrets", () => {
    expect(kept({ output: { psk: "s3", apiKey: "s3", user: "u", nested: [{ token: "s3" }] } })).toEqual({
      body: { output: { psk: "[redacted]", apiKey: "[redacted]", user: "u", nested: [{ token: "[redacted]" }] } },
    });
  });

  test("is at most 64 KiB, and is marked when it is a first part", () => {
    expect(kept({ output: { message: "\u0001é".repeat(100_000), exitCode: "0", truncated: false } })).toEqual({
      body: { output: { message: "\u0001é".repeat(5000), exitCode: "0", truncated: true } },
    });
    const rows = Array.from({ length: 50_000 }, () => "x");
    expect(kept({ rows })).toEqual({ body: { truncated: true, part: JSON.stringify({ rows }).slice(0, 10_000) } });
    expect(kept({ output: { message: "m", more: "x".repeat(100_000) } })).toEqual({ body: { truncated: true } });
  });
});

describe("after a crash", () => {
  test("what was cut off is interrupted, what was done is kept", () => {
    const path = join(folder, "state.db");
    const [cut, done, local] = [entry(), entry(), entry({ expiresMs: undefined })];
    const at = (file: string): string => JSON.stringify(new URL(`../../../../../src/${file}`, import.meta.url).href);
    const program = `
      const { openDatabase } = await import(${at("host/files/database.ts")});
      const { Journal, journalMigration, journalYieldMigration } = await import(${at("agent/triggers/execution/journal.ts")});
      const { sql } = openDatabase(${JSON.stringify(path)}, { migrations: [journalMigration, journalYieldMigration], exclusive: true });
      const journal = new Journal(sql, { bootId: ${JSON.stringify(BOOT_ID)}, isPersistent: true });
      for (const entry of ${JSON.stringify([done, cut, local])}) journal.begin(entry);
      journal.finish(${JSON.stringify(done.id)}, { body: 1 }, false);
      process.kill(process.pid, "SIGKILL");`;
    const child = spawnSync(process.execPath, ["--input-type=module", "-e", program], { encoding: "utf8" });
    expect([child.signal, child.stderr]).toEqual(["SIGKILL", ""]);

    const { sql, isPersistent } = openDatabase(path, {
      migrations: [journalMigration, journalYieldMigration],
      exclusive: true,
    });
    const journal = new Journal(sql, { bootId: BOOT_ID, isPersistent });
    expect(journal.reopen()).toBe(2);
    expect(journal.reopen()).toBe(0);
    expect(journal.find(done.id)?.reply).toEqual({ body: 1 });
    for (const { id } of [cut, local]) {
      expect(journal.find(id)?.reply).toMatchObject({ error: { code: "interrupted" } });
    }
    expect(journal.unacknowledged(10).map(({ id }) => id)).toEqual([cut.id]);
    sql.close();
  });
});

describe("an intended exit of the program", () => {
  test("stays open over the restart and is answered after it", () => {
    const { journal } = memoryJournal();
    const [restart, reboot] = [entry({ event: "node-restart-service" }), entry({ event: "node-reboot" })];
    for (const it of [restart, reboot]) journal.begin(it);
    const reply = { body: { output: { message: "will restart" } } };
    journal.open(restart.id, reply, "restart");
    journal.open(reboot.id, reply, "reboot");
    expect(journal.find(reboot.id)?.reply).toEqual(reply);
    expect(journal.reopen()).toBe(0);
    expect(journal.unacknowledged(10)).toEqual([]);
    expect(journal.settle(OTHER_BOOT, NOW)).toBe(2);
    expect(journal.settle(OTHER_BOOT, NOW)).toBe(0);
    expect(journal.unacknowledged(10)).toEqual([
      { seq: 1, id: restart.id, reply: { body: { output: { message: "Node service restarted", startedAt: NOW } } } },
      { seq: 2, id: reboot.id, reply: { body: { output: { message: "Node host restarted", startedAt: NOW } } } },
    ]);
  });

  test("is not complete if the host did not restart", () => {
    const { journal } = memoryJournal();
    const reboot = entry({ event: "node-reboot" });
    journal.begin(reboot);
    journal.open(reboot.id, { body: 1 }, "reboot");
    journal.settle(BOOT_ID, NOW);
    expect(journal.find(reboot.id)?.reply).toMatchObject({ error: { code: "interrupted" } });
  });
});

describe("limits", () => {
  test("remove the oldest ended reads, and nothing else", () => {
    const { journal } = memoryJournal({ maxRows: 4 });
    const isReadOnly = true;
    const [change, unsent, first, second] = [
      entry(),
      entry({ isReadOnly }),
      entry({ isReadOnly }),
      entry({ isReadOnly }),
    ];
    for (const it of [change, unsent, first, second]) journal.begin(it);
    for (const it of [change, first]) journal.finish(it.id, { body: 1 }, false);
    journal.finish(unsent.id, { body: 1 }, true);
    expect(journal.begin(entry())).toBe("started");
    expect(journal.find(first.id)).toBeUndefined();
    expect(journal.begin(entry({ isReadOnly }))).toBe("full");
    journal.finish(second.id, { body: 1 }, false);
    expect(journal.begin(entry())).toBe("started");
    expect(journal.find(second.id)).toBeUndefined();
    expect(journal.begin(entry())).toBe("full");
    for (const { id } of [change, unsent]) expect(journal.find(id)).toBeDefined();
  });

  test("refuse everything when the journal is full, and remove nothing", () => {
    const { journal } = memoryJournal({ maxRows: 2 });
    const rows = [entry(), entry()];
    for (const it of rows) {
      journal.begin(it);
      journal.finish(it.id, { body: 1 }, false);
    }
    expect(journal.begin(entry())).toBe("full");
    expect(journal.begin(entry({ now: NOW + DAY }))).toBe("full");
    for (const { id } of rows) expect(journal.find(id)).toBeDefined();
    expect(journal.begin(entry({ now: NOW + DAY + 1 }))).toBe("started");
    for (const { id } of rows) expect(journal.find(id)).toBeUndefined();
  });

  test("keep a row past a late expiry, a repetition, and 30 days more while its result is not acknowledged", () => {
    const { journal } = memoryJournal();
    const [late, repeated, unsent, running] = [entry({ expiresMs: NOW + 5 * DAY }), entry(), entry(), entry()];
    for (const it of [late, repeated, unsent, running]) journal.begin(it);
    for (const it of [late, repeated, unsent]) journal.finish(it.id, { body: 1 }, it === unsent);
    journal.extend(repeated.id, NOW + 3 * DAY);
    const left = (now: number): (string | undefined)[] => {
      journal.begin(entry({ now }));
      return [late, repeated, unsent, running].filter(({ id }) => journal.find(id)).map(({ id }) => id);
    };
    expect(left(NOW + 2 * DAY)).toEqual([late.id, repeated.id, unsent.id, running.id]);
    expect(left(NOW + 4 * DAY)).toEqual([late.id, unsent.id, running.id]);
    expect(left(NOW + 6 * DAY)).toEqual([unsent.id, running.id]);
    expect(left(NOW + 40 * DAY)).toEqual([running.id]);
  });

  test("remove ended local triggers, and a wrong local clock removes nothing else", () => {
    const { journal } = memoryJournal();
    const [signed, local] = [entry(), entry({ expiresMs: undefined })];
    for (const it of [signed, local]) {
      journal.begin(it);
      journal.finish(it.id, { body: 1 }, true);
    }
    expect(journal.unacknowledged(10).map(({ id }) => id)).toEqual([signed.id]);
    journal.acknowledge(signed.id);
    journal.begin(entry({ expiresMs: undefined, now: NOW + 1000 * DAY }));
    expect(journal.find(local.id)).toBeUndefined();
    expect(journal.find(signed.id)).toBeDefined();
  });
});

describe("an unwritable journal", () => {
  test("is unavailable on a read-only disk and in memory, and keeps its entries", () => {
    const path = join(folder, "state.db");
    const it = entry();
    const { sql } = openDatabase(path, { migrations: [journalMigration, journalYieldMigration], exclusive: false });
    new Journal(sql, { bootId: BOOT_ID, isPersistent: true }).begin(it);
    sql.close();
    const readOnly = new DatabaseSync(path, { readOnly: true });
    const journal = new Journal(readOnly, { bootId: BOOT_ID, isPersistent: true });
    expect(journal.begin(entry())).toBe("unavailable");
    expect(journal.find(it.id)).toMatchObject({ event: "tg-ping" });
    readOnly.close();
    const { journal: inMemory } = memoryJournal({ isPersistent: false });
    expect(inMemory.begin(entry())).toBe("unavailable");
    expect([inMemory.reopen(), inMemory.settle(OTHER_BOOT, NOW)]).toEqual([0, 0]);
  });

  test("writes on a full disk with the room made, as long as there is some", () => {
    let rooms = 2;
    const { sql, journal } = memoryJournal({
      makeRoom() {
        rooms -= 1;
        if (rooms >= 0) sql.exec(`PRAGMA max_page_count=${pages() + 4}`);
        return rooms >= 0;
      },
    });
    const pages = (): number => Number(sql.prepare("PRAGMA page_count").get()?.["page_count"]);
    const known = entry();
    journal.begin(known);
    sql.exec(`PRAGMA max_page_count=${pages()}`);
    let begun = 0;
    while (journal.begin(entry()) === "started") begun += 1;
    expect([rooms < 0, begun > 10]).toEqual([true, true]);
    journal.finish(known.id, { body: 1 }, false);
    expect(journal.find(known.id)).toMatchObject({ reply: { body: 1 } });
  });

  test("remembers until the request has expired, within its limit", () => {
    const { journal } = memoryJournal({ isPersistent: false });
    const first = entry({ expiresMs: NOW + 1000 });
    expect(journal.remember(first)).toBe(true);
    journal.finish(first.id, { body: 1 }, true);
    expect(journal.find(first.id)).toMatchObject({ digest: first.digest, reply: { body: 1 } });
    expect(journal.unacknowledged(10)).toEqual([]);
    const taken = Array.from({ length: 1000 }, () => journal.remember(entry()));
    expect([taken.at(-2), taken.at(-1)]).toEqual([true, false]);
    expect(journal.remember(entry({ now: NOW + 2000, expiresMs: NOW + 9000 }))).toBe(true);
    expect(journal.find(first.id)).toBeUndefined();
  });

  test("is unavailable while the disk is full, and available again after", () => {
    const { sql, journal } = memoryJournal();
    const pages = Number(sql.prepare("PRAGMA page_count").get()?.["page_count"]);
    sql.exec(`PRAGMA max_page_count=${pages}`);
    const answers = Array.from({ length: 100 }, () => journal.begin(entry()));
    expect(answers.at(-1)).toBe("unavailable");
    expect(sql.isTransaction).toBe(false);
    sql.exec("PRAGMA max_page_count=100000");
    expect(journal.begin(entry())).toBe("started");
  });
});
