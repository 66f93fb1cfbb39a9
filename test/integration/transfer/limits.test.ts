import { expect, test } from "vitest";
import { systemClock } from "../../../src/host/clock.ts";
import { openStore } from "../../../src/host/data-store/open-store.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { tempDir } from "../../support/temp-dir.ts";
import {
  runJob,
  downloadJob,
  filesIn,
  rawServer,
  reply,
  startTransfer,
  type Asked,
  type JobWishes,
} from "../../support/data-store/transfer-rig.ts";
import { someTurns } from "../../support/until-still.ts";
import { waitFor } from "../../support/wait-for.ts";

const PIECE = Buffer.alloc(65_536, "x");

/** Sends chunks until the other end closes. */
function flood({ socket }: Asked): void {
  socket.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
  const send = (): void => {
    while (!socket.destroyed && socket.write(Buffer.concat([Buffer.from("10000\r\n"), PIECE, Buffer.from("\r\n")])));
  };
  socket.on("drain", send);
  send();
}

async function flooded(wishes: JobWishes) {
  const root = tempDir();
  const server = await rawServer(flood);
  return { root, ...(await runJob(downloadJob(root, server.url, wishes))) };
}

test("ends an endless download at the largest size", async () => {
  const { root, end, events } = await flooded({ limits: { maxBytes: 1_000_000 } });
  expect(end).toMatchObject({ is: "failed", code: "too-large" });
  expect(events.some(({ is }) => is === "retry")).toBe(false);
  expect(filesIn(root)).toEqual([]);
});

test("ends an endless download at the rest of the quota", async () => {
  const { end } = await flooded({ limits: { quotaBytes: 500_000 } });
  expect(end).toMatchObject({ is: "failed", code: "quota-exceeded" });
});

test.each([
  ["the largest size", { maxBytes: 99 }, "too-large"],
  ["the quota", { quotaBytes: 99 }, "quota-exceeded"],
  ["the free space", { reserveRatio: 1 }, "disk-full"],
])("refuses a size beyond %s before anything is written", async (_what, limits, code) => {
  const root = tempDir();
  const server = await rawServer(({ socket }) => void socket.write("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"));
  const { end } = await runJob(downloadJob(root, server.url, { limits }));
  expect(end).toMatchObject({ is: "failed", code });
});

test("ends a download when the disk becomes too full during it", async () => {
  const root = tempDir();
  const server = await rawServer(flood);
  let asks = 0;
  const store = openStore(root);
  const space = () => {
    asks += 1;
    return Promise.resolve({ freeBytes: asks > 1 ? 49_000_000 : 51_000_000, totalBytes: 1e9 });
  };
  const job = downloadJob(root, server.url, { limits: { reserveRatio: 0.1 } });
  const { end } = await runJob(job, { store: { ...store, space } });
  store.close();
  expect(end).toMatchObject({
    is: "failed",
    code: "disk-full",
    message: expect.stringContaining("49000000 of 1000000000") as string,
  });
  expect(filesIn(root)).toEqual([]);
});

test("keeps a good part of the reserve free on a small disk, too", async () => {
  const root = tempDir();
  const server = await rawServer(flood);
  const shell = `mount -t tmpfs -o size=16m tmpfs ${root} && ("$@"; true)`;
  const job = downloadJob(root, server.url, { limits: { reserveRatio: 0.5 } });
  const transfer = startTransfer(job, `exec unshare -rm sh -c '${shell}' sh "$@"`);
  await transfer.exit;
  expect(transfer.events.at(-1)).toMatchObject({
    is: "failed",
    code: "disk-full",
    message: expect.not.stringContaining("ENOSPC") as string,
  });
});

test("reports a full disk as such, and removes what was written", async () => {
  const root = tempDir();
  const server = await rawServer(flood);
  const shell = `mount -t tmpfs -o size=2m tmpfs ${root} && "$@"; echo "{\\"left\\":\\"$(find ${root} -type f)\\"}"`;
  const job = downloadJob(root, server.url, { limits: { reserveRatio: 0 } });
  const transfer = startTransfer(job, `exec unshare -rm sh -c '${shell}' sh "$@"`);
  await transfer.exit;
  expect(transfer.events).toEqual([expect.objectContaining({ is: "failed", code: "disk-full" }), { left: "" }]);
});

test("gives up a byte now and then for its rate after a minute", async () => {
  const server = await rawServer(({ socket }) => {
    socket.write("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
    socket.write("x");
    socket.on("data", () => socket.write("x"));
  });
  const clock = new FakeClock();
  const limits = { minBytesPerSecond: 10, stallMs: 60_000 };
  const carried = runJob(downloadJob(tempDir(), server.url, { limits }), { clock });
  await waitFor("the download to be watched", () => clock.pendingTimers >= 3);
  // Nothing for half a minute, then one byte, so that it does not stall.
  await clock.advance(30_000);
  server.requested[0]?.socket.write("x");
  await someTurns();
  await clock.advance(31_000);
  expect((await carried).end).toMatchObject({ is: "failed", code: "too-slow" });
});

test("a byte at a time does not exceed the time of the whole transfer", async () => {
  const server = await rawServer(({ socket }) => {
    socket.setNoDelay(true).write("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n");
    const timer = setInterval(() => socket.write("x"), 5);
    socket.once("close", () => clearInterval(timer));
  });
  const { end } = await runJob(downloadJob(tempDir(), server.url, { limits: { maxMs: 300 } }));
  expect(end).toMatchObject({ is: "failed", code: "too-long" });
});

test.each([
  ["a server that accepts and says nothing", ""],
  ["one that stops in its head", "HTTP/1.1 200 OK\r\nconte"],
  ["one that stops in its body", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab"],
])("gives up %s", async (_what, text) => {
  const server = await rawServer(({ socket }) => void socket.write(text));
  const { end } = await runJob(downloadJob(tempDir(), server.url, { limits: { stallMs: 100 } }));
  expect(end).toMatchObject({ is: "failed", code: "stalled" });
  expect(server.requested.length).toBe(4);
});

test("holds the highest rate", async () => {
  const body = Buffer.alloc(60_000);
  const server = await rawServer((requested) => reply(requested, "200 OK", { "content-length": body.length }, body));
  const clock = systemClock();
  const begun = clock.elapsed();
  const limits = { maxBytesPerSecond: 100_000 };
  const { end } = await runJob(downloadJob(tempDir(), server.url, { limits }));
  expect(end).toEqual({ is: "done", bytes: body.length });
  // All but the last piece must be waited for.
  expect(clock.elapsed() - begun).toBeGreaterThan(400);
});
