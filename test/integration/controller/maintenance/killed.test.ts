import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, expect, test } from "vitest";
import { backup } from "../../../../src/controller/maintenance/backup.ts";
import type { Place } from "../../../../src/controller/maintenance/places.ts";
import { migrate } from "../../../../src/controller/maintenance/restore.ts";
import { metaStore } from "../../../../src/controller/store/meta.ts";
import { connectPostgres, openPostgresStore } from "../../../../src/controller/store/postgres.ts";
import { parseStoreUrl } from "../../../../src/controller/store/postgres-settings.ts";
import {
  BASELINE_VERSION,
  migrateShared,
  schemaOf,
  sqliteMigrations,
} from "../../../../src/controller/store/schema.ts";
import { openSqliteStore } from "../../../../src/controller/store/sqlite.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { startPostgres, type TestPostgres } from "../../../support/control-plane/postgres.ts";
import { runController } from "../../../support/control-plane/running-controller.ts";
import { contentOf, keysOf } from "../../../support/control-plane/store-content.ts";
import { bundled } from "../../../support/bundled.ts";
import { stepsUntil } from "../../../support/kills/schema-steps.ts";
import {
  describePoint,
  pointsOf,
  recordCalls,
  runKilled,
  type Launch,
  type Point,
} from "../../../support/kills/strace.ts";
import { FLAGS } from "../../../support/machine/programs.ts";
import { isDue, sampleOf } from "../../../support/sample.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

const LIMIT_MS = 900_000;
const DRIVER = bundled(join(import.meta.dirname, "../../../support/kills/store-driver.ts"));
const deps = { clock: systemClock(), signal: new AbortController().signal };

let server: TestPostgres;
beforeAll(async () => {
  server = await startPostgres();
});
afterAll(() => server.remove());

/** An address by TCP, whose packets the tracer sees. */
async function newDatabase(): Promise<string> {
  const { address } = await server.createDatabase();
  return `postgres://${address.user}@127.0.0.1:${server.port}/${address.database}`;
}

/** Copies a database that nobody uses, which takes less time than to fill another one. */
async function copyOf(template: string): Promise<string> {
  const name = `copy_${randomUUID().replaceAll("-", "")}`;
  await server.query("postgres", `CREATE DATABASE ${name} TEMPLATE ${new URL(template).pathname.slice(1)}`);
  return template.replace(/[^/]*$/, name);
}

const placeOf = (dataDir: string, store?: string): Place => ({
  dataDir,
  postgres: store === undefined ? undefined : { address: parseStoreUrl(store), limits: { connectMs: 60_000 } },
});

function launch(stateDir: string, work: Readonly<Record<string, unknown>>): Launch {
  const file = join(tempDir(), "work.json");
  writeFileSync(file, JSON.stringify(work));
  return { args: [...FLAGS, DRIVER, file], stateDir };
}

/** Makes the state of a controller that has run, and returns its directory. */
async function made(): Promise<string> {
  const dataDir = join(tempDir(), "data");
  await (await runController({ dataDir })).close();
  return dataDir;
}

/** Which organization a store is of, and which keys are beside it, as the next controller finds them. */
async function foundIn(
  dataDir: string,
  store?: string,
): Promise<{ org: unknown; keys: Readonly<Record<string, string>> }> {
  await (await runController({ dataDir, ...(store === undefined ? {} : { store }) })).close();
  const { meta = [] } = await contentOf(placeOf(dataDir, store));
  return { org: meta.find(({ key }) => key === "org")?.["value"], keys: await keysOf(dataDir) };
}

/** Returns some points before the staged files are committed, which are most, and some from there on. */
function around(points: readonly Point[], label: string): readonly Point[] {
  const at = points.findIndex(({ target }) => target.startsWith("STATE/restored"));
  expect(at).toBeGreaterThan(0);
  return [...sampleOf(points.slice(0, at - 1), 1, label), ...sampleOf(points.slice(at - 1), 2, `${label}, committed`)];
}

test(
  "a restore into a file that is killed anywhere leaves the old state or the new one",
  { timeout: LIMIT_MS },
  async () => {
    const [old, other] = [await made(), await made()];
    const file = join(tempDir(), "x.backup");
    await backup(file, placeOf(other), deps);
    const states = [await foundIn(old), await foundIn(other)];
    const prepare = (): Launch => {
      const stateDir = join(tempDir(), "data");
      cpSync(old, stateDir, { recursive: true });
      return launch(stateDir, { do: "restore", file, to: { dataDir: stateDir } });
    };
    const whole = prepare();
    const points = pointsOf(await recordCalls(whole), whole);
    expect(await foundIn(whole.stateDir)).toEqual(states[1]);
    expect(points.length).toBeGreaterThan(30);
    const found = new Set<number>();
    for (const point of around(points, "killed restores")) {
      const killed = await runKilled(prepare, point);
      const state = await foundIn(killed.stateDir);
      expect(states, describePoint(point)).toContainEqual(state);
      found.add(states.findIndex(({ org }) => org === state.org));
    }
    expect(found).toEqual(new Set([0, 1]));
  },
);

test.runIf(isDue("killed restore into PostgreSQL"))(
  "a restore into PostgreSQL that is killed anywhere leaves the old state or the new one",
  { timeout: LIMIT_MS },
  async () => {
    const [old, other] = [await made(), await made()];
    const template = await newDatabase();
    await migrate(placeOf(old), placeOf(old, template), { isReplaced: false }, deps);
    const file = join(tempDir(), "x.backup");
    await backup(file, placeOf(other), deps);
    const states = [await foundIn(old, template), await foundIn(other)];
    const prepare = async (): Promise<Launch & { readonly store: string }> => {
      const stateDir = join(tempDir(), "data");
      cpSync(old, stateDir, { recursive: true });
      const store = await copyOf(template);
      return {
        ...launch(stateDir, { do: "restore", file, to: { dataDir: stateDir, store } }),
        port: server.port,
        store,
      };
    };
    const whole = await prepare();
    const points = pointsOf(await recordCalls(whole), whole);
    expect(await foundIn(whole.stateDir, whole.store)).toEqual(states[1]);
    const found = new Set<number>();
    for (const point of around(points, "killed restores on PostgreSQL")) {
      const killed = await runKilled(prepare, point);
      const state = await foundIn(killed.stateDir, killed.store);
      expect(states, describePoint(point)).toContainEqual(state);
      found.add(states.findIndex(({ org }) => org === state.org));
    }
    expect(found).toEqual(new Set([0, 1]));
  },
);

test(
  "a file of an older version whose migration is killed anywhere is brought up to date by the next start",
  { timeout: LIMIT_MS },
  async () => {
    const template = join(tempDir(), "old.db");
    const old = new DatabaseSync(template);
    const scripts = sqliteMigrations().slice(0, 2);
    old.exec(scripts.map((step) => (typeof step === "string" ? step : step.sql)).join(""));
    old.exec("PRAGMA user_version=2; INSERT INTO meta VALUES ('org', 'o'), ('domain', 'd')");
    old.close();
    const prepare = (): Launch => {
      const stateDir = join(tempDir(), "data");
      mkdirSync(stateDir);
      cpSync(template, join(stateDir, "controller.db"));
      return launch(stateDir, { do: "open", path: join(stateDir, "controller.db") });
    };
    const whole = prepare();
    const points = pointsOf(await recordCalls(whole), whole);
    const complete = await contentOf(placeOf(whole.stateDir));
    for (const point of sampleOf(points, 3, "killed migrations")) {
      const killed = await runKilled(prepare, point);
      const store = openSqliteStore(join(killed.stateDir, "controller.db"), true);
      expect(await schemaOf(store)).toBe(sqliteMigrations().length);
      await store.close();
      expect(await contentOf(placeOf(killed.stateDir)), describePoint(point)).toEqual(complete);
    }
  },
);

test.runIf(isDue("killed migrations of PostgreSQL"))(
  "a PostgreSQL store of an older version whose migration is killed at any statement is brought up to date by the next start",
  { timeout: LIMIT_MS },
  async () => {
    const template = await newDatabase();
    const lock = { check: () => undefined };
    const database = connectPostgres({ address: parseStoreUrl(template), limits: { connectMs: 60_000 } }, lock);
    await migrateShared(database, []);
    await metaStore(database.db).set("org", "o");
    await database.close();
    const driver = bundled(join(import.meta.dirname, "../../../support/kills/migration-driver.ts"));
    const run = async (store: string, killAt: number) => {
      const child = spawn(process.execPath, [...FLAGS, driver, store, String(killAt)], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      const output = text(child.stdout);
      await once(child, "exit");
      return { signal: child.signalCode, statements: Number(await output) };
    };
    const { statements } = await run(await copyOf(template), 0);
    expect(statements).toBe(9);
    const all = Array.from({ length: statements }, (_, at) => at + 1);
    for (const at of sampleOf(all, 3, "killed migrations of PostgreSQL")) {
      const store = await copyOf(template);
      expect((await run(store, at)).signal).toBe("SIGKILL");
      const sessions = `SELECT pid FROM pg_stat_activity WHERE datname = '${new URL(store).pathname.slice(1)}'`;
      await waitFor("its session has ended", async () => (await server.query("postgres", sessions)).length === 0);
      const opened = await openPostgresStore({
        settings: { address: parseStoreUrl(store), limits: { connectMs: 60_000 } },
        holder: { name: "next", address: "", startedAt: "" },
        clock: systemClock(),
        onTakenOver: () => undefined,
        steps: stepsUntil(3),
      });
      expect(await schemaOf(opened)).toBe(BASELINE_VERSION + 3);
      expect(await metaStore(opened.db).get("org")).toBe("o");
      await opened.close();
    }
  },
);
