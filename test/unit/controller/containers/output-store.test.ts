import { expect, test } from "vitest";
import { memoryStores } from "../../../support/control-plane/memory-stores.ts";

function stage() {
  const { sql, containerOutput: store } = memoryStores();
  return { sql, store };
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

test("a node that has had its share loses its oldest, and no other does", () => {
  const { sql, store } = stage();
  store.add("other", [piece(1, "kept")]);
  const large = "x".repeat(4000);
  for (let at = 0; at < 17; at += 1) {
    store.add(
      "node",
      Array.from({ length: 1000 }, (_, index) => piece(10 + at, `${at * 1000 + index} ${large}`)),
    );
  }
  const { chars } = sql.prepare("SELECT sum(chars) AS chars FROM container_output WHERE node = 'node'").get() ?? {};
  expect(Number(chars)).toBeLessThan(65_100_000);
  expect(Number(chars)).toBeGreaterThan(62_000_000);
  const { first } = sql.prepare("SELECT min(at) AS first FROM container_output WHERE node = 'node'").get() ?? {};
  expect(Number(first)).toBeGreaterThan(10_000);
  expect(store.find("other", everything)).toHaveLength(1);
});

test("what is older than 30 days goes", () => {
  const { store } = stage();
  store.add("node", [piece(100, "old"), piece(200, "new")]);
  store.prune(150 + 30 * 86_400);
  expect(store.find("node", everything).map(({ text }) => text)).toEqual(["new"]);
});
