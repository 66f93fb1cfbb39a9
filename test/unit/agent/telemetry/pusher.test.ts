import { DatabaseSync } from "node:sqlite";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import type { Connection } from "../../../../src/agent/session/attempt.ts";
import { Pusher } from "../../../../src/agent/telemetry/pusher.ts";
import { Spool, spoolMigration } from "../../../../src/agent/telemetry/spool.ts";
import { SessionError } from "../../../../src/errors.ts";
import { parseMessage, SESSION_LIMITS } from "../../../../src/protocol/channel/envelope.ts";
import {
  controlMethods,
  nodeMethods,
  type ControlMethods,
  type NodeMethods,
} from "../../../../src/protocol/channel/methods.ts";
import { RpcPeer } from "../../../../src/protocol/channel/rpc.ts";
import type { TelemetryPush } from "../../../../src/protocol/documents/telemetry.ts";

import { deferred, type Deferred } from "../../../support/deferred.ts";
import { FakeClock, settle } from "../../../support/fake-clock.ts";
import type { z } from "zod";

type Push = z.infer<typeof TelemetryPush>;

function setUp() {
  const clock = new FakeClock();
  const sql = new DatabaseSync(":memory:");
  sql.exec(spoolMigration);
  const spool = new Spool(sql, () => undefined);
  const pusher = new Pusher({ clock, log: pino({ level: "silent" }), spool });
  const stored = () => new Spool(sql, () => undefined).status();
  return { clock, spool, pusher, stored };
}

/** A session with the given function as its control plane. */
function session(answer: (push: Push) => Promise<{ last: number }> | { last: number }) {
  const pushes: Push[] = [];
  const over = new AbortController();
  const control: RpcPeer<NodeMethods, ControlMethods> = new RpcPeer({
    local: nodeMethods,
    remote: controlMethods,
    handlers: {
      "telemetry.push": (push) => {
        pushes.push(push);
        return answer(push);
      },
    },
    send: (text) => void rpc.receive(parseMessage(text, SESSION_LIMITS)),
    onFault: () => undefined,
  });
  const rpc: RpcPeer<ControlMethods, NodeMethods> = new RpcPeer({
    local: controlMethods,
    remote: nodeMethods,
    handlers: {},
    send: (text) => void control.receive(parseMessage(text, SESSION_LIMITS)),
    onFault: () => undefined,
  });
  const connection = { rpc, signal: over.signal, isCongested: () => false } as unknown as Connection;
  const end = () => {
    over.abort(new SessionError("gone", "gone"));
    rpc.close(new SessionError("gone", "gone"));
  };
  return { connection, pushes, end };
}

const takeAll = ({ first, records }: Push) => ({ last: first + records.length - 1 });
const settled = async () => {
  for (let i = 0; i < 10; i += 1) await settle();
};

describe("the pusher", () => {
  test("sends what waited once there is a session, one batch after another", async () => {
    const { spool, pusher, clock } = setUp();
    for (let i = 0; i < 700; i += 1) spool.append("events", { i });
    spool.append("metrics", { t: 1 });
    pusher.push();
    const { connection, pushes } = session(takeAll);
    pusher.online(connection);
    await settled();
    expect(pushes.map(({ stream, first, records }) => [stream, first, records.length])).toEqual([
      ["events", 1, 500],
      ["events", 501, 200],
      ["metrics", 1, 1],
    ]);
    expect(clock.pendingTimers).toBe(0);
  });

  test("sends again in the next session what the last did not acknowledge", async () => {
    const { spool, pusher } = setUp();
    spool.append("events", { i: 1 });
    const dead = session(() => new Promise<never>(() => undefined));
    pusher.online(dead.connection);
    await settled();
    pusher.offline();
    dead.end();
    const alive = session(takeAll);
    pusher.online(alive.connection);
    await settled();
    expect(dead.pushes).toEqual(alive.pushes);
    expect(spool.status().events.queued).toBe(0);
  });

  test("writes what has waited a minute to disk", async () => {
    const { spool, pusher, clock, stored } = setUp();
    spool.append("metrics", { t: 1 });
    pusher.push();
    await clock.advance(59_999);
    expect(stored().metrics.queued).toBe(0);
    await clock.advance(1);
    expect(stored().metrics.queued).toBe(1);
  });

  test("writes when closed", () => {
    const { spool, pusher, stored, clock } = setUp();
    spool.append("metrics", { t: 1 });
    pusher.push();
    pusher.close();
    expect(stored().metrics.queued).toBe(1);
    expect(clock.pendingTimers).toBe(0);
  });

  test("waits and retries when the control plane accepts nothing", async () => {
    const { spool, pusher, clock } = setUp();
    spool.append("events", { i: 1 });
    let isWilling = false;
    const { connection, pushes } = session((push) => (isWilling ? takeAll(push) : { last: push.first - 1 }));
    pusher.online(connection);
    await settled();
    expect(pushes).toHaveLength(1);
    isWilling = true;
    await clock.advance(5000);
    await settled();
    expect(pushes).toHaveLength(2);
    expect(spool.status().events.queued).toBe(0);
  });
});

test("sends what is appended to an already passed stream in the same run", async () => {
  const { spool, pusher } = setUp();
  const gate: Deferred<void> = deferred();
  const { connection, pushes } = session(async (push) => {
    if (push.stream === "metrics") await gate.promise;
    return takeAll(push);
  });
  spool.append("metrics", { t: 1 });
  pusher.online(connection);
  await settled();
  spool.append("events", { late: true });
  pusher.push();
  gate.resolve(undefined);
  await settled();
  expect(pushes.map(({ stream }) => stream)).toEqual(["metrics", "events"]);
});

test("retries a refusing control plane every five seconds, however much is appended, and never after the close", async () => {
  const { spool, pusher, clock } = setUp();
  const { connection, pushes } = session(({ first }) => ({ last: first - 1 }));
  pusher.online(connection);
  for (let i = 0; i < 20; i += 1) {
    spool.append("events", { i });
    pusher.push();
    await settled();
  }
  const before = pushes.length;
  await clock.advance(20_000);
  await settled();
  expect(pushes.length - before).toBe(4);
  expect(clock.pendingTimers).toBeLessThanOrEqual(2);
  pusher.close();
  expect(clock.pendingTimers).toBe(0);
});

test("does not delay an event behind any number of flow records", async () => {
  const { spool, pusher } = setUp();
  const flows = Array.from({ length: 5000 }, (_, i) => ({ i }));
  spool.appendAll("flows", flows);
  const { connection, pushes } = session((push) => {
    if (pushes.length === 2) spool.append("events", { urgent: true });
    return takeAll(push);
  });
  pusher.online(connection);
  await settled();
  expect(pushes.map(({ stream }) => stream).slice(0, 4)).toEqual(["flows", "flows", "events", "flows"]);
  expect(spool.status()).toMatchObject({ flows: { queued: 0 }, events: { queued: 0 } });
});

test("writes a full spool to disk piece by piece once it has waited a minute", async () => {
  const { spool, pusher, clock, stored } = setUp();
  spool.appendAll(
    "flows",
    Array.from({ length: 2500 }, (_, i) => ({ i })),
  );
  pusher.push();
  await clock.advance(60_000);
  expect(stored().flows.queued).toBe(1000);
  await clock.advance(100);
  expect(stored().flows.queued).toBe(2500);
  expect(clock.pendingTimers).toBe(0);
});
