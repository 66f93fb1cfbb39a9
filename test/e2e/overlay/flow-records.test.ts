import { join } from "node:path";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import type { Connection } from "../../../src/agent/session/attempt.ts";
import { flowRecorder } from "../../../src/agent/telemetry/flow-records.ts";
import { Pusher } from "../../../src/agent/telemetry/pusher.ts";
import { Spool, spoolMigration } from "../../../src/agent/telemetry/spool.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { openDatabase } from "../../../src/host/files/database.ts";
import { peekClaims } from "../../../src/protocol/channel/jws.ts";
import type { OverlayFlow } from "../../../src/protocol/overlay/overlay.ts";
import { makeIdentity, register, TestNode, type TestSession } from "../../support/control-plane/node-client.ts";
import { freePort, startController, type ControllerProgram } from "../../support/machine/programs.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

/** The node's telemetry on its database; unflushed records are lost with it, as in a kill. */
function openTelemetry(path: string) {
  const clock = systemClock();
  const { sql } = openDatabase(path, { migrations: [spoolMigration], exclusive: false });
  const spool = new Spool(sql, (error) => {
    throw error;
  });
  const pusher = new Pusher({ clock, log: pino({ level: "silent" }), spool });
  const recorder = flowRecorder({
    names: { own: () => "me", nameOf: (uid) => uid },
    clock,
    spool,
    onReady: () => pusher.push(),
  });
  const close = (): void => {
    recorder.close();
    pusher.close();
  };
  onTestFinished(close);
  return { spool, pusher, recorder, close };
}

/** A session for the pusher. With `answers`, that number of acknowledgements arrives, and then none: sent data still arrives. */
function connectionOf({ peer }: TestSession, answers = Infinity) {
  const over = new AbortController();
  const pushed: number[] = [];
  let left = answers;
  const request: typeof peer.request = async (method, params, signal) => {
    const result = await peer.request(method, params, signal);
    pushed.push(1);
    left -= 1;
    if (left < 0) throw new Error("the line went dead before the answer came");
    return result;
  };
  const connection = { rpc: { request }, signal: over.signal, isCongested: () => false } as unknown as Connection;
  return { connection, pushes: () => pushed.length, end: () => over.abort(new Error("over")) };
}

const startedAt = Math.floor(Date.now() / 60_000) * 60_000 - 600_000;

/** A flow with a unique number of bytes. */
function flow(id: number): OverlayFlow {
  return {
    listener: "tcp 127.0.0.1 8080",
    connector: id % 2 === 0 ? "web" : "ssh",
    service: "local",
    protocol: "tcp",
    sourceIp: `192.0.2.${id % 250}`,
    sourcePort: 1024 + (id % 60_000),
    destIp: "127.0.0.1",
    destPort: 80,
    sourceBytes: id,
    destBytes: 0,
    startedAt,
    endedAt: startedAt + (id % 60) * 1000,
    ...(id % 10 === 0 ? { reason: "source-not-permitted" as const } : {}),
  };
}
const flows = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => flow(from + i));

interface Found {
  readonly nodeId: string;
  readonly sourceBytes: number;
}

async function search(controller: ControllerProgram, query: string): Promise<readonly Found[]> {
  const { status, body } = await controller.call("GET", `/v2/flow?limit=10000&sort=endTime:asc&${query}`);
  if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`);
  return body as Found[];
}

test("every flow is found once, whatever was killed, cut or not acknowledged on the path", async () => {
  const dir = tempDir();
  const port = await freePort();
  const first = await startController(dir, port);
  const identity = await makeIdentity();
  const license = await first.license("edge");
  expect((await register(first.url, license, identity)).status).toBe(200);
  const { jti: uid } = peekClaims("holdfast-license+jwt", license);
  const node = new TestNode(first.url, uid, identity);
  const path = join(dir, "state.db");

  // Offline: on disk after a flush, and sent by the next run after a kill.
  const killed = openTelemetry(path);
  killed.recorder.take(flows(0, 1200));
  killed.spool.flush();

  // The connection dies with a batch stored and its acknowledgement lost.
  const node1 = openTelemetry(path);
  node1.recorder.take(flows(1200, 1500));
  const dead = connectionOf(await node.connect(), 1);
  node1.pusher.online(dead.connection);
  await waitFor("two batches are sent", () => dead.pushes() === 2);
  node1.pusher.offline();
  dead.end();
  expect((await search(first, "")).length).toBe(1000);
  expect(node1.spool.status().flows.queued).toBe(1000);

  // The control plane is killed, the agent stops in order, and both return.
  await first.end("SIGKILL");
  node1.recorder.take(flows(1500, 2000));
  node1.close();
  const second = await startController(dir, port);
  const node2 = openTelemetry(path);
  const alive = connectionOf(await node.connect());
  node2.pusher.online(alive.connection);
  await waitFor("everything is acknowledged", () => node2.spool.status().flows.queued === 0);
  node2.recorder.take(flows(2000, 2500));
  await waitFor("the rest is acknowledged", () => node2.spool.status().flows.queued === 0);

  const found = await search(second, "");
  expect(new Set(found.map(({ nodeId }) => nodeId))).toEqual(new Set([uid]));
  expect(found.map(({ sourceBytes }) => sourceBytes).sort((a, b) => a - b)).toEqual(
    Array.from({ length: 2500 }, (_, id) => id),
  );
  expect(node2.spool.status().flows).toEqual({ queued: 0, dropped: 0 });
  expect(await search(second, "defunct=true&connector=web")).toHaveLength(250);
  expect(await search(second, "source=192.0.2.7&reasons=source-not-permitted")).toEqual([]);

  const { body } = await second.call("GET", "/stats/realtime/usage?relative_start=-1 hour&intervalInMinutes=1");
  const busy = (body as { bytes: number; count: number; t: number }[]).filter(({ count }) => count > 0);
  expect(busy).toEqual([{ t: startedAt / 1000, bytes: (2499 * 2500) / 2, count: 2500 }]);
});
