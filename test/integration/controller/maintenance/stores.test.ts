import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { renameSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Controller } from "../../../../src/controller/controller.ts";
import { migrate } from "../../../../src/controller/maintenance/restore.ts";
import { parseStoreUrl } from "../../../../src/controller/store/postgres-settings.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { peekClaims } from "../../../../src/protocol/channel/jws.ts";
import { startPostgres, type TestPostgres } from "../../../support/control-plane/postgres.ts";
import { TestNode } from "../../../support/control-plane/node-client.ts";
import { addNode, runController } from "../../../support/control-plane/running-controller.ts";
import { contentOf } from "../../../support/control-plane/store-content.ts";
import { tempDir } from "../../../support/temp-dir.ts";

let server: TestPostgres;
beforeAll(async () => {
  server = await startPostgres();
});
afterAll(() => server.remove());

const deps = { clock: systemClock(), signal: new AbortController().signal };

async function newStore(): Promise<string> {
  const { address } = await server.createDatabase();
  return `postgres://${address.user}@127.0.0.1:${server.port}/${address.database}`;
}

const placeOf = (dataDir: string, store?: string) => ({
  dataDir,
  postgres: store === undefined ? undefined : { address: parseStoreUrl(store), limits: { connectMs: 60_000 } },
});

async function withNode(): Promise<string> {
  const dataDir = join(tempDir(), "data");
  const controller = await runController({ dataDir });
  await addNode(controller, "one");
  await controller.close();
  return dataDir;
}

test("an empty PostgreSQL store beside a file with nodes is refused with the way to migrate", async () => {
  const dataDir = await withNode();
  const store = await newStore();
  const refused = await runController({ dataDir, store }).catch((error: unknown) => error);
  expect(refused).toMatchObject({ code: "store-not-migrated" });
  expect(String(refused)).toMatch(/1 nodes.*holdfast controller migrate --from sqlite --to postgres/s);
  // The refusal leaves it empty.
  await migrate(placeOf(dataDir), placeOf(dataDir, store), { isReplaced: false }, deps);
  const migrated = await runController({ dataDir, store });
  expect(await migrated.nodes.all()).toHaveLength(1);
  await migrated.close();

  const moved = await withNode();
  renameSync(join(moved, "controller.db"), join(moved, "controller.db.old"));
  expect(await (await runController({ dataDir: moved, store: await newStore() })).nodes.all()).toEqual([]);
});

test("a file without nodes does not keep a controller from an empty PostgreSQL store", async () => {
  const dataDir = join(tempDir(), "data");
  await (await runController({ dataDir })).close();
  expect(await (await runController({ dataDir, store: await newStore() })).nodes.all()).toEqual([]);
});

test("no controller starts on a store that was migrated, on either engine", async () => {
  const dataDir = await withNode();
  const store = await newStore();
  await migrate(placeOf(dataDir), placeOf(dataDir, store), { isReplaced: false }, deps);
  await expect(runController({ dataDir })).rejects.toMatchObject({ code: "store-moved" });
  const again = migrate(placeOf(dataDir), placeOf(dataDir, await newStore()), { isReplaced: false }, deps);
  await expect(again).rejects.toMatchObject({ code: "store-moved" });

  const back = migrate(placeOf(dataDir, store), placeOf(dataDir), { isReplaced: false }, deps);
  await expect(back).rejects.toMatchObject({ code: "store-not-empty" });
  await migrate(placeOf(dataDir, store), placeOf(dataDir), { isReplaced: true }, deps);
  await expect(runController({ dataDir, store })).rejects.toMatchObject({ code: "store-moved" });
  expect(await (await runController({ dataDir })).nodes.all()).toHaveLength(1);
});

test("a store of a newer version is refused on either engine", async () => {
  const dataDir = await withNode();
  const store = await newStore();
  await migrate(placeOf(dataDir), placeOf(dataDir, store), { isReplaced: false }, deps);
  await server.query(
    new URL(store).pathname.slice(1),
    "UPDATE holdfast_schema SET version = 9999, compatible_from = 9999",
  );
  await expect(runController({ dataDir, store })).rejects.toMatchObject({ code: "state-too-new" });

  const other = await withNode();
  const sql = new DatabaseSync(join(other, "controller.db"));
  sql.exec("UPDATE holdfast_schema SET compatible_from = 9999; PRAGMA user_version=9999");
  sql.close();
  await expect(runController({ dataDir: other })).rejects.toMatchObject({ code: "state-too-new" });
  const away = migrate(placeOf(other), placeOf(other, await newStore()), { isReplaced: false }, deps);
  await expect(away).rejects.toMatchObject({ code: "state-too-new" });
});

test("a migration between files takes the keys along, and nodes find the same control plane", async () => {
  const dataDir = join(tempDir(), "data");
  const first = await runController({ dataDir });
  const node = await addNode(first, "one");
  const versions = await versionsFor(first, node);
  await first.close();
  const before = await contentOf(placeOf(dataDir));
  const target = join(tempDir(), "other");
  await migrate(placeOf(dataDir), placeOf(target), { isReplaced: false }, deps);
  expect(await contentOf(placeOf(target))).toEqual(before);
  const listen = first.url.replace("http://", "");
  expect(await versionsFor(await runController({ dataDir: target, listen }), node)).toEqual(versions);
});

/** Returns the versions that a node is told by a control plane whose proof its keys verify. */
async function versionsFor(controller: Controller, { uid, identity }: TestNode) {
  const session = await new TestNode(controller.url, uid, identity).connect();
  session.raw.socket.terminate();
  return peekClaims("holdfast-server-proof+jwt", session.serverProof).versions;
}
