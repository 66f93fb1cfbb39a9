import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { openDatabase } from "../../../src/host/files/database.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import type { Migration } from "../../../src/host/files/schema.ts";
import { generateKeys, identityFiles, SessionCounter } from "../../../src/agent/identity/identity.ts";
import { readLastGood } from "../../../src/agent/applying/last-good.ts";
import { openState, stateMigrations } from "../../../src/agent/state.ts";
import { Journal } from "../../../src/agent/triggers/execution/journal.ts";
import { tempDir } from "../../support/temp-dir.ts";

const ADDS = `
  ALTER TABLE trigger_journal ADD COLUMN from_the_future TEXT;
  ALTER TABLE compute_containers ADD COLUMN from_the_future INTEGER NOT NULL DEFAULT 7;
  CREATE TABLE future (x TEXT) STRICT;
`;
const BREAKS: Migration = { sql: `${ADDS} DROP TABLE spool_record; DROP TABLE compute_images;`, isBreaking: true };
const ID = "0198a3c0-0000-7000-8000-000000000001";
const entry = { id: ID, event: "node-reboot", digest: "d", deadlineMs: 1, now: 1, expiresMs: 9e12, isReadOnly: false };

/** The state of this version, opened by one with a further migration. */
async function asAfterNewer(more: Migration): Promise<string> {
  const stateDir = tempDir();
  const files = hostFiles();
  const state = await openState(files, stateDir);
  const journal = new Journal(state.database.sql, { bootId: "b", isPersistent: true });
  expect(journal.begin(entry)).toBe("started");
  journal.finish(ID, { body: { output: "done" } }, false);
  state.database.sql.exec(`
    INSERT INTO compute_containers (nonce, definition, hash, limits, created_ms) VALUES ('n', 'd', 'h', '{}', 1);
    INSERT INTO spool_stream VALUES ('events', 500, 3);
  `);
  await identityFiles(files, stateDir).keys.save(generateKeys());
  await (await SessionCounter.open(identityFiles(files, stateDir).counter, () => 41, fail)).next();
  await state.close();
  openDatabase(join(stateDir, "state.db"), { migrations: [...stateMigrations, more], exclusive: true }).sql.close();
  return stateDir;
}

const fail = (error: unknown): void => expect.unreachable(String(error));

test("records the first value of a kernel setting, also for many at once", async () => {
  const stateDir = tempDir();
  const state = await openState(hostFiles(), stateDir);
  await Promise.all([
    state.noteAdjusted({ "net.a": "0" }),
    state.noteAdjusted({ "net.b": "5" }),
    state.noteAdjusted({ "net.a": "1", "net.c": "2" }),
  ]);
  await state.close();
  const noted: unknown = JSON.parse(readFileSync(join(stateDir, "reported/adjusted.json"), "utf8"));
  expect(noted).toMatchObject({ body: { "net.a": "0", "net.b": "5", "net.c": "2" } });
});

describe("the state written by a newer version", () => {
  test.each<[string, Migration, boolean]>([
    ["that only adds is used as it is", ADDS, false],
    ["that breaks is set aside, without what must not be lost", BREAKS, true],
  ])("%s", async (_what, more, isSetAside) => {
    const stateDir = await asAfterNewer(more);
    const files = hostFiles();
    const state = await openState(files, stateDir);
    const { sql, isPersistent, newerCopy } = state.database;
    expect(isPersistent).toBe(true);
    expect(newerCopy).toBe(isSetAside ? join(stateDir, "state.db.newer") : undefined);
    // At most once: a trigger that was run is not run again, and its answer is stored.
    const journal = new Journal(sql, { bootId: "b", isPersistent: true });
    expect(journal.find(ID)).toMatchObject({ event: "node-reboot", reply: { body: { output: "done" } } });
    expect(journal.begin(entry)).toBe("unavailable");
    expect(journal.begin({ ...entry, id: ID.replace(/1$/, "2") })).toBe("started");
    // Containers stay ours, and record numbers continue.
    expect(sql.prepare("SELECT nonce FROM compute_containers").all()).toEqual([{ nonce: "n" }]);
    expect(sql.prepare("SELECT reserved FROM spool_stream").all()).toEqual([{ reserved: 500 }]);
    await state.probe();
    const identity = identityFiles(files, stateDir);
    const { damage } = await readLastGood(files, stateDir, state, identity);
    expect(damage).toEqual(isSetAside ? [{ file: "state.db", isRecovered: true, isNewer: true }] : []);
    expect((await identity.keys.load()).is).toBe("good");
    expect(await (await SessionCounter.open(identity.counter, () => 1, fail)).next()).toBe(42);
    await state.close();
  });

  test("as files with unknown members is read without them", async () => {
    const stateDir = await asAfterNewer(ADDS);
    for (const name of ["keys", "counter"]) {
      rewrite(join(stateDir, "identity", `${name}.json`), 2, (body) => ({ ...body, future: { much: [1] } }));
    }
    const identity = identityFiles(hostFiles(), stateDir);
    expect((await identity.keys.load()).is).toBe("good");
    expect(await identity.counter.load()).toEqual({ is: "good", value: { n: 41 } });
  });

  test("as a file of another format is set aside as newer, and its other copy is used", async () => {
    const stateDir = await asAfterNewer(ADDS);
    const identity = identityFiles(hostFiles(), stateDir);
    await identity.keys.save(generateKeys());
    const path = join(stateDir, "identity", "keys.json");
    rewrite(path, 2, () => ({ sealed: "in a way of the future" }));
    const text = readFileSync(path, "utf8");
    expect(await identity.keys.load()).toMatchObject({ is: "recovered", damagedCopy: `${path}.newer` });
    expect(readFileSync(`${path}.newer`, "utf8")).toBe(text);
  });
});

/** Writes a state file's body as a newer version would. */
function rewrite(path: string, format: number, change: (body: Record<string, unknown>) => object): void {
  const sealed = JSON.parse(readFileSync(path, "utf8")) as { body: Record<string, unknown> };
  const body = JSON.stringify(change(sealed.body));
  const sha256 = createHash("sha256").update(body).digest("hex");
  writeFileSync(path, `{"format":${format},"sha256":"${sha256}","body":${body},"future":true}\n`);
}
