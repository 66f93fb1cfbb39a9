import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openStore } from "../../../../src/host/data-store/open-store.ts";
import { stage, type Given } from "./rig.ts";

const { signal } = new AbortController();

test("a text appears under its name when complete, and replaces the previous one", async () => {
  const { dataStore, root } = stage();
  const file = await dataStore.create("/captures/a.txt", signal);
  file.append("one ä\n");
  file.append("two\n");
  expect(existsSync(join(root, "captures/a.txt"))).toBe(false);
  expect(await file.publish()).toBe(11);
  expect(readFileSync(join(root, "captures/a.txt"), "utf8")).toBe("one ä\ntwo\n");
  const next = await dataStore.create("captures/a.txt", signal);
  await next.publish();
  expect(readFileSync(join(root, "captures/a.txt"), "utf8")).toBe("");
  const given = await dataStore.create("captures/a.txt", signal);
  given.append("three");
  given.discard();
  expect(readdirSync(join(root, "captures"))).toEqual(["a.txt"]);
});

test.each<[string, Given, string, string]>([
  ["outside of the store", {}, "../a", "invalid-body"],
  ["of a directory", {}, "images", "conflict"],
  ["below a file", {}, "file/a", "conflict"],
  [
    "of what a volume uses",
    { options: { isInUse: (parts) => (parts[0] === "v" ? "the volume v is there" : undefined) } },
    "v",
    "conflict",
  ],
  ["beyond the quota", { settings: { maxBytes: 1 } }, "a", "disk-full"],
])("does not start one at a place %s", async (_, given, path, code) => {
  const { dataStore, root } = stage(given);
  writeFileSync(join(root, "file"), "12345678");
  await expect(dataStore.create(path, signal)).rejects.toMatchObject({ code });
});

test("writes no more than the quota and the reserve of the disk leave", async () => {
  const quota = stage({ settings: { maxBytes: 1_000_000 } });
  const file = await quota.dataStore.create("a", signal);
  file.append("x".repeat(500_000));
  expect(() => file.append("x".repeat(500_001))).toThrow(expect.objectContaining({ code: "disk-full" }));
  file.discard();
  const { dir } = stage();
  const store = openStore(join(dir, "data-store"));
  const space = () => Promise.resolve({ freeBytes: 105, totalBytes: 1000 });
  const reserved = stage({ settings: { reservePercent: 10 }, options: { store: { ...store, space } } });
  const small = await reserved.dataStore.create("a", signal);
  small.append("12345");
  expect(() => small.append("6")).toThrow(expect.objectContaining({ code: "disk-full" }));
  small.discard();
});
