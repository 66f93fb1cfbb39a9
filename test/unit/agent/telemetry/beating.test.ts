import { expect, test } from "vitest";
import { z } from "zod";
import { Beating, type BeatConnection } from "../../../../src/agent/telemetry/beating.ts";
import { controlMethods, Heartbeat, nodeMethods } from "../../../../src/protocol/channel/methods.ts";
import { RpcPeer } from "../../../../src/protocol/channel/rpc.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const GIB = 2 ** 30;
const BEAT_MS = 30_000;
const Sent = z.object({ method: z.literal("heartbeat"), params: Heartbeat });

function begin() {
  const clock = new FakeClock();
  const seen = { sent: [] as number[], leftOut: 0, isCongested: false };
  const rpc = new RpcPeer({
    local: controlMethods,
    remote: nodeMethods,
    handlers: {},
    send: (text) => {
      const { seq, queue } = Sent.parse(JSON.parse(text)).params;
      seen.sent.push(seq);
      seen.leftOut = queue.dropped;
    },
    onFault: () => undefined,
  });
  const connection: BeatConnection = {
    rpc,
    heartbeatMs: BEAT_MS,
    isCongested: () => seen.isCongested,
    beaten: () => undefined,
    rttMs: () => undefined,
  };
  const beating = new Beating({
    clock,
    random: () => 0.5,
    heartbeat: (seq, _connection, leftOut) => ({
      seq,
      at: clock.now(),
      uptimeSeconds: 1,
      load: 0,
      memory: { totalBytes: GIB, availableBytes: GIB },
      disk: { totalBytes: GIB, freeBytes: GIB, usedRatio: 0 },
      overlay: "DOWN",
      queue: { records: 0, dropped: leftOut },
    }),
  });
  return { clock, seen, connection, beating };
}

test("sends a heartbeat at once and then at the requested interval, until the session ends", async () => {
  const { clock, seen, connection, beating } = begin();
  beating.online(connection);
  await clock.advance(1000);
  expect(seen.sent).toEqual([1]);
  await clock.advance(2 * BEAT_MS);
  expect(seen.sent).toEqual([1, 2, 3]);
  beating.offline();
  await clock.advance(10 * BEAT_MS);
  expect(seen.sent).toEqual([1, 2, 3]);
  expect(clock.pendingTimers).toBe(0);
});

test("skips a heartbeat that would queue, with its number", async () => {
  const { clock, seen, connection, beating } = begin();
  beating.online(connection);
  await clock.advance(1000);
  seen.isCongested = true;
  await clock.advance(3 * BEAT_MS);
  expect(seen.sent).toEqual([1]);
  seen.isCongested = false;
  await clock.advance(BEAT_MS);
  expect(seen.sent).toEqual([1, 5]);
  expect(seen.leftOut).toBe(3);
});
