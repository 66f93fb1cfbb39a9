import { expect, test } from "vitest";
import type { Connection } from "../../../../src/agent/session/attempt.ts";
import { Beating } from "../../../../src/agent/telemetry/beating.ts";
import { buildHeartbeat } from "../../../../src/agent/telemetry/heartbeat.ts";
import { queueOf, Spool, spoolMigration } from "../../../../src/agent/telemetry/spool.ts";
import type { Heartbeat } from "../../../../src/protocol/methods.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { memoryJournal } from "../triggers/rig.ts";

test("heartbeats are left out while the connection is congested, and the next one counts them", async () => {
  const clock = new FakeClock();
  const { sql } = memoryJournal();
  sql.exec(spoolMigration);
  const spool = new Spool(sql, () => undefined);
  const sent: Heartbeat[] = [];
  let isCongested = false;
  const connection = {
    heartbeatMs: 30_000,
    isCongested: () => isCongested,
    rpc: { notify: (_method: string, heartbeat: Heartbeat) => void sent.push(heartbeat) },
  } as unknown as Connection;
  const disk = { totalBytes: 1, freeBytes: 1, usedBytes: 0 };
  const memory = { totalBytes: 1, availableBytes: 1 };
  const beating = new Beating({
    clock,
    random: () => 0.5,
    heartbeat: (seq, _connection, leftOut) =>
      buildHeartbeat(
        { uptimeSeconds: 1, load: 0, memory, disk },
        { seq, at: clock.now(), sessionRttMs: 1, overlay: "DOWN", queue: queueOf(spool.status(), leftOut) },
      ),
  });
  beating.online(connection);
  await clock.advance(1000);
  isCongested = true;
  await clock.advance(60_000);
  isCongested = false;
  await clock.advance(30_000);
  expect(sent.map(({ seq, queue }) => [seq, queue])).toEqual([
    [1, { records: 0, dropped: 0 }],
    [2, { records: 0, dropped: 2 }],
  ]);
  beating.offline();
  await clock.advance(600_000);
  expect(sent).toHaveLength(2);
});
