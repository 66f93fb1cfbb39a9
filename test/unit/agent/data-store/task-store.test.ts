import { join } from "node:path";
import { expect, test } from "vitest";
import { KEEP_MS, TaskStore } from "../../../../src/agent/data-store/task-store.ts";
import { dataStoreMigration, hasOpenTasks } from "../../../../src/agent/data-store/task-table.ts";
import { newTask, step, type Work } from "../../../../src/agent/data-store/tasks.ts";
import { openDatabase } from "../../../../src/host/files/database.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const work: Work = { action: "HTTP_DOWNLOAD", uri: "http://h.example/a?key=secret", filename: "a", location: "/" };
const open = (path: string) => openDatabase(path, { migrations: [dataStoreMigration], exclusive: true });
const uuid = (n: number): string => `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
const refused = (error: unknown): never => {
  throw error;
};

test("the next agent has a task with all that it needs to resume, and not after its end", () => {
  const path = join(tempDir(), "state.db");
  const first = open(path);
  const store = new TaskStore(first.sql, { now: () => 5000, onRefused: refused });
  const running = step(newTask(uuid(1), work, 1000), { is: "started" }, 1001);
  store.put(step(running, { is: "resumable", resume: { bytes: 3, etag: '"x"' } }, 1002));
  store.put(newTask(uuid(2), work, 2000));
  const ended = step(newTask(uuid(3), work, 3000), { is: "failed", code: "x", message: "no" }, 3001);
  store.put(ended);
  const before = store.all();
  first.sql.close();
  const second = open(path);
  expect(hasOpenTasks(second.sql)).toBe(true);
  const again = new TaskStore(second.sql, { now: () => 5000, onRefused: refused });
  expect(again.all()).toEqual(before);
  expect(again.find(uuid(1))).toMatchObject({ work, resume: { bytes: 3 }, state: { status: "Running" } });
  for (const id of [uuid(1), uuid(2)]) again.remove(id);
  expect(hasOpenTasks(second.sql)).toBe(false);
  expect(JSON.stringify(second.sql.prepare("SELECT * FROM data_store_tasks").all())).not.toContain("secret");
  second.sql.close();
});

test("deletes ended tasks after six hours, and keeps the others", () => {
  const { sql } = open(join(tempDir(), "state.db"));
  let now = 1000;
  const store = new TaskStore(sql, { now: () => now, onRefused: refused });
  store.put(step(newTask(uuid(1), work, 0), { is: "cancelled" }, now));
  store.put(newTask(uuid(2), work, 0));
  now += KEEP_MS - 1;
  expect([store.prune(), store.all().length]).toEqual([1, 2]);
  now += 1;
  expect([store.prune(), store.all().map(({ id }) => id)]).toEqual([0, [uuid(2)]]);
  expect(sql.prepare("SELECT id FROM data_store_tasks").all()).toEqual([{ id: uuid(2) }]);
});

test("keeps a limited number of ended tasks, the latest", () => {
  const { sql } = open(join(tempDir(), "state.db"));
  const store = new TaskStore(sql, { now: () => 1000, onRefused: refused });
  for (let n = 0; n < 205; n += 1) store.put(step(newTask(uuid(n), work, n), { is: "cancelled" }, 1000));
  expect(store.prune()).toBe(200);
  expect(store.find(uuid(4))).toBeUndefined();
  expect(store.find(uuid(5))).toBeDefined();
});

test("reports a database that accepts no writes, and the tasks continue in memory", () => {
  const { sql } = open(join(tempDir(), "state.db"));
  const reported: unknown[] = [];
  const store = new TaskStore(sql, { now: () => 0, onRefused: (error) => reported.push(error) });
  sql.exec("PRAGMA query_only=ON");
  store.put(newTask(uuid(1), work, 0));
  expect(store.find(uuid(1))).toBeDefined();
  store.remove(uuid(1));
  expect([store.all().length, reported.length]).toEqual([0, 2]);
});

test("drops a row that it cannot parse", () => {
  const { sql } = open(join(tempDir(), "state.db"));
  sql.exec("INSERT INTO data_store_tasks VALUES ('x', 'n', 'p', NULL, 1, 0, '{\"status\":\"Dancing\"}', NULL, NULL)");
  expect(hasOpenTasks(sql)).toBe(true);
  expect(new TaskStore(sql, { now: () => 0, onRefused: refused }).all()).toEqual([]);
  expect(hasOpenTasks(sql)).toBe(false);
});
