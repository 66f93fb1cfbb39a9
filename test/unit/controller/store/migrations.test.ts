import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { openDatabase } from "../../../../src/host/files/database.ts";
import { migrations } from "../../../../src/controller/store/migrations.ts";
import { openSqliteStore } from "../../../../src/controller/store/sqlite.ts";
import { storeIn } from "../../../../src/controller/stores.ts";
import { temporaryDirectory } from "../../../support/control-plane/running-controller.ts";

test("a database from before keeps the usage it has, and gives its gateway details a form", async () => {
  const path = join(await temporaryDirectory(), "controller.db");
  const { sql } = openDatabase(path, { migrations: migrations.slice(0, 5), exclusive: true, onDamage: "refuse" });
  sql.exec("INSERT INTO flow_usage VALUES ('n1', 60, 1000, 2), ('n2', 60, 5, 1)");
  sql.close();
  const store = storeIn(openSqliteStore(path, true));
  onTestFinished(() => store.close());
  const range = { from: 0, to: 120, bucketSeconds: 60 };
  expect((await store.flows.usage(range, undefined))[1]).toEqual({ t: 60, bytes: 1005, count: 3 });
  expect((await store.flows.usage(range, ["n1"]))[1]).toEqual({ t: 60, bytes: 1000, count: 2 });
  expect(await store.gatewayDetails.find("n1", 0, 120)).toEqual([]);
});
