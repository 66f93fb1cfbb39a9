import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  computeColumnsMigration,
  computeMigration,
  Ledger,
  type ContainerRow,
} from "../../../../../src/agent/containers/model/ledger.ts";
import { sortContainers } from "../../../../../src/agent/containers/model/own-containers.ts";
import { openDatabase } from "../../../../../src/host/files/database.ts";
import type { ContainerSummary } from "../../../../../src/host/engine/engine.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const row = (change: Partial<ContainerRow> = {}): ContainerRow => ({
  nonce: "n1",
  definition: "d1",
  engineId: "e1",
  hash: "h",
  limits: "l",
  createdAt: 1000,
  replaces: undefined,
  privileges: undefined,
  ...change,
});

const container = (id: string, nonce: string | undefined, definition = "d1"): ContainerSummary => ({
  id,
  name: id,
  image: "box:1",
  imageId: "sha256:1",
  labels: { "io.holdfast.container": definition, ...(nonce === undefined ? {} : { "io.holdfast.nonce": nonce }) },
  state: "running",
  health: undefined,
  createdAt: 1,
  exitCode: undefined,
  addresses: {},
});

test("the next agent has the noted entries; noting the same again writes nothing", () => {
  const path = join(tempDir(), "state.db");
  const first = openDatabase(path, { migrations: [computeMigration, computeColumnsMigration], exclusive: true });
  const ledger = new Ledger(first.sql);
  const definition = {
    id: "d1",
    name: "one",
    firstSeen: 1,
    firstVersion: "1/0",
    address: "172.18.0.16",
    byHand: "h",
    schedule: "rate(1 hour)",
    nextRun: 5,
    lastRun: undefined,
    refused: '{"hash":"h"}',
  };
  ledger.putDefinition(definition);
  ledger.putContainer(row({ engineId: undefined }));
  ledger.putContainer(row({ replaces: "n0", privileges: "{}" }));
  ledger.putVolume({ name: "v", detail: "{}", createdAt: 1, quarantinedAt: undefined });
  ledger.putImage({ id: "sha256:1", reference: "box:1", usedAt: 9 });
  const writes = (): unknown => first.sql.prepare("SELECT total_changes() AS count").get()?.["count"];
  const before = writes();
  ledger.putDefinition({ ...definition });
  ledger.changeDefinition("d1", { byHand: "h" });
  ledger.changeDefinition("unknown", { byHand: "h" });
  ledger.putContainer(row({ replaces: "n0", privileges: "{}" }));
  ledger.dropContainer("unknown");
  expect(writes()).toBe(before);
  first.sql.close();

  const second = openDatabase(path, { migrations: [computeMigration, computeColumnsMigration], exclusive: true });
  const next = new Ledger(second.sql);
  expect(next.definitions.get("d1")).toEqual(definition);
  expect([...next.containers.values()]).toEqual([row({ replaces: "n0", privileges: "{}" })]);
  expect(next.images.get("sha256:1")?.usedAt).toBe(9);
  next.dropDefinition("d1");
  expect([next.containers.size, next.definitions.size, next.isEmpty]).toEqual([0, 0, false]);
  next.dropVolume("v");
  expect(next.isEmpty).toBe(true);
  expect(new Ledger(second.sql).isEmpty).toBe(true);
  second.sql.close();
});

test("an empty ledger prepares nothing until needed", () => {
  // The tables do not exist.
  expect(() => new Ledger(new DatabaseSync(":memory:"))).not.toThrow();
});

test("finds a container by its id at the engine, and none without an id", () => {
  const path = join(tempDir(), "state.db");
  const { sql } = openDatabase(path, { migrations: [computeMigration, computeColumnsMigration], exclusive: true });
  const ledger = new Ledger(sql);
  ledger.putContainer(row({ nonce: "n1", engineId: undefined }));
  ledger.putContainer(row({ nonce: "n2", engineId: "e2" }));
  expect(ledger.containerOf("e2")?.nonce).toBe("n2");
  expect(ledger.containerOf("e3")).toBeUndefined();
  expect(ledger.containerOf(undefined)).toBeUndefined();
  sql.close();
});

test("a container is ours by a noted nonce, by its definition and by its id", () => {
  const containers = new Map(
    [row(), row({ nonce: "n2", engineId: undefined, createdAt: 2000 })].map((one) => [one.nonce, one]),
  );
  const list = [
    container("e1", "n1"),
    container("e2", "n2"),
    container("copy", "n1"),
    container("other", "n2", "d2"),
    container("bare", undefined),
  ];
  const { own, foreign, missing } = sortContainers(list, { containers }, 3000);
  expect(own.get("d1")?.map((one) => one.container.id)).toEqual(["e2", "e1"]);
  expect(foreign.map(({ id }) => id)).toEqual(["copy", "other", "bare"]);
  expect(missing).toEqual([]);
});

test("waits for what the engine may still be creating, for a limited time", () => {
  const containers = new Map([
    ["n1", row({ engineId: undefined })],
    ["n2", row({ nonce: "n2" })],
  ]);
  const missing = (now: number) => sortContainers([], { containers }, now).missing.map(({ nonce }) => nonce);
  expect(missing(2000)).toEqual(["n2"]);
  expect(missing(700_000)).toEqual(["n1", "n2"]);
});
