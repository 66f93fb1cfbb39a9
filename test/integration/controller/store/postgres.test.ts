import { connect as connectSocket, createServer, type Socket } from "node:net";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { writeFileSync } from "node:fs";
import { sql } from "kysely";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { HostError } from "../../../../src/errors.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import type { Executor, StoreDatabase } from "../../../../src/controller/store/database.ts";
import { connectPostgres, openPostgresStore } from "../../../../src/controller/store/postgres.ts";
import { parseStoreUrl, type PostgresSettings } from "../../../../src/controller/store/postgres-settings.ts";
import { BASELINE_VERSION, sqliteMigrations, type SchemaStep } from "../../../../src/controller/store/schema.ts";
import { migrateSchema } from "../../../../src/host/files/schema.ts";
import { testCertificate } from "../../../support/certificates.ts";
import { engineAnswers, EXPECTED } from "../../../support/control-plane/engine-answers.ts";
import { startPostgres, type TestPostgres } from "../../../support/control-plane/postgres.ts";
import { postgresShape, sqliteShape } from "../../../support/control-plane/shapes.ts";
import { TESTS_ALL } from "../../../support/sample.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { deferred } from "../../../support/deferred.ts";
import { waitFor } from "../../../support/wait-for.ts";

type Tables = {
  readonly meta: { readonly key: string; readonly value: string };
};

/** Soon enough for a test, and long for a machine that is busy. */
const LIMITS = { connectMs: 20_000, statementMs: 20_000, lockCheckMs: 50 };

let server: TestPostgres;
let authority: string;

beforeAll(async () => {
  const ca = await testCertificate({ hosts: [], isAuthority: true });
  authority = ca.cert;
  const tls = await testCertificate({ hosts: ["127.0.0.1"], issuer: ca });
  server = await startPostgres({ tls, access: ["host all secret 127.0.0.1/32 scram-sha-256"] });
});

afterAll(() => server.remove());

async function database(limits = {}): Promise<PostgresSettings> {
  return { ...(await server.createDatabase()), limits: { ...LIMITS, ...limits } };
}

async function open(
  settings: PostgresSettings,
  {
    name = "first",
    steps,
    onTakenOver = () => undefined,
  }: { name?: string; steps?: readonly SchemaStep[]; onTakenOver?: (error: HostError) => void } = {},
): Promise<StoreDatabase> {
  const holder = { name, address: "controller.example:8443", startedAt: "2026-01-02T03:04:05Z" };
  const store = await openPostgresStore({
    settings,
    holder,
    clock: systemClock(),
    onTakenOver,
    ...(steps === undefined ? {} : { steps }),
  });
  onTestFinished(() => store.close());
  return store;
}

/** Another program on the same database, which the lock would refuse. */
function beside(settings: PostgresSettings): StoreDatabase {
  const store = connectPostgres(settings, { check: () => undefined });
  onTestFinished(() => store.close());
  return store;
}

const meta = (db: Executor) => db.$extendTables<Tables>();
const get = async (db: Executor, key: string): Promise<string | undefined> =>
  (await meta(db).selectFrom("meta").select("value").where("key", "=", key).executeTakeFirst())?.value;
const put = (db: Executor, key: string, value: string): Promise<unknown> =>
  meta(db)
    .insertInto("meta")
    .values({ key, value })
    .onConflict((conflict) => conflict.column("key").doUpdateSet({ value }))
    .execute();
const holding = (text: string): unknown => expect.stringContaining(text);
const unavailable = (reason: string): unknown =>
  expect.objectContaining({ code: "store-unavailable", message: holding(reason) });

describe("the schema", () => {
  test("is that of SQLite", async () => {
    const settings = await database();
    await open(settings);
    const sqlite = new DatabaseSync(":memory:");
    migrateSchema(sqlite, sqliteMigrations());
    const shape = await postgresShape((text) => server.query(settings.address.database, text));
    const expected = sqliteShape(sqlite).map(({ name, columns, indexes, references }) => ({
      name,
      columns,
      indexes,
      references,
    }));
    expect(shape).toEqual(expected);
    sqlite.close();
  });

  test("goes on where a program ended, step by step, and is refused by an older program if it breaks", async () => {
    const settings = await database();
    const table = (name: string, isBreaking?: true): SchemaStep => ({
      statements: (db, { types }) => [db.schema.createTable(name).addColumn("id", types.serial)],
      ...(isBreaking ? { isBreaking } : {}),
    });
    const broken: SchemaStep = {
      statements: (db) => [
        ...table("second").statements(db, beside(settings).engine),
        ...table("first").statements(db, beside(settings).engine),
      ],
    };
    await expect(open(settings, { steps: [table("first"), broken] })).rejects.toThrow("first");
    const tables = async (): Promise<unknown> =>
      (
        await server.query(
          settings.address.database,
          "SELECT relname FROM pg_class WHERE relname IN ('first', 'second')",
        )
      ).map(({ relname }) => relname);
    const version = () =>
      server.query(settings.address.database, "SELECT version, compatible_from FROM holdfast_schema");
    expect(await tables()).toEqual(["first"]);
    expect(await version()).toMatchObject([{ version: String(BASELINE_VERSION + 1) }]);
    const store = await open(settings, { steps: [table("first"), table("second")] });
    await store.close();
    expect(await tables()).toEqual(["first", "second"]);
    // An older program can use what only gained a table.
    await (await open(settings, { steps: [] })).close();
    await (await open(settings, { steps: [table("first"), table("second"), table("third", true)] })).close();
    await expect(open(settings, { steps: [] })).rejects.toMatchObject({ code: "state-too-new" });
  });
});

test("numbers, texts, bytes and nothing come back as they were written", async () => {
  const store = await open(await database());
  const { integer, real, text, bytes } = store.engine.types;
  await sql`create table kinds (i ${integer}, r ${real}, t ${text}, b ${bytes})`.execute(store.db);
  const rows = [
    { i: Number.MAX_SAFE_INTEGER, r: 0.1, t: `{"b":1, "a":"\\u0000ä🚢"}`, b: new Uint8Array([0, 255, 7]) },
    { i: -1, r: -1e300, t: "", b: new Uint8Array() },
    { i: null, r: null, t: null, b: null },
  ];
  type Kinds = { readonly kinds: { i: number | null; r: number | null; t: string | null; b: Uint8Array | null } };
  const db = store.db.$extendTables<Kinds>();
  const { numInsertedOrUpdatedRows: count } = await db.insertInto("kinds").values(rows).executeTakeFirstOrThrow();
  expect(count).toBe(3n);
  expect(
    await db
      .selectFrom("kinds")
      .selectAll()
      .orderBy("r", (by) => by.desc().nullsLast())
      .execute(),
  ).toEqual(rows);
  const sums = sql`select count(*) as n, sum(i) as s, max(i) > 1 as is from kinds where i < 10`;
  expect((await sums.execute(store.db)).rows).toEqual([{ n: 1, s: -1, is: 0 }]);
  await expect(db.insertInto("kinds").values({ i: 1, r: 1, t: "\0", b: null }).execute()).rejects.toMatchObject({
    code: "invalid-body",
  });
  await expect(sql`select 9007199254740993 as n`.execute(store.db)).rejects.toThrow("9007199254740993");
});

test("order, members of JSON, parts of texts and lists are found alike on both engines", async () => {
  expect(await engineAnswers(await open(await database()))).toEqual(EXPECTED);
});

describe("transactions", () => {
  test("of two programs never both win", async () => {
    const settings = await database();
    const [a, b] = [await open(settings), beside(settings)];
    await put(a.db, "count", "0");
    // Each reads, and writes what follows from it, also where the two write different rows.
    const claim = (store: StoreDatabase, by: string) =>
      store.transactions.run(async (tx) => {
        if ((await get(tx, "a")) !== undefined || (await get(tx, "b")) !== undefined) return false;
        await put(tx, by, "claimed");
        return true;
      });
    const add = (store: StoreDatabase) =>
      store.transactions.run(async (tx) => put(tx, "count", String(Number(await get(tx, "count")) + 1)));
    const claims = await Promise.all([claim(a, "a"), claim(b, "b")]);
    expect(claims.filter(Boolean)).toHaveLength(1);
    for (let round = 0; round < 10; round += 1) await Promise.all([add(a), add(b), add(a), add(b)]);
    expect([await get(a.db, "count"), a.transactions.failures(), b.transactions.failures()]).toEqual(["40", 0, 0]);
  });

  test("of many who write the same row at once are all done", async () => {
    const store = await open(await database());
    await put(store.db, "count", "0");
    const add = () =>
      store.transactions.run(async (tx) => {
        const count = Number(await get(tx, "count"));
        await sql`select pg_sleep(0.02)`.execute(tx);
        await put(tx, "count", String(count + 1));
      });
    await Promise.all(Array.from({ length: 100 }, add));
    expect([await get(store.db, "count"), store.transactions.failures()]).toEqual(["100", 0]);
  });

  test("that deadlock are both done", async () => {
    const settings = await database();
    const [a, b] = [await open(settings), beside(settings)];
    for (const key of ["x", "y"]) await put(a.db, key, "");
    let attempts = 0;
    const met = deferred<void>();
    const write = (store: StoreDatabase, first: string, second: string) =>
      store.transactions.run(async (tx) => {
        attempts += 1;
        await put(tx, first, first);
        if (attempts >= 2) met.resolve();
        await met.promise;
        await put(tx, second, first);
      });
    await Promise.all([write(a, "x", "y"), write(b, "y", "x")]);
    expect(attempts).toBeGreaterThan(2);
    expect(await get(a.db, "x")).toBe(await get(a.db, "y"));
  });

  test("are refused after many conflicts, and counted", async () => {
    const settings = await database();
    const [a, b] = [await open(settings), beside(settings)];
    let attempts = 0;
    const work = a.transactions.run(async (tx) => {
      attempts += 1;
      await get(tx, "x");
      await put(b.db, "x", String(attempts));
      await put(tx, "x", "mine");
    });
    await expect(work).rejects.toEqual(unavailable("conflicted"));
    expect([attempts, a.transactions.failures()]).toEqual([12, 1]);
  });

  test("refuse statements that go past them, and work that went on after a failure", async () => {
    const store = await open(await database());
    await store.transactions.run(() =>
      expect(get(store.db, "x")).rejects.toMatchObject({ code: "nested-transaction" }),
    );
    const careless = store.transactions.run(async (tx) => {
      await put(tx, "x", "1");
      await sql`select 1/0`.execute(tx).catch(() => undefined);
    });
    await expect(careless).rejects.toMatchObject({ code: "rolled-back" });
    expect(await get(store.db, "x")).toBeUndefined();
  });
});

describe("a server", () => {
  test("that is killed is named as the reason, loses nothing, and is used again once it is back", async () => {
    const settings = await database();
    const store = await open(settings);
    const acknowledged: string[] = [];
    const over = new AbortController();
    const writing = (async () => {
      for (let n = 0; !over.signal.aborted; n += 1) {
        const done = store.transactions.run((tx) => put(tx, `k${n}`, "v"));
        await done.then(
          () => acknowledged.push(`k${n}`),
          (error: unknown) => expect(error).toEqual(unavailable("")),
        );
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
    })();
    await waitFor("some writes", () => acknowledged.length > 20);
    await server.kill();
    await expect(put(store.db, "down", "v")).rejects.toEqual(unavailable(settings.address.database));
    const before = acknowledged.length;
    await server.start();
    await waitFor("writes after the restart", () => acknowledged.length > before + 20);
    over.abort();
    await writing;
    const kept = new Set((await meta(store.db).selectFrom("meta").select("key").execute()).map(({ key }) => key));
    expect(acknowledged.filter((key) => !kept.has(key))).toEqual([]);
  });

  test("that is not there is named when the controller starts", async () => {
    const settings = await database();
    const away = { ...settings, address: { ...settings.address, host: "/nowhere" } };
    await expect(open(away)).rejects.toEqual(unavailable("/nowhere"));
  });

  test("that is slow is used, and beyond the limit refused until it is faster", async () => {
    const settings = await database({ statementMs: 500, connectMs: 60_000 });
    const store = await open(settings);
    const slow = (seconds: number) => sql`select pg_sleep(${seconds})`.execute(store.db);
    await expect(slow(60)).rejects.toEqual(unavailable("statement timeout"));
    await put(store.db, "x", "1");
    expect(await get(store.db, "x")).toBe("1");
  });

  test("that answers later than its lock is checked is used", async () => {
    const delayMs = TESTS_ALL ? 2000 : 500;
    const settings = await database({ connectMs: 120_000, lockCheckMs: delayMs / 2, statementMs: 60_000 });
    // A database that has its tables: each of them takes a statement.
    await (await open(settings)).close();
    const relay = await delayingRelay(server.port, delayMs);
    const store = await open({ ...settings, address: { ...settings.address, host: "127.0.0.1", port: relay.port } });
    await store.transactions.run((tx) => put(tx, "x", "1"));
    expect(await get(store.db, "x")).toBe("1");
  });
});

describe("the server's certificate", () => {
  const address = (host: string) =>
    parseStoreUrl(`postgres://holdfast@${host}:${server.port}/postgres?sslmode=verify-full`);
  const caFile = (content: string): string => {
    const path = join(tempDir(), "ca.pem");
    writeFileSync(path, content);
    return path;
  };

  test("of the authority given is taken", async () => {
    const store = await open({ address: address("127.0.0.1"), caFile: caFile(authority), limits: LIMITS });
    const { rows } = await sql`select ssl::text from pg_stat_ssl where pid = pg_backend_pid()`.execute(store.db);
    expect(rows).toEqual([{ ssl: "true" }]);
  });

  test("of another authority, or for another name, is refused", async () => {
    const { cert } = await testCertificate({ hosts: [], isAuthority: true });
    const other = { address: address("127.0.0.1"), caFile: caFile(cert), limits: LIMITS };
    await expect(open(other)).rejects.toEqual(unavailable("--store-ca-file"));
    await expect(open({ address: address("127.0.0.1"), limits: LIMITS })).rejects.toEqual(
      unavailable("no trusted authority has issued the certificate of the server"),
    );
    const named = { address: address("localhost"), caFile: caFile(authority), limits: LIMITS };
    await expect(open(named)).rejects.toEqual(unavailable("does not match certificate"));
  });
});

test("a password comes from its file, and is read again", async () => {
  await server.query("postgres", "CREATE ROLE secret LOGIN PASSWORD 'right' SUPERUSER");
  const settings = await database();
  const passwordFile = join(tempDir(), "password");
  const address = { ...settings.address, host: "127.0.0.1", user: "secret" };
  await expect(open({ ...settings, address })).rejects.toEqual(
    expect.objectContaining({ code: "store-unavailable", message: holding("--store-password-file") }),
  );
  writeFileSync(passwordFile, "wrong\n");
  await expect(open({ ...settings, address, passwordFile })).rejects.toEqual(unavailable("password"));
  writeFileSync(passwordFile, "right\n");
  const store = await open({ ...settings, address, passwordFile });
  expect(await get(store.db, "x")).toBeUndefined();
});

describe("a second controller", () => {
  test("is refused by the name of the first until that one ends", async () => {
    const settings = await database();
    const first = await open(settings);
    await expect(open(settings, { name: "second" })).rejects.toMatchObject({
      code: "state-locked",
      message: holding("first at controller.example:8443, started at 2026-01-02T03:04:05Z"),
      details: { name: "first" },
    });
    await first.close();
    const second = await open(settings, { name: "second" });
    await expect(open(settings)).rejects.toMatchObject({ details: { name: "second" } });
    await second.close();
  });

  test("of two at once is refused, on an empty database too", async () => {
    const settings = await database();
    const opened = await Promise.allSettled([open(settings, { name: "a" }), open(settings, { name: "b" })]);
    expect(opened.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
  });
});

describe("a lost lock", () => {
  /** Ends the connection of the lock, as an administrator. */
  const cut = async (settings: PostgresSettings): Promise<void> => {
    const ended = "SELECT pg_terminate_backend(pid::int) FROM controller_lock";
    await server.query(settings.address.database, ended);
  };

  test("ends what is written until it is taken again", async () => {
    const settings = await database({ lockCheckMs: 2000 });
    const store = await open(settings);
    const gate = deferred<void>();
    const begun = deferred<void>();
    const open1 = store.transactions.run(async (tx) => {
      await put(tx, "open", "1");
      begun.resolve();
      await gate.promise;
    });
    const refused = expect(open1).rejects.toEqual(unavailable("lock"));
    await begun.promise;
    await waitFor("the loss to be noticed", async () => {
      // On a busy machine it may have been taken again since the last attempt.
      await cut(settings);
      return put(store.db, "x", "1").then(
        () => false,
        (error: unknown) => error instanceof HostError && error.message.includes("the lock of this controller is lost"),
      );
    });
    gate.resolve();
    await refused;
    await waitFor("the lock to be taken again", () => put(store.db, "y", "1").then(() => true));
    expect([await get(store.db, "open"), await get(store.db, "y")]).toEqual([undefined, "1"]);
  });

  test.each(["and holds", "and has released"])(
    "that another controller has taken %s is not taken again",
    async (how) => {
      const settings = await database({ lockCheckMs: 3000 });
      const lost: HostError[] = [];
      const first = await open(settings, { onTakenOver: (error) => lost.push(error) });
      const second = await waitFor("a second controller", async () => {
        await cut(settings);
        return open({ ...settings, limits: LIMITS }, { name: "second" });
      });
      await put(second.db, "x", "2");
      if (how === "and has released") await second.close();
      await waitFor("the first to know", () => lost.length > 0);
      await expect(put(first.db, "x", "1")).rejects.toEqual(unavailable("must be restarted"));
      expect(await get(beside(settings).db, "x")).toBe("2");
    },
  );
});

test("a controller that ends while it takes its lost lock again leaves it free", async () => {
  const settings = await database({ lockCheckMs: 50 });
  const here = "database = (SELECT oid FROM pg_database WHERE datname = current_database())";
  const locks = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND ${here}`;
  const held = () => server.query(settings.address.database, locks);
  // A database that has its tables: each of them takes a statement.
  await (await open(settings)).close();
  const relay = await delayingRelay(server.port, 150);
  const store = await open({ ...settings, address: { ...settings.address, host: "127.0.0.1", port: relay.port } });
  const [first] = await held();
  await server.disconnect();
  // The server gives it some answers before the controller has it.
  await waitFor("the server to give the lock again", async () => {
    const [again] = await held();
    return again !== undefined && again["pid"] !== first?.["pid"];
  });
  await store.close();
  await waitFor("the lock to be free", async () => (await held()).length === 0);
});

/** Passes connections on to a port of this machine, what the other end answers a time later. */
async function delayingRelay(port: number, delayMs: number): Promise<{ readonly port: number }> {
  const sockets = new Set<Socket>();
  const relay = createServer((near) => {
    const far = connectSocket(port, "127.0.0.1");
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on("error", () => undefined).on("close", () => [near, far].forEach((one) => one.destroy()));
    }
    near.pipe(far);
    far.on("data", (bytes) => setTimeout(() => near.write(bytes), delayMs));
  });
  await new Promise<void>((resolve) => relay.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    relay.close();
    for (const socket of sockets) socket.destroy();
  });
  const at = relay.address();
  if (at === null || typeof at === "string") throw new Error("the relay has no port");
  return { port: at.port };
}
