import { expect, test } from "vitest";
import { detailOf, volumeAt, type VolumeRecord } from "../../../../../src/agent/containers/volumes/volume-record.ts";

const record = (name: string, parts: readonly string[], quarantinedAt?: number): VolumeRecord => ({
  name,
  detail: detailOf({ encrypted: false, parts }),
  createdAt: 1,
  quarantinedAt,
});

test.each<[string, readonly string[], string | undefined]>([
  ["where a volume is", ["volumes", "v"], "v"],
  ["what is in one", ["volumes", "v", "a", "b"], "v"],
  ["what holds one", ["data"], "w"],
  ["the root", [], "v"],
  ["what is beside one", ["volumes", "vv"], undefined],
  ["where one was that is put away", ["volumes", "old"], undefined],
  ["what nobody can read", ["volumes", "odd"], undefined],
])("the volume that needs %s finds it", (_, parts, name) => {
  const records = [
    record("v", ["volumes", "v"]),
    record("w", ["data", "w"]),
    record("old", ["volumes", "old"], 5),
    { ...record("odd", ["volumes", "odd"]), detail: "{" },
  ];
  expect(volumeAt(records, parts)).toBe(name);
});
