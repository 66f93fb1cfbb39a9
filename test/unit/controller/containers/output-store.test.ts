import { sql } from "kysely";
import { expect, onTestFinished, test } from "vitest";
import { openTestStore } from "../../../support/control-plane/test-store.ts";

async function stage() {
  const opened = await openTestStore();
  onTestFinished(() => opened.close());
  return { db: opened.database.db, store: opened.containerOutput };
}
const piece = (at: number, text: string) => ({
  container: "c",
  name: "web",
  run: "r",
  stream: "stdout" as const,
  at: at * 1000,
  text,
});
const everything = { container: undefined, from: 0, to: 1e9, limit: 1e6 };

test("a node that has had its share loses its oldest, and no other does", async () => {
  const { db, store } = await stage();
  await store.add("other", [piece(1, "kept")]);
  const large = "x".repeat(4000);
  for (let at = 0; at < 17; at += 1) {
    await store.add(
      "node",
      Array.from({ length: 1000 }, (_, index) => piece(10 + at, `${at * 1000 + index} ${large}`)),
    );
  }
  const { rows } = await sql<{ readonly chars: number; readonly first: number }>`
    select sum(chars) as chars, min(at) as first from container_output where node = 'node'`.execute(db);
  const [{ chars, first } = { chars: 0, first: 0 }] = rows;
  expect(chars).toBeLessThan(65_100_000);
  expect(chars).toBeGreaterThan(62_000_000);
  expect(first).toBeGreaterThan(10_000);
  expect(await store.find("other", everything)).toHaveLength(1);
});

test("what is older than 30 days goes", async () => {
  const { store } = await stage();
  await store.add("node", [piece(100, "old"), piece(200, "new")]);
  await store.prune(150 + 30 * 86_400);
  expect((await store.find("node", everything)).map(({ text }) => text)).toEqual(["new"]);
});
