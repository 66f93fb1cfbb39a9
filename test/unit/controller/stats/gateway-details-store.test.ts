import { expect, test } from "vitest";
import { freshStore } from "../../../support/control-plane/test-store.ts";

const DAY = 86_400;
const at = (second: number, more: object = {}) => ({
  time: second * 1000,
  node: "gw",
  minRtt: 1,
  maxRtt: 2,
  meanRtt: 1.5,
  stdRtt: 0.5,
  numRtt: 3,
  ...more,
});
const edge = { uid: "e", name: "edge" };

test("the same interval of the same tunnel told again takes the place of the first", async () => {
  const { gatewayDetails } = await freshStore();
  await gatewayDetails.add(edge, [at(60), at(60, { path: "lte" }), at(60, { node: "other" })]);
  await gatewayDetails.add(edge, [at(60, { numRtt: 4 })]);
  expect(await gatewayDetails.find("e", 0, DAY)).toEqual([
    at(60, { numRtt: 4 }),
    at(60, { path: "lte" }),
    at(60, { node: "other" }),
  ]);
});

test("what is older than 90 days goes", async () => {
  const store = await freshStore();
  await store.gatewayDetails.add(edge, [at(10 * DAY - 1), at(10 * DAY), at(100 * DAY)]);
  await store.prune(100 * DAY);
  expect((await store.gatewayDetails.find("e", 0, 200 * DAY))?.map(({ time }) => time / 1000)).toEqual([
    10 * DAY,
    100 * DAY,
  ]);
});

test("one node holds a share and no more, and takes nothing from another", async () => {
  const store = await freshStore();
  await store.gatewayDetails.add({ uid: "other", name: "other" }, [at(1)]);
  await store.query(
    `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300010)
     INSERT INTO gateway_details SELECT 'e', 'edge', 'gw', '', '', i, 1, 1, 1, 1, 0, NULL FROM n`,
  );
  await store.gatewayDetails.add(edge, [at(1000)]);
  const rows = (node: string) =>
    store.query(`SELECT count(*) AS total, min(t) AS first FROM gateway_details WHERE node = '${node}'`);
  expect(await rows("e")).toEqual([{ total: 300_000, first: 12 }]);
  expect(await rows("other")).toEqual([{ total: 1, first: 1000 }]);
});
