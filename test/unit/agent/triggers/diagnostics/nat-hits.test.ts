import { expect, test } from "vitest";
import type { NatHits as Hits, NatWatch } from "../../../../../src/agent/triggers/diagnostics/nat-watch.ts";
import { natHits, natRow, natsAnswer } from "../../../../../src/agent/triggers/diagnostics/nat-hits.ts";
import { HostError } from "../../../../../src/errors.ts";
import type { TrackedNat } from "../../../../../src/protocol/sections/network/nat-tracker.ts";
import { NatHits } from "../../../../../src/protocol/triggers/bodies.ts";
import { rig } from "../rig.ts";

const NATS: readonly TrackedNat[] = [
  { tracker: "n1", nat: { source: "10.0.0.0/24", toSource: "192.0.2.0/24", masquerade: false } },
  { tracker: "red:0", vrf: "red", nat: { dest: "198.51.100.0/24", toDest: "10.1.0.0/24", masquerade: false } },
  { tracker: "red:1", vrf: "red", nat: { masquerade: true } },
];

function stage(hits: ReadonlyMap<string, Hits> | Error = new Map()) {
  const reset: string[][] = [];
  const watch: NatWatch = {
    refresh: () => undefined,
    close: () => undefined,
    hits: () => (hits instanceof Error ? Promise.reject(hits) : Promise.resolve(hits)),
    reset: (trackers) => {
      const requested = [...trackers];
      reset.push(requested);
      return requested.length;
    },
  };
  const { run } = rig([natHits(() => NATS, watch)]);
  return { reset, ask: (body: unknown) => run("nat-hits", { body }) };
}

test("lists every translation with its hits, also without any", async () => {
  const { ask } = stage(new Map([["n1", { hits: 19, initialHit: 1_728_592_566, latestHit: 1_728_594_133 }]]));
  expect(await ask({ action: "GET", name: "nat-hits" })).toEqual({
    body: {
      nats: [
        {
          trackerID: "n1",
          type: "inside",
          networkName: "",
          interfaceName: "",
          insideCIDR: "10.0.0.0/24",
          outsideCIDR: "192.0.2.0/24",
          networkGroup: "",
          hits: 19,
          initialHit: 1_728_592_566,
          latestHit: 1_728_594_133,
        },
        {
          trackerID: "red:0",
          type: "outside",
          networkName: "red",
          interfaceName: "",
          insideCIDR: "10.1.0.0/24",
          outsideCIDR: "198.51.100.0/24",
          networkGroup: "",
          hits: 0,
          initialHit: null,
          latestHit: null,
        },
        expect.objectContaining({
          trackerID: "red:1",
          type: "inside",
          insideCIDR: "0.0.0.0/0",
          outsideCIDR: "",
        }) as object,
      ],
      total: 3,
    },
  });
});

test.each([
  [{ trackerID: "n1" }, ["n1"]],
  [{ networkName: "red" }, ["red:0", "red:1"]],
  [{ networkName: "red", outsideCIDR: "198.51.100.0/24" }, ["red:0"]],
  [{ insideCIDR: "10.0.0.0/24", networkName: "red" }, []],
  [{ interfaceName: "eth0" }, []],
  [{ networkGroup: "g" }, []],
  [{}, ["n1", "red:0", "red:1"]],
])("%j selects %j, for reading and resetting", async (filter, trackers) => {
  const { ask, reset } = stage();
  const shown = (await ask({ action: "GET", ...filter })) as { body: { nats: { trackerID: string }[] } };
  expect(shown.body.nats.map(({ trackerID }) => trackerID)).toEqual(trackers);
  expect(await ask({ action: "RESET", ...filter })).toEqual({ body: { reset: trackers.length } });
  expect(await ask({ action: "RESET_ALL", ...filter })).toEqual({ body: { reset: 3 } });
  expect(reset).toEqual([trackers, ["n1", "red:0", "red:1"]]);
});

test("names a missing nft", async () => {
  const { ask } = stage(new HostError("tool-missing", "nft is not installed", { details: { tool: "nft" } }));
  expect(await ask({ action: "GET" })).toMatchObject({ error: { code: "tool-missing", details: { tool: "nft" } } });
});

test("limits the list to one message", () => {
  const [first] = NATS;
  if (first === undefined) throw new Error("none");
  const row = natRow(first, undefined);
  const bytes = JSON.stringify(row).length + 1;
  expect(natsAnswer([row, row, row], 2 * bytes + 1)).toMatchObject({ nats: [{}, {}], total: 3, truncated: true });
  expect(natsAnswer([row])).not.toHaveProperty("truncated");
});

test.each([
  [{}, "action"],
  [{ action: "get" }, "action"],
  [{ action: "RESET_EVERYTHING" }, "action"],
  [{ action: "GET", trackerID: 7 }, "trackerID"],
  [{ action: "GET", networkName: "n".repeat(129) }, "networkName"],
  [{ action: "GET", interfaceName: null }, "interfaceName"],
  [{ action: "GET", insideCIDR: [] }, "insideCIDR"],
  [{ action: "GET", outsideCIDR: {} }, "outsideCIDR"],
  [{ action: "GET", networkGroup: true }, "networkGroup"],
])("refuses %j for its %s", async (body, field) => {
  expect(NatHits.safeParse(body).error?.issues[0]?.path).toEqual([field]);
  expect(await stage().ask(body)).toMatchObject({ error: { code: "invalid-body", details: { field } } });
});
