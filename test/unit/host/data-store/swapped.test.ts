import { expect, test } from "vitest";
import { besideSwapping } from "../../../support/swapped-store.ts";
import { memoryDir } from "../../../support/temp-dir.ts";

test("nothing outside is read or changed by ten thousand operations while paths are swapped for links", async () => {
  const outcome = await besideSwapping(memoryDir(), 10_000);
  expect(outcome.escapes).toEqual([]);
  expect(outcome).toMatchObject({ operations: 10_000, isReadingSeen: true });
  // Both came to pass, or nothing would have been tried.
  expect(Math.min(outcome.done, outcome.refused)).toBeGreaterThan(100);
  expect(outcome.swaps).toBeGreaterThan(1000);
}, 600_000);
