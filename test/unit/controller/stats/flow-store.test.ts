import { describe, expect, test } from "vitest";
import { flowAt } from "../../../support/overlay/flow-record.ts";
import { freshStore, type TestStore } from "../../../support/control-plane/test-store.ts";
import type { FlowFilter } from "../../../../src/controller/stats/records.ts";

const ALL: FlowFilter = { from: 0, to: 1e9, order: "asc", limit: 100, offset: 0 };

/** Adds `count` flows of a node, which ended at 1, 2, 3 and so on. */
async function fill(store: TestStore, node: string, count: number): Promise<void> {
  await store.query(
    `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${count})
     INSERT INTO flows (node, source_node, dest_node, source_ip, dest_ip, source_port, dest_port, source_bytes, dest_bytes, started_at,
       ended_at, protocol, flags) SELECT '${node}', 'a', 'b', '', '', 0, 0, 0, 0, i, i, 'TCP', 0 FROM n`,
  );
}

const rowsOf = async (store: TestStore, node: string) => {
  const text = `SELECT count(*) AS n, min(ended_at) AS first FROM flows WHERE node = '${node}'`;
  return (await store.query<{ readonly n: number; readonly first: number }>(text))[0];
};

describe("a search", () => {
  test("gives records back as they came, with whose they are", async () => {
    const { flows } = await freshStore();
    const whole = flowAt(5000, { tcpFlags: "27", flags: "4026531840", activityID: "x", protocol: "ICMP" });
    const bare = flowAt(6000, { sourceIP: "fe80::1%eth0", destIP: "", destPort: 0, meta: null });
    await flows.add("n1", [whole, bare]);
    expect(await flows.find(ALL)).toEqual({
      total: 2,
      items: [
        { ...whole, nodeId: "n1" },
        { ...bare, nodeId: "n1" },
      ],
    });
  });

  test("is filtered, sorted and paged", async () => {
    const { flows } = await freshStore();
    const meta = (reason: string) => ({ connector: "ssh", service: "s", reason });
    await flows.add("n1", [
      flowAt(1000, { sourceIP: "10.1.2.3", destPort: 1 }),
      flowAt(2000, { sourceIP: "2001:db8::5", destPort: 2, protocol: "UDP" }),
    ]);
    await flows.add("n2", [
      flowAt(3000, { sourceIP: "10.1.255.0", destPort: 3, sourcePort: 9, flags: "65537", meta: meta("idle") }),
      flowAt(4000, { destIP: "172.16.0.1", destPort: 4, flags: "536870912", meta: meta("reset") }),
      flowAt(5000, { destPort: 5, flags: "40019", meta: { connector: 7, flow: "5f2e" } }),
    ]);
    const ports = async (filter: Partial<FlowFilter>) =>
      (await flows.find({ ...ALL, ...filter })).items.map(({ destPort }) => destPort);
    expect(await ports({})).toEqual([1, 2, 3, 4, 5]);
    expect(await ports({ order: "desc" })).toEqual([5, 4, 3, 2, 1]);
    expect(await ports({ from: 2, to: 4 })).toEqual([2, 3, 4]);
    expect(await ports({ nodeIds: ["n1", "n9"] })).toEqual([1, 2]);
    expect(await ports({ nodeIds: [] })).toEqual([]);
    expect(await ports({ protocols: ["UDP", "ICMP"] })).toEqual([2]);
    expect(await ports({ source: "10.1.0.0/16" })).toEqual([1, 3]);
    expect(await ports({ source: "10.1.2.3" })).toEqual([1]);
    expect(await ports({ source: "0.0.0.0/0" })).toEqual([1, 3, 4, 5]);
    expect(await ports({ source: "::/0" })).toEqual([2]);
    expect(await ports({ source: "2001:db8::/64" })).toEqual([2]);
    expect(await ports({ dest: "172.16.0.0/12" })).toEqual([4]);
    expect(await ports({ sourcePort: 9 })).toEqual([3]);
    expect(await ports({ destPort: 4 })).toEqual([4]);
    expect(await ports({ connector: "ssh" })).toEqual([3, 4]);
    expect(await ports({ connector: "' OR 1" })).toEqual([]);
    expect(await ports({ flow: "5f2e" })).toEqual([5]);
    expect(await ports({ reasons: ["reset", "loop"] })).toEqual([4]);
    expect(await ports({ isDefunct: true })).toEqual([3, 4]);
    expect(await ports({ isDefunct: false })).toEqual([1, 2, 5]);
    expect(await ports({ limit: 2, offset: 1 })).toEqual([2, 3]);
    expect((await flows.find({ ...ALL, limit: 1 })).total).toBe(5);
  });

  test("compares ports, addresses and the second of the end", async () => {
    const { flows } = await freshStore();
    await flows.add("n1", [
      flowAt(1999, { sourceIP: "10.0.0.9", destPort: 1 }),
      flowAt(2000, { sourceIP: "10.0.1.0", destPort: 2 }),
      flowAt(2999, { sourceIP: "10.0.2.0", destPort: 3 }),
      flowAt(3000, { sourceIP: "2001:db8::1", destPort: 4 }),
      flowAt(4000, { sourceIP: "", destPort: 5 }),
    ]);
    const ports = async (filter: Partial<FlowFilter>) =>
      (await flows.find({ ...ALL, ...filter })).items.map(({ destPort }) => destPort);
    const expected = [
      ["eq", [3], [2], [2, 3]],
      ["ne", [1, 2, 4, 5], [1, 3, 4, 5], [1, 4, 5]],
      ["gt", [4, 5], [3], [4, 5]],
      ["gte", [3, 4, 5], [2, 3], [2, 3, 4, 5]],
      ["lt", [1, 2], [1], [1]],
      ["lte", [1, 2, 3], [1, 2], [1, 2, 3]],
    ] as const;
    for (const [op, byPort, byAddress, bySecond] of expected) {
      expect([op, await ports({ destPort: 3, ops: { destPort: op } })]).toEqual([op, byPort]);
      expect([op, await ports({ source: "10.0.1.0/24", ops: { source: op } })]).toEqual([op, byAddress]);
      expect([op, await ports({ ended: { op, second: 2 } })]).toEqual([op, bySecond]);
    }
    expect(await ports({ source: "2001:db8::1", ops: { source: "lte" } })).toEqual([4]);
    expect(await ports({ source: "2001:db8::2", ops: { source: "gte" } })).toEqual([]);
  });

  test("takes names of nodes and bits, and flows the other way round", async () => {
    const { flows } = await freshStore();
    await flows.add("n1", [
      flowAt(1000, { sourceNode: "a", destNode: "b", destPort: 1, tcpFlags: "2", flags: "3" }),
      flowAt(2000, { sourceNode: "b", destNode: "a", destPort: 2, tcpFlags: "27", flags: "4294967295" }),
      flowAt(3000, { sourceIP: "10.0.0.5", destIP: "192.0.2.7", sourcePort: 3, destPort: 3, flags: "65536" }),
    ]);
    const ports = async (filter: Partial<FlowFilter>) =>
      (await flows.find({ ...ALL, ...filter })).items.map(({ destPort }) => destPort);
    expect(await ports({ sourceNode: "a" })).toEqual([1]);
    expect(await ports({ destNode: "a" })).toEqual([2]);
    expect(await ports({ sourceNode: "a", destNode: "b", isEitherWay: true })).toEqual([1, 2]);
    expect(await ports({ sourceNode: "a", destNode: "a", isEitherWay: true })).toEqual([]);
    expect(await ports({ dest: "10.0.0.5" })).toEqual([1, 2]);
    expect(await ports({ dest: "10.0.0.5", isEitherWay: true })).toEqual([1, 2, 3]);
    expect(await ports({ destPort: 3, isEitherWay: true, nodeIds: ["n2"] })).toEqual([]);
    const other = { source: "192.0.2.7", destPort: 2, ops: { destPort: "gt" }, isEitherWay: true } as const;
    expect(await ports(other)).toEqual([3]);
    expect(await ports({ isEitherWay: true })).toEqual([1, 2, 3]);
    expect(await ports({ tcpFlags: 2 })).toEqual([1, 2]);
    expect(await ports({ tcpFlags: 3 })).toEqual([2]);
    expect(await ports({ flags: 65_536 })).toEqual([2, 3]);
    expect(await ports({ flags: 2_147_483_649 })).toEqual([2]);
    expect(await ports({ flags: 0, tcpFlags: 1 })).toEqual([2]);
  });

  test("by a field goes on over records whose text has no character for the engine", async () => {
    const { flows } = await freshStore();
    const hostile = ["\0", "\ud800", "\udfff\ud800", String.raw`\ud800`, String.raw`\\u0000`];
    await flows.add("n1", [
      ...hostile.map((reason, index) => flowAt(1000 + index, { meta: { reason, [reason]: [reason] } })),
      flowAt(5000, { destPort: 5, meta: { reason: "idle", connector: "ssh" } }),
    ]);
    const ports = async (filter: Partial<FlowFilter>) =>
      (await flows.find({ ...ALL, ...filter })).items.map(({ destPort }) => destPort);
    expect(await ports({ reasons: ["idle"] })).toEqual([5]);
    expect(await ports({ connector: "ssh" })).toEqual([5]);
    expect(await ports({ flow: "none" })).toEqual([]);
  });

  test("finds records whose names have U+0000, with another character in its place", async () => {
    const { flows } = await freshStore();
    await flows.add("n1", [flowAt(1000, { sourceNode: "a\0", destNode: "\0", activityID: "x\0" })]);
    const { items } = await flows.find(ALL);
    expect(items).toMatchObject([{ sourceNode: "a\ufffd", destNode: "\ufffd", activityID: "x\ufffd" }]);
  });

  test("finds at most ten thousand, on whatever page", async () => {
    const store = await freshStore();
    await fill(store, "n1", 12_000);
    const { total, items } = await store.flows.find({ ...ALL, limit: 10_000, offset: 9990 });
    expect([total, items.length]).toEqual([10_000, 10]);
    expect((await store.flows.find({ ...ALL, offset: 20_000 })).items).toEqual([]);
  });
});

describe("usage", () => {
  test("counts bytes in the minute in which they flowed, and a flow once, when it has ended", async () => {
    const { flows } = await freshStore();
    const range = { from: 0, to: 300, bucketSeconds: 60 };
    const startTime = new Date(5000).toISOString();
    const carried = (sourceBytes: number) => ({ startTime, sourceBytes, destBytes: 0 });
    const goesOn = {
      ...carried(70),
      meta: { interim: true },
      usage: [
        { t: 0, bytes: 30 },
        { t: 60, bytes: 40 },
      ],
    };
    await flows.add("n1", [flowAt(119_000, goesOn)]);
    await flows.add("n1", [flowAt(200_000, { ...carried(75), usage: [{ t: 180, bytes: 5 }] })]);
    const all = async () => (await flows.usage(range, undefined)).map(({ bytes, count }) => [bytes, count]);
    expect(await all()).toEqual([
      [30, 0],
      [40, 0],
      [0, 0],
      [5, 1],
      [0, 0],
    ]);
    // What a node says of minutes in which the flow did not run, or beyond its bytes, is not believed.
    await flows.add("n1", [
      flowAt(200_000, {
        ...carried(9),
        usage: [
          { t: 290, bytes: 8 },
          { t: 120, bytes: 1000 },
        ],
      }),
    ]);
    expect(await all()).toEqual([
      [30, 0],
      [40, 0],
      [1, 0],
      [13, 2],
      [0, 0],
    ]);
  });

  const range = { from: 3600, to: 3 * 3600 + 1, bucketSeconds: 3600 };
  const hour = 3_600_000;

  test("adds up bytes and flows by the time they ended, of all nodes or of some", async () => {
    const { flows } = await freshStore();
    await flows.add("n1", [flowAt(hour - 1), flowAt(hour), flowAt(2 * hour - 1), flowAt(2 * hour - 1)]);
    await flows.add("n1", [flowAt(2 * hour - 1, { sourceBytes: 1, destBytes: 1 })]);
    await flows.add("n2", [flowAt(2 * hour + 61_000, { sourceBytes: 5, destBytes: 0 }), flowAt(9 * hour)]);
    expect(await flows.usage(range, undefined)).toEqual([
      { t: 3600, bytes: 3002, count: 4 },
      { t: 7200, bytes: 5, count: 1 },
      { t: 10_800, bytes: 0, count: 0 },
    ]);
    expect((await flows.usage(range, ["n2"])).map(({ bytes }) => bytes)).toEqual([0, 5, 0]);
    expect((await flows.usage(range, [])).every(({ count }) => count === 0)).toBe(true);
  });

  test("stays a number whatever nodes claim", async () => {
    const { flows } = await freshStore();
    const huge = flowAt(hour, { sourceBytes: Number.MAX_SAFE_INTEGER, destBytes: Number.MAX_SAFE_INTEGER });
    for (const node of ["n1", "n1", "n2"]) await flows.add(node, [huge, huge]);
    expect((await flows.usage(range, undefined))[0]).toEqual({ t: 3600, bytes: Number.MAX_SAFE_INTEGER, count: 6 });
  });
});

describe("what is kept", () => {
  test("is a share per node, of which the oldest go", async () => {
    const store = await freshStore();
    await fill(store, "n1", 104_000);
    await fill(store, "n2", 10);
    await store.flows.add("n1", [flowAt(200_000)]);
    expect(await rowsOf(store, "n1")).toEqual({ n: 100_000, first: 4002 });
    expect(await rowsOf(store, "n2")).toEqual({ n: 10, first: 1 });
    const more = Array.from({ length: 500 }, () => flowAt(200_000));
    for (let i = 0; i < 11; i += 1) await store.flows.add("n1", more);
    expect((await rowsOf(store, "n1"))?.n).toBeLessThanOrEqual(105_000);
  });

  test("is of thirty days, and its sums of ninety", async () => {
    const store = await freshStore();
    const day = 24 * 3600;
    const days = [0, 65, 95];
    await store.flows.add(
      "n1",
      days.map((at) => flowAt((at * day + 1) * 1000)),
    );
    await store.prune(96 * day);
    expect((await store.flows.find(ALL)).items.map(({ endTime }) => endTime.slice(0, 10))).toEqual(["1970-04-06"]);
    const sums = await store.flows.usage({ from: 0, to: 96 * day, bucketSeconds: day }, undefined);
    expect(sums.filter(({ count }) => count > 0).map(({ t }) => t / day)).toEqual([65, 95]);
  });
});
