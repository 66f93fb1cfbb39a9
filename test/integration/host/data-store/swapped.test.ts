import { expect, test } from "vitest";
import { TESTS_ALL } from "../../../support/sample.ts";
import { besideSwapping } from "../../../support/data-store/swapped-store.ts";
import { memoryDir } from "../../../support/temp-dir.ts";

const OPERATIONS = TESTS_ALL ? 10_000 : 1000;

test("reads and changes nothing outside while paths are swapped for links", async () => {
  const outcome = await besideSwapping(memoryDir(), OPERATIONS);
  expect(outcome.escapes).toEqual([]);
  expect(outcome).toMatchObject({ operations: OPERATIONS, isReadingSeen: true });
  // Both happened, or nothing would have been tested.
  expect(Math.min(outcome.done, outcome.refused)).toBeGreaterThan(OPERATIONS / 100);
  expect(outcome.swaps).toBeGreaterThan(OPERATIONS / 10);
}, 600_000);
