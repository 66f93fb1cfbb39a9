import { once } from "node:events";
import { connect } from "node:net";
import { describe, expect, test } from "vitest";
import { flowLog } from "../../../../src/overlay/flow/flow-log.ts";
import { LiveFlows } from "../../../../src/overlay/flow/live-flows.ts";
import type { OverlayFlow } from "../../../../src/protocol/overlay/overlay.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { freePort } from "../../../support/free-port.ts";
import { aClient, aListener, aServer, echo, planeRig } from "../../../support/overlay/overlay-rig.ts";
import { remoteService } from "../../../support/overlay/peer-rig.ts";
import { waitFor } from "../../../support/wait-for.ts";

const HOUR_MS = 3_600_000;

function setUp() {
  const clock = new FakeClock();
  const log = flowLog(clock);
  const records: OverlayFlow[] = [];
  log.deliverTo((flows) => void records.push(...flows));
  const live = new LiveFlows(clock, log);
  const startedAt = clock.now();
  const moved = { sourceBytes: 0, destBytes: 0 };
  const flow = {
    record: (): OverlayFlow => ({
      id: "5f2e",
      listener: "k",
      connector: "c",
      service: "s",
      protocol: "tcp",
      sourceIp: "192.0.2.7",
      sourcePort: 4000,
      destIp: "10.0.0.1",
      destPort: 80,
      ...moved,
      startedAt,
      endedAt: clock.now(),
    }),
    cut: () => undefined,
  };
  return { clock, log, live, flow, moved, records, startedAt };
}

describe("a running flow", () => {
  test("has a record every hour, with its bytes in the minutes in which they flowed", async () => {
    const { clock, live, flow, moved, records, startedAt, log } = setUp();
    const first = Math.floor(startedAt / 60_000) * 60;
    live.begin(flow);
    moved.sourceBytes = 100;
    await clock.advance(10 * 60_000);
    moved.destBytes = 50;
    await clock.advance(HOUR_MS - 9 * 60_000);
    expect(records).toHaveLength(1);
    expect(records[0]).toMatchObject({ id: "5f2e", interim: true, sourceBytes: 100, destBytes: 50 });
    expect(records[0]?.usage).toEqual([
      { t: first, bytes: 100 },
      { t: first + 600, bytes: 50 },
    ]);
    await clock.advance(HOUR_MS);
    expect(records[1]).toMatchObject({ interim: true, usage: [], sourceBytes: 100, destBytes: 50 });
    moved.sourceBytes = 107;
    await clock.advance(60_000);
    moved.sourceBytes = 110;
    live.end(flow, flow.record());
    log.flush();
    const last = Math.floor(clock.now() / 60_000) * 60;
    expect(records[2]?.interim).toBeUndefined();
    expect(records[2]).toMatchObject({
      sourceBytes: 110,
      usage: [
        { t: last - 60, bytes: 7 },
        { t: last, bytes: 3 },
      ],
    });
    expect(clock.pendingTimers).toBe(0);
  });

  test("that ends within its minute has one record", () => {
    const { live, flow, moved, records, log, clock } = setUp();
    live.begin(flow);
    moved.sourceBytes = 100;
    live.end(flow, flow.record());
    log.flush();
    expect(records[0]).not.toHaveProperty("usage");
    expect(clock.pendingTimers).toBe(0);
  });

  test.each([
    [{}, 1],
    [{ protocol: "tcp", source: "192.0.2.0/24", dest: "10.0.0.1", sourcePort: 4000, destPort: 80 }, 1],
    [{ party: "10.0.0.1" }, 1],
    [{ protocol: "udp" }, 0],
    [{ source: "192.0.3.0/24" }, 0],
    [{ dest: "10.0.0.2" }, 0],
    [{ sourcePort: 80 }, 0],
    [{ destPort: 4000 }, 0],
    [{ party: "10.0.0.9" }, 0],
  ] as const)("is found by %j: %i", (filter, total) => {
    const { live, flow } = setUp();
    live.begin(flow);
    expect(live.list(filter, 10).total).toBe(total);
    expect(live.list(filter, 0)).toEqual({ flows: [], total });
  });
});

test("lists and cuts the running flows of one listener only", async () => {
  const rig = planeRig();
  const target = await aServer(echo);
  const [port, other] = [await freePort(), await freePort()];
  await rig.apply([aListener(port, target), aListener(other, target)]);
  const [client, spared] = [aClient(port), aClient(other)];
  client.socket.write("hello");
  spared.socket.write("hello");
  await waitFor("the echoes", () => client.text() === "hello" && spared.text() === "hello");
  const { flows, total } = rig.plane.flows.list({ destPort: port }, 10);
  expect(total).toBe(1);
  expect(flows).toMatchObject([{ connector: `c${port}`, sourcePort: client.socket.localPort, destBytes: 5 }]);
  expect(rig.plane.flows.cut({ destPort: port }, 10).total).toBe(1);
  await waitFor("it is reset", () => client.fate() === "ECONNRESET");
  expect(await rig.nextFlow()).toMatchObject({ reason: "removed", id: flows[0]?.id });
  expect(rig.plane.flows.list({}, 10)).toMatchObject({ total: 1, flows: [{ destPort: other }] });
  spared.socket.write(" again");
  await waitFor("the other goes on", () => spared.text() === "hello again");
});

test("a flow from another node is listed at both ends, and cut at either", async () => {
  const { source, destination, port } = await remoteService(echo);
  const client = connect(port, "127.0.0.1").on("error", () => undefined);
  client.write("hello");
  await once(client, "data");
  const near = source.plane.flows.list({}, 10);
  const far = destination.plane.flows.list({}, 10);
  expect([near.total, far.total]).toEqual([1, 1]);
  expect(far.flows[0]).toMatchObject({ id: near.flows[0]?.id, sourcePort: client.localPort, listener: "" });
  expect(destination.plane.flows.cut({ sourcePort: client.localPort }, 10).total).toBe(1);
  await waitFor("it is cut", () => client.destroyed);
  expect(await destination.nextFlow()).toMatchObject({ reason: "removed" });
  expect(source.plane.flows.list({}, 10).total + destination.plane.flows.list({}, 10).total).toBe(0);
});
