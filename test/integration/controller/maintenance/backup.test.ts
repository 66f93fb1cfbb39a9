import { createHash, randomUUID } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { gunzipSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../../../src/host/clock.ts";
import { backup } from "../../../../src/controller/maintenance/backup.ts";
import type { Place } from "../../../../src/controller/maintenance/places.ts";
import { migrate, restore } from "../../../../src/controller/maintenance/restore.ts";
import { openSqliteStore } from "../../../../src/controller/store/sqlite.ts";
import { sqliteMigrations } from "../../../../src/controller/store/schema.ts";
import { storeIn } from "../../../../src/controller/stores.ts";
import type { Controller } from "../../../../src/controller/controller.ts";
import { peekClaims } from "../../../../src/protocol/channel/jws.ts";
import type { DocumentVersions } from "../../../../src/protocol/documents/claims.ts";
import { TestNode } from "../../../support/control-plane/node-client.ts";
import { startPostgres, type TestPostgres } from "../../../support/control-plane/postgres.ts";
import { addNode, runController } from "../../../support/control-plane/running-controller.ts";
import { contentOf, keysOf, type StoreContent } from "../../../support/control-plane/store-content.ts";
import { sampleOf } from "../../../support/sample.ts";
import { tempDir } from "../../../support/temp-dir.ts";

let server: TestPostgres;
/** What `filled` copies, once it has made it. */
let template: string;
beforeAll(async () => {
  server = await startPostgres();
  template = mkdtempSync(join(tmpdir(), "hf-"));
});
afterAll(async () => {
  rmSync(template, { recursive: true, force: true });
  await server.remove();
});

const deps = { clock: systemClock(), signal: new AbortController().signal };
const file = (dataDir: string): Place => ({ dataDir, postgres: undefined });
/** A machine that is busy may take long to connect. */
const limits = { connectMs: 60_000 };
const onPostgres = async (dataDir: string): Promise<Place> => ({
  dataDir,
  postgres: { ...(await server.createDatabase()), limits },
});
const storeOption = ({ postgres }: Place) => {
  if (postgres === undefined) return {};
  const { host, port, user, database } = postgres.address;
  return { store: `postgres://${user}@${encodeURIComponent(host)}:${port}/${database}` };
};

/** Returns a directory with the store of a controller that had two nodes, and values that the engines treat differently. */
async function filled(): Promise<string> {
  if (!existsSync(join(template, "controller.db"))) await fillStore(template);
  const dataDir = join(tempDir(), "data");
  cpSync(template, dataDir, { recursive: true });
  return dataDir;
}

async function fillStore(dataDir: string): Promise<void> {
  const controller = await runController({ dataDir, tls: "self" });
  await addNode(controller, "one");
  await addNode(controller, "two");
  await controller.close();
  const sql = new DatabaseSync(join(dataDir, "controller.db"));
  const flow = sql.prepare(
    `INSERT INTO flows (node, source_node, dest_node, source_ip, dest_ip, source_key, source_port, dest_port, source_bytes, dest_bytes,
     started_at, ended_at, protocol, flags) VALUES (?, '', '', '', '', ?, 1, 2, 3, 4, 5, ?, 'tcp', 0)`,
  );
  for (let i = 0; i < 1200; i += 1) flow.run("n", new Uint8Array([0, 1, 254, i % 256]), 2 ** 52 + i);
  const event = sql.prepare(
    `INSERT INTO events (uid, node_id, node_name, fqdn, domain, org, event_type, level, message, state, subject, timestamp, received_time,
     details) VALUES (?, 'n', '', '', '', '', '', '', ?, '', '', ?, 0.1, ?)`,
  );
  event.run(randomUUID(), 'é\u{1f600}"\\\n', 1_700_000_000.123456, '{"a":"\\u0000"}');
  event.run(randomUUID(), "x".repeat(3_000_000), 0, "{}");
  sql.close();
}

/** The content without what a restore changes: versions, signatures and the floor of versions. */
function withoutVersions(content: StoreContent): StoreContent {
  const documents = content["documents"]?.map((row) => ({ ...row, version: 0, jws: null, seal: null }));
  return {
    ...content,
    documents: documents ?? [],
    meta: content["meta"]?.filter(({ key }) => key !== "document-floor") ?? [],
  };
}

describe("a backup", () => {
  test("of a running controller is private, and a restore of it has all tables and keys", async () => {
    const dataDir = await filled();
    const controller = await runController({ dataDir, tls: "self" });
    const path = join(dataDir, "..", "x.backup");
    await backup(path, file(dataDir), deps);
    await controller.close();
    const before = await contentOf(file(dataDir));
    expect(before["nodes"]).toHaveLength(2);
    expect(before["flows"]).toHaveLength(1200);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(readdirSync(dataDir)).not.toContain("snapshot.db");

    const other = join(tempDir(), "new");
    await restore(path, file(other), { isReplaced: false }, deps);
    expect(withoutVersions(await contentOf(file(other)))).toEqual(withoutVersions(before));
    expect(await keysOf(other)).toEqual(await keysOf(dataDir));
    expect(readdirSync(other).sort()).toEqual(["admin.key", "controller.db", "keys", "tls"]);

    await expect(backup(path, file(dataDir), deps)).rejects.toMatchObject({ code: "exists" });
  });

  test("of PostgreSQL beside its running controller is one of SQLite, and back", async () => {
    const dataDir = await filled();
    const place = await onPostgres(dataDir);
    await migrate(file(dataDir), place, { isReplaced: false }, deps);
    const running = await runController({ dataDir, tls: "self", ...storeOption(place) });
    const path = join(dataDir, "..", "x.backup");
    await backup(path, place, deps);
    await running.close();
    const before = await contentOf(place);
    const other = await onPostgres(join(tempDir(), "new"));
    await restore(path, other, { isReplaced: false }, deps);
    expect(withoutVersions(await contentOf(other))).toEqual(withoutVersions(before));
    expect(await keysOf(other.dataDir)).toEqual(await keysOf(dataDir));
    // Counted keys go on after the restored rows.
    const resumed = await runController({ dataDir: other.dataDir, tls: "self", ...storeOption(other) });
    await addNode(resumed, "three");
  });

  test("of an older schema is brought up to date", async () => {
    const dataDir = tempDir();
    const old = new DatabaseSync(join(dataDir, "controller.db"));
    old.exec(
      sqliteMigrations()
        .slice(0, 9)
        .map((step) => (typeof step === "string" ? step : step.sql))
        .join(""),
    );
    old.exec("PRAGMA user_version=9; INSERT INTO meta VALUES ('org', 'o'), ('domain', 'd')");
    old.close();
    mkdirSync(join(dataDir, "keys"));
    writeFileSync(join(dataDir, "keys", "root.jwk"), "{}");
    const path = join(dataDir, "x.backup");
    await backup(path, file(dataDir), deps);
    const unchanged = new DatabaseSync(join(dataDir, "controller.db"));
    expect(unchanged.prepare("PRAGMA user_version").get()).toEqual({ user_version: 9 });
    unchanged.close();
    for (const place of [file(join(dataDir, "new")), await onPostgres(join(dataDir, "other"))]) {
      await restore(path, place, { isReplaced: false }, deps);
      const content = await contentOf(place);
      expect(content["meta"]).toContainEqual({ key: "org", value: "o" });
      expect(Object.keys(content)).toContain("agent_tokens");
    }
  });
});

test("a backup of a store whose keys are elsewhere is refused, since nothing could be restored from it", async () => {
  const dataDir = join(tempDir(), "data");
  await makeSmall(dataDir);
  rmSync(join(dataDir, "keys"), { recursive: true });
  await expect(backup(join(dataDir, "..", "x.backup"), file(dataDir), deps)).rejects.toMatchObject({
    code: "store-empty",
  });
});

describe("a restore", () => {
  let path: string;
  let source: string;
  let whole: Buffer;
  beforeAll(async () => {
    const kept = mkdtempSync(join(tmpdir(), "hf-"));
    source = join(kept, "data");
    await makeSmall(source);
    path = join(kept, "x.backup");
    await backup(path, file(source), deps);
    whole = readFileSync(path);
    return () => rmSync(kept, { recursive: true, force: true });
  });

  const written = (content: Uint8Array): string => {
    const changed = join(tempDir(), "changed.backup");
    writeFileSync(changed, content);
    return changed;
  };
  const text = () => gunzipSync(whole).toString("utf8");
  const refusal = async (content: Uint8Array): Promise<unknown> => {
    const dataDir = join(tempDir(), "data");
    const refused = await restore(written(content), file(dataDir), { isReplaced: false }, deps).catch(
      (error: unknown) => error,
    );
    expect(existsSync(dataDir) ? readdirSync(dataDir) : []).toEqual([]);
    return refused;
  };

  test("refuses a truncated one, wherever it ends", async () => {
    const lengths = Array.from({ length: whole.length }, (_, at) => at);
    for (const length of sampleOf(lengths, 12, "truncated backups")) {
      // Of the first bytes nothing can be told.
      const code = length < 2 ? "not-a-backup" : "backup-damaged";
      expect(await refusal(whole.subarray(0, length)), String(length)).toMatchObject({ code });
    }
    expect(String(await refusal(whole.subarray(0, -20)))).toContain(
      " is truncated or damaged (unexpected end of file); nothing was changed",
    );
    const lines = text().split("\n");
    for (const count of sampleOf([...lines.keys()].slice(1, -1), 6, "lines of a backup")) {
      const cut = lines.slice(0, count).map((line) => `${line}\n`);
      expect(await refusal(gzipSync(cut.join("")))).toMatchObject({ code: "backup-damaged" });
    }
  });

  test("refuses one with a wrong bit, and one that goes on after its end", async () => {
    const bits = Array.from({ length: whole.length * 8 }, (_, at) => at);
    for (const bit of sampleOf(bits.slice(10 * 8), 16, "wrong bits")) {
      const changed = Buffer.from(whole);
      changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      expect(await refusal(changed)).toMatchObject({ code: "backup-damaged" });
    }
    expect(await refusal(gzipSync(text().replace(/"org","[^"]/, '"org","-')))).toMatchObject({
      code: "backup-damaged",
    });
    expect(await refusal(gzipSync(`${text()}{"file":"admin.key","text":""}\n`))).toMatchObject({
      code: "backup-damaged",
    });
  });

  test.each([
    ["another file", Buffer.from("SQLite format 3\0"), "not-a-backup"],
    ["another gzipped file", gzipSync('{"a":1}\n'), "not-a-backup"],
    ["an empty file", Buffer.from(""), "not-a-backup"],
  ])("refuses %s", async (_, content, code) => {
    expect(await refusal(content)).toMatchObject({ code });
  });

  test("refuses a newer format, a newer schema, a path out of the directory, and another table", async () => {
    const changed = (from: string | RegExp, to: string) => gzipSync(text().replace(from, to));
    expect(await refusal(changed('"version":1', '"version":2'))).toMatchObject({ code: "backup-too-new" });
    expect(await refusal(changed(/"schema":\d+/, '"schema":9999'))).toMatchObject({ code: "state-too-new" });
    expect(await refusal(changed('"file":"keys/root.jwk"', '"file":"keys/../../x"'))).toMatchObject({
      code: "backup-damaged",
    });
    expect(await refusal(changed('"table":"meta"', '"table":"sqlite_schema"'))).toMatchObject({
      code: "backup-damaged",
    });
  });

  test("refuses one without keys and one without an organization, though its checksum is right", async () => {
    const lines = text().trimEnd().split("\n").slice(0, -1);
    const remade = (change: (line: string) => string[]) => {
      const body = lines.flatMap(change).map((line) => `${line}\n`);
      const sha256 = createHash("sha256").update(body.join("")).digest("hex");
      return gzipSync(`${body.join("")}${JSON.stringify({ end: { sha256 } })}\n`);
    };
    const renamed = (line: string) => [line.replace('["org",', '["other",')];
    expect(String(await refusal(remade(renamed)))).toContain("it names no organization; nothing was changed");
    const keyless = (line: string) => (line.startsWith('{"file":"keys/') ? [] : [line]);
    expect(String(await refusal(remade(keyless)))).toContain("it has no keys");
    const unchanged = written(remade((line) => [line]));
    await restore(unchanged, file(join(tempDir(), "same")), { isReplaced: false }, deps);
  });

  test("into a store that is not empty must be asked for; the keys go with the store, and a damaged one can be replaced", async () => {
    const dataDir = await filled();
    for (const place of [file(dataDir), { ...(await onPostgres(dataDir)) }]) {
      await expect(restore(path, place, { isReplaced: false }, deps)).rejects.toMatchObject({
        code: "store-not-empty",
      });
    }
    writeFileSync(join(dataDir, "keys", "root-next.jwk"), "{}");
    // A log that SQLite would apply to the restored file.
    const database = join(dataDir, "controller.db");
    const sql = new DatabaseSync(database);
    sql.exec("PRAGMA journal_mode=WAL; UPDATE meta SET value = 'stale' WHERE key = 'org'");
    const log = readFileSync(`${database}-wal`);
    sql.close();
    writeFileSync(database, "not a database");
    writeFileSync(`${database}-wal`, log);
    await restore(path, file(dataDir), { isReplaced: true }, deps);
    expect(await keysOf(dataDir)).toEqual(await keysOf(source));
    expect(withoutVersions(await contentOf(file(dataDir)))).toEqual(withoutVersions(await contentOf(file(source))));

    const place = await onPostgres(join(tempDir(), "x"));
    await restore(path, place, { isReplaced: false }, deps);
    await expect(restore(path, place, { isReplaced: false }, deps)).rejects.toMatchObject({ code: "store-not-empty" });
    await restore(path, place, { isReplaced: true }, deps);
    expect(withoutVersions(await contentOf(place))).toEqual(withoutVersions(await contentOf(file(source))));
  });

  test("is refused while a controller runs on the store", async () => {
    const dataDir = await filled();
    const controller = await runController({ dataDir, tls: "self" });
    await expect(restore(path, file(dataDir), { isReplaced: true }, deps)).rejects.toMatchObject({
      code: "state-locked",
    });
    const place = await onPostgres(dataDir);
    await expect(migrate(file(dataDir), place, { isReplaced: true }, deps)).rejects.toMatchObject({
      code: "state-locked",
    });
    await controller.close();
    await migrate(file(dataDir), place, { isReplaced: true }, deps);
    await runController({ dataDir, tls: "self", ...storeOption(place) });
    await expect(restore(path, place, { isReplaced: true }, deps)).rejects.toMatchObject({ code: "state-locked" });
  });
});

async function makeSmall(dataDir: string): Promise<void> {
  mkdirSync(join(dataDir, "keys"), { recursive: true });
  writeFileSync(join(dataDir, "keys", "root.jwk"), "{}");
  const store = storeIn(openSqliteStore(join(dataDir, "controller.db")));
  await store.meta.set("org", randomUUID());
  await store.meta.set("domain", "holdfast.example");
  await store.close();
}

test("documents of a restored backup have versions above all that a node can have, new ones and a second restore too", async () => {
  const dataDir = join(tempDir(), "data");
  const first = await runController({ dataDir });
  const node = await addNode(first, "one");
  const path = join(dataDir, "..", "old.backup");
  await backup(path, file(dataDir), deps);
  const cluster = await first.clusters.create({ name: "c" }, "test");
  await first.nodes.update(node.uid, { cluster: cluster.fqdn }, "test");
  await first.clusters.setTag(cluster.fqdn, "k", "lost", "test");
  const seen = await versionsOf(first, node);
  expect(seen.cluster).toBe(2);
  await first.close();

  let before = seen;
  for (const laterMs of [0, 60_000]) {
    const clock = { ...deps.clock, now: () => Date.now() + laterMs };
    await restore(path, file(dataDir), { isReplaced: true }, { ...deps, clock });
    const restored = await runController({ dataDir });
    // The same changes as those that are lost, so that without the restore the versions were equal.
    const made = await restored.clusters.create({ name: "c" }, "test");
    await restored.nodes.update(node.uid, { cluster: made.fqdn }, "test");
    const after = await versionsOf(restored, node);
    for (const name of ["node", "cluster", "domain"] as const)
      expect(after[name], name).toBeGreaterThan(before[name] + 30);
    before = after;
    await restored.close();
  }
});

/** Returns the versions that the controller names to a node with none. */
async function versionsOf(controller: Controller, { uid, identity }: TestNode): Promise<DocumentVersions> {
  const node = new TestNode(controller.url, uid, identity);
  const session = await node.connect();
  const { versions } = peekClaims("holdfast-server-proof+jwt", session.serverProof);
  session.raw.socket.terminate();
  return versions;
}
