import { chmodSync, chownSync, existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { keepDirectory, keepSockets } from "../../../../src/host/net/kept-sockets.ts";
import { listenAgain, listenOnSocket, makeRunDirectory, probeSocket } from "../../../../src/host/net/unix-socket.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

/** A poll, and the repair after it. */
const ROUND_MS = 6000;

async function stage(isWanted = () => true) {
  const dir = tempDir();
  const runDir = join(dir, "run");
  const path = join(runDir, "a.sock");
  const clock = new FakeClock();
  const server = createServer((socket) => void socket.pipe(socket));
  await makeRunDirectory(runDir);
  await listenOnSocket(server, path, 0o600);
  const reported: string[] = [];
  const kept = keepSockets({
    clock,
    runDir,
    names: ["a.sock"],
    isWanted,
    async serveAgain(gone) {
      reported.push(`serve ${[...gone].join()}`);
      await listenAgain(server, path, 0o600);
    },
    onFault: ({ message }) => reported.push(message),
    onServed: () => reported.push("served"),
  });
  onTestFinished(async () => {
    await kept.close();
    server.close();
  });
  const round = async (): Promise<void> => {
    await clock.advance(ROUND_MS);
    await waitFor("the next look is to come", () => clock.pendingTimers === 1);
  };
  return { dir, runDir, path, clock, kept, reported, round };
}

test("keeps sockets that are in their place", async () => {
  const { reported, round } = await stage();
  await round();
  await round();
  expect(reported).toEqual([]);
});

test.each<[string, (place: { runDir: string; path: string; dir: string }) => void]>([
  ["that was removed", ({ path }) => rmSync(path)],
  ["whose directory was removed", ({ runDir }) => rmSync(runDir, { recursive: true })],
  ["whose directory was moved away", ({ runDir, dir }) => renameSync(runDir, join(dir, "elsewhere"))],
])("serves a socket %s again, and ends no connection", async (_what, harm) => {
  const place = await stage();
  const client = connect(place.path);
  await once(client, "connect");
  harm(place);
  await place.round();
  expect(place.reported).toEqual(["serve a.sock", "served"]);
  expect(await probeSocket(place.path)).toBe("live");
  client.write("still here");
  const [data] = (await once(client, "data")) as [Buffer];
  expect(data.toString()).toBe("still here");
  client.destroy();
  await place.round();
  expect(place.reported).toHaveLength(2);
});

test("serves nothing in a world-writable directory, reports it once, and again once it is safe", async () => {
  const { runDir, path, reported, round } = await stage();
  rmSync(runDir, { recursive: true });
  mkdirSync(runDir);
  chmodSync(runDir, 0o777);
  await round();
  await round();
  expect(reported).toEqual([expect.stringContaining("is writable by every user")]);
  expect(existsSync(path)).toBe(false);
  chmodSync(runDir, 0o755);
  await round();
  expect(reported.slice(1)).toEqual(["serve a.sock", "served"]);
});

test.skipIf(process.getuid?.() !== 0)("serves nothing in another user's directory (needs root)", async () => {
  const { runDir, path, reported, round } = await stage();
  rmSync(runDir, { recursive: true });
  mkdirSync(runDir);
  chownSync(runDir, 65534, 65534);
  await round();
  expect(reported).toEqual([expect.stringContaining("belongs to another user")]);
  expect(existsSync(path)).toBe(false);
});

test("leaves a place to a socket of another process", async () => {
  const { path, reported, round } = await stage();
  rmSync(path);
  const other = createServer();
  onTestFinished(() => void other.close());
  await listenOnSocket(other, path, 0o600);
  await round();
  expect(reported).toEqual(["serve a.sock", `another process answers on ${path}`]);
  expect(existsSync(path)).toBe(true);
});

test("creates nothing in a place under removal, or that is not wanted any more", async () => {
  const { dir, runDir, clock, reported, round } = await stage();
  rmSync(runDir, { recursive: true });
  await clock.advance(ROUND_MS - 1);
  expect(existsSync(runDir)).toBe(false);
  rmSync(dir, { recursive: true });
  await round();
  expect(existsSync(dir)).toBe(false);
  expect(reported).toEqual([expect.stringContaining("no such file")]);

  let isWanted = true;
  const other = await stage(() => isWanted);
  rmSync(other.runDir, { recursive: true });
  isWanted = false;
  await other.clock.advance(ROUND_MS);
  expect([other.clock.pendingTimers, existsSync(other.runDir)]).toEqual([0, false]);
});

test("a permitted process creates a directory, and a failure is reported once", async () => {
  const path = join(tempDir(), "run");
  const clock = new FakeClock();
  const reported: string[] = [];
  let isMade = false;
  const make = async (): Promise<void> => {
    await Promise.resolve();
    if (!isMade) throw new Error("not yet");
    mkdirSync(path);
  };
  const end = keepDirectory(clock, path, make, ({ message }) => reported.push(message));
  await clock.advance(ROUND_MS);
  await clock.advance(ROUND_MS);
  expect(reported).toEqual(["not yet"]);
  isMade = true;
  await clock.advance(ROUND_MS);
  expect(existsSync(path)).toBe(true);
  end();
  expect(clock.pendingTimers).toBe(0);
});
