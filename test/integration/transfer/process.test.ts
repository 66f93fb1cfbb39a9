import { createHash, randomUUID } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { partName, type TransferEvent } from "../../../src/protocol/triggers/transfer.ts";
import { tempDir } from "../../support/temp-dir.ts";
import {
  downloadJob,
  filesIn,
  rawServer,
  reply,
  startTransfer,
  uploadJob,
  type Asked,
} from "../../support/data-store/transfer-rig.ts";
import { waitFor } from "../../support/wait-for.ts";

const BODY = Buffer.from(Array.from({ length: 3_000_000 }, (_, at) => (at * 13 + (at >> 10)) & 255));
const HALF = BODY.length / 2;
const SHA256 = createHash("sha256").update(BODY).digest("hex");

/** Serves the first half and then stops; a request from there on gets the rest. */
function halfAtATime(requested: Asked): void {
  const from = Number(/bytes=(\d+)-/.exec(requested.headers["range"] ?? "")?.[1] ?? 0);
  if (from === 0) {
    requested.socket.write(`HTTP/1.1 200 OK\r\netag: "v1"\r\ncontent-length: ${BODY.length}\r\n\r\n`);
    requested.socket.write(BODY.subarray(0, HALF));
    return;
  }
  const range = `bytes ${from}-${BODY.length - 1}/${BODY.length}`;
  const headers = { etag: '"v1"', "content-range": range, "content-length": BODY.length - from };
  reply(requested, "206 Partial Content", headers, BODY.subarray(from));
}

const resumable = (event: TransferEvent): boolean => event.is === "resumable" && event.resume.bytes === HALF;

test("continues a killed transfer, and its hash is that of the whole", async () => {
  const root = tempDir();
  const server = await rawServer(halfAtATime);
  const job = downloadJob(root, server.url, { hash: SHA256 });
  const killed = startTransfer(job);
  const event = await killed.until("half of it to be on the disk", resumable);
  expect(event).toEqual({ is: "resumable", resume: { bytes: HALF, etag: '"v1"', total: BODY.length } });
  killed.child.kill("SIGKILL");
  await killed.exit;
  expect(filesIn(root)).toEqual([partName(job.id)]);
  // Data after the last sync may be anything.
  writeFileSync(join(root, "images", partName(job.id)), "garbage", { flag: "a" });

  const resume = event.is === "resumable" ? event.resume : undefined;
  const resumed = startTransfer({ ...job, resume });
  expect(await resumed.exit).toBe(0);
  expect(resumed.events.at(-1)).toEqual({ is: "done", bytes: BODY.length, hash: SHA256 });
  expect(server.requested[1]?.headers).toMatchObject({ range: `bytes=${HALF}-`, "if-range": '"v1"' });
  expect(readFileSync(join(root, "images/file.img")).equals(BODY)).toBe(true);
  expect(filesIn(root)).toEqual(["file.img"]);
});

test("publishes a complete file on request, and fetches it once, whenever its process is killed", async () => {
  const root = tempDir();
  const server = await rawServer((requested) => reply(requested, "200 OK", { "content-length": BODY.length }, BODY));
  const job = downloadJob(root, server.url, { hash: SHA256 });
  const first = startTransfer(job, undefined, {}, false);
  const event = await first.until("it is whole", ({ is }) => is === "whole");
  expect(filesIn(root)).toEqual([partName(job.id)]);
  first.child.kill("SIGKILL");
  await first.exit;
  const again = { ...job, resume: event.is === "whole" ? event.resume : undefined };
  // The second publishes the first one's download, and the third finds it published.
  for (const kinds of [["whole", "done"], ["done"]]) {
    const next = startTransfer(again);
    expect(await next.exit).toBe(0);
    expect(next.events.map(({ is }) => is)).toEqual(kinds);
    expect(next.events.at(-1)).toEqual({ is: "done", bytes: BODY.length, hash: SHA256 });
    expect(filesIn(root)).toEqual(["file.img"]);
  }
  expect(server.requested.length).toBe(1);
});

test("fetches a complete file again that was changed since", async () => {
  const root = tempDir();
  const server = await rawServer((requested) => reply(requested, "200 OK", { "content-length": BODY.length }, BODY));
  const job = downloadJob(root, server.url, { hash: SHA256 });
  mkdirSync(join(root, "images"));
  writeFileSync(join(root, "images", partName(job.id)), Buffer.alloc(BODY.length));
  const resume = { bytes: BODY.length, etag: '"v1"', whole: { mark: "1 3000000 1", hash: SHA256 } };
  const { exit, events } = startTransfer({ ...job, resume });
  await exit;
  expect(events.at(-1)).toEqual({ is: "done", bytes: BODY.length, hash: SHA256 });
  expect(server.requested[0]?.headers).not.toHaveProperty("range");
});

test("the end of its input ends a transfer, which leaves its partial file", async () => {
  const root = tempDir();
  const server = await rawServer(halfAtATime);
  const job = downloadJob(root, server.url);
  const transfer = startTransfer(job);
  await waitFor("half of it to be written", () => readFileSync(join(root, "images", partName(job.id))).length === HALF);
  transfer.leave();
  expect(await transfer.exit).toBe(0);
  expect(transfer.events.filter(({ is }) => is === "failed" || is === "done")).toEqual([]);
  expect(filesIn(root)).toEqual([partName(job.id)]);
});

test("a cancel ends a transfer, which leaves nothing", async () => {
  const root = tempDir();
  const server = await rawServer(halfAtATime);
  const transfer = startTransfer(downloadJob(root, server.url));
  await waitFor("the server to be asked", () => server.requested.length > 0);
  transfer.say("");
  transfer.say("nonsense");
  transfer.say('{"is":"cancel"}');
  expect(await transfer.exit).toBe(0);
  expect(transfer.events.at(-1)).toMatchObject({ is: "failed", code: "cancelled" });
  expect(filesIn(root)).toEqual([]);
});

test("reports progress while bytes move", async () => {
  const server = await rawServer(halfAtATime);
  const transfer = startTransfer(downloadJob(tempDir(), server.url));
  const event = await transfer.until("progress", ({ is }) => is === "progress");
  expect(event).toMatchObject({ bytes: HALF, total: BODY.length });
});

test("starts a partial file without a validator again", async () => {
  const root = tempDir();
  const job = downloadJob(root, "", { algo: "SHA-256" });
  mkdirSync(join(root, "images"));
  writeFileSync(join(root, "images", partName(job.id)), "old");
  const server = await rawServer((requested) => reply(requested, "200 OK", { "content-length": BODY.length }, BODY));
  const transfer = startTransfer({ ...job, uri: server.url, resume: { bytes: 3 } });
  await transfer.exit;
  expect(server.requested[0]?.headers).not.toHaveProperty("range");
  expect(transfer.events.at(-1)).toMatchObject({ is: "done", hash: SHA256 });
});

test("an upload runs in the process, too", async () => {
  const root = tempDir();
  writeFileSync(join(root, "disk.img"), BODY);
  const server = await rawServer((requested) => {
    requested.socket.write("HTTP/1.1 100 Continue\r\n\r\n");
    requested.socket.on("data", () => {
      if (requested.body.length === BODY.length) reply(requested, "200 OK", { "content-length": 0 });
    });
  });
  const transfer = startTransfer(uploadJob(root, server.url, "disk.img"));
  expect(await transfer.exit).toBe(0);
  expect(transfer.events.at(-1)).toEqual({ is: "done", bytes: BODY.length });
  expect(server.requested[0]?.body.equals(BODY)).toBe(true);
});

test.each([
  ["no JSON", "hello", /the job's/],
  ["a job of no kind", JSON.stringify({ kind: "ftp-download" }), /kind/],
  ["an id that is none", JSON.stringify({ ...downloadJob("/", "http://127.0.0.1/"), id: "x" }), /id/],
])("refuses %s", async (_what, line, message) => {
  const transfer = startTransfer(line);
  expect(await transfer.exit).toBe(0);
  expect(transfer.events).toEqual([
    { is: "failed", code: "bad-job", message: expect.stringMatching(message) as string },
  ]);
});

test("a process without a job ends when its input does", async () => {
  const transfer = startTransfer("");
  transfer.leave();
  expect(await transfer.exit).toBe(0);
  expect(transfer.events).toEqual([]);
});

test("no part of the address is in the list of processes, and its query not in reports", async () => {
  const server = await rawServer((requested) => reply(requested, "403 Forbidden", {}));
  const job = downloadJob(tempDir(), server.url, { id: randomUUID() });
  const transfer = startTransfer(job);
  expect(transfer.child.spawnargs.join(" ")).not.toContain(String(server.port));
  await transfer.exit;
  expect(JSON.stringify(transfer.events)).not.toContain("secret");
});
