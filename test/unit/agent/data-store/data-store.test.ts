import { existsSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { newTask, step, type Work } from "../../../../src/agent/data-store/tasks.ts";
import { openStore } from "../../../../src/host/data-store/open-store.ts";
import { DataStoreListing } from "../../../../src/protocol/triggers/data-store.ts";
import { partName } from "../../../../src/protocol/triggers/transfer.ts";
import { FakeClock, settle } from "../../../support/fake-clock.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { download, stage } from "./rig.ts";

test("lists, creates and removes a tree", async () => {
  const { call, root } = stage();
  await call({ action: "MKDIR", filename: "/a/b" });
  writeFileSync(join(root, "a/b/f"), "12345");
  expect(DataStoreListing.parse(await call({ action: "LIST", filename: "a" })).files).toMatchObject([
    { name: "b", files: [{ path: "a/b/f", bytes: 5 }] },
  ]);
  expect(await call({ action: "DELETE", filename: "a" })).toEqual({});
  expect(existsSync(join(root, "a"))).toBe(false);
});

test("a listing larger than one message arrives in parts and complete", async () => {
  const { call, root } = stage();
  const name = (n: number): string => `${"x".repeat(200)}${n}`;
  for (let n = 0; n < 3500; n += 1) writeFileSync(join(root, "images", name(n)), "");
  const listing = await call({ action: "LIST" });
  expect(Buffer.byteLength(JSON.stringify(listing))).toBeGreaterThan(1_000_000);
  expect(JSON.stringify(listing)).not.toContain('"truncated"');
});

test.each<[string, unknown, string]>([
  ["a path that leads out", { action: "LIST", filename: "../x" }, "invalid-body"],
  ["what is not there", { action: "DELETE", filename: "x" }, "not-found"],
  ["the root", { action: "DELETE", filename: "/" }, "forbidden"],
  ["what every store has", { action: "DELETE", filename: "volumes" }, "forbidden"],
  ["what is there already", { action: "MKDIR", filename: "images" }, "conflict"],
  ["a directory as a file", { ...download("images"), location: "/" }, "conflict"],
  ["a file as a directory", { ...download("x"), location: "/file" }, "conflict"],
  ["a link", { action: "S3_DOWNLOAD", uri: "s3://bucket/key", location: "link" }, "forbidden"],
  ["no name", { action: "S3_DOWNLOAD", uri: "s3://bucket/key", location: "/" }, "invalid-body"],
  ["an upload of nothing", { action: "HTTP_UPLOAD", filePath: "x", uri: "http://h.example/" }, "not-found"],
  ["an upload of a directory", { action: "S3_UPLOAD", filePath: "images", bucketDest: "s3://bucket/k" }, "conflict"],
  ["a task of nobody", { action: "CANCEL", id: "6b1f0c1e-8b1c-4f0a-9c39-5b1de24d4b11" }, "not-found"],
  ["an image of nothing", { action: "IMAGE_INFO", filename: "x" }, "not-found"],
])("refuses %s with a code of the platform", async (_, body, code) => {
  const { call, root } = stage();
  writeFileSync(join(root, "file"), "");
  symlinkSync("/etc/passwd", join(root, "link"));
  await expect(call(body)).rejects.toMatchObject({ code });
});

test("passes target, policy and limits to a download; an entry for its bucket precedes one for any bucket", async () => {
  const { begin, puppets, root } = stage({
    settings: {
      allowAddresses: ["10.0.0.0/8"],
      proxyNames: [".example"],
      maxBandwidth: { value: 8, unit: "Mbps" },
      maxRequests: 3,
      s3: [
        { bucket: "*", region: "any", pathStyle: false },
        { bucket: "mine", endpoint: "http://s3.example", pathStyle: true },
      ],
    },
  });
  const id = await begin({ ...download("a"), location: "x/y", hash: "0".repeat(32), algo: "MD5" });
  await begin({ action: "S3_DOWNLOAD", uri: "s3://mine/k/e", location: "b" });
  expect(puppets[0]?.job).toMatchObject({
    kind: "http-download",
    id,
    root,
    parts: ["x", "y", "a"],
    policy: { allow: ["10.0.0.0/8"], proxyNames: [".example"] },
    limits: { maxBytesPerSecond: 500_000, concurrency: 3, reserveRatio: 0, quotaBytes: undefined },
    algo: "MD5",
  });
  expect(puppets[1]?.job).toMatchObject({
    bucket: "mine",
    key: "k/e",
    access: { endpoint: "http://s3.example", pathStyle: true },
  });
});

test.each<[unknown, string]>([
  [{ action: "LIST", filename: "../x" }, "filename"],
  [{ action: "DELETE", filename: "volumes" }, "filename"],
  [{ ...download("a"), location: "/images/../.." }, "filename"],
  [{ action: "S3_DOWNLOAD", uri: "s3://bucket/key", location: "../x" }, "location"],
  [{ action: "HTTP_UPLOAD", filePath: "images", uri: "http://h.example/" }, "filePath"],
])("names the field of the path that it refuses in %j", async (body, field) => {
  await expect(stage().call(body)).rejects.toMatchObject({ details: { field } });
});

test("does not replace what a volume uses", async () => {
  const isInUse = (parts: readonly string[]) => (parts[1] === "v" ? "the volume v is there" : undefined);
  const { call } = stage({ options: { isInUse } });
  await expect(call({ ...download("f"), location: "volumes/v" })).rejects.toMatchObject({
    code: "conflict",
    message: "volumes/v/f is in use: the volume v is there",
  });
});

test("reports the quota and the reserve of the disk before the start", async () => {
  const full = stage({ settings: { maxBytes: 10_000 } });
  writeFileSync(join(full.root, "images/big"), Buffer.alloc(100_000, 1));
  await expect(full.call(download("a"))).rejects.toMatchObject({
    code: "disk-full",
    message: "the data store's quota of 10.0 kB is used up",
  });
  // The largest possible reserve may exist on a machine, so the test sets the free space.
  const { dir } = stage();
  const store = openStore(join(dir, "data-store"));
  const space = () => Promise.resolve({ freeBytes: 99, totalBytes: 1000 });
  const reserved = stage({ settings: { reservePercent: 10 }, options: { store: { ...store, space } } });
  await expect(reserved.call(download("a"))).rejects.toMatchObject({ code: "disk-full" });
  expect(reserved.puppets).toEqual([]);
});

test("a task follows the states that its process reports, and can be cleared", async () => {
  const { begin, puppets, shown, call } = stage();
  const id = await begin(download("a"));
  puppets[0]?.tell({ is: "progress", bytes: 5, total: 10, rate: 5 });
  expect(await shown()).toMatchObject([{ id, status: "Running", details: "50 % · 5 B of 10 B · 5 B/s · 1 s left" }]);
  await expect(call({ action: "CLEAR", id })).rejects.toMatchObject({ code: "conflict" });
  await expect(call(download("a"))).rejects.toMatchObject({ code: "busy", details: { task: id } });
  await expect(call({ action: "DELETE", filename: "/" })).rejects.toMatchObject({ code: "busy" });
  puppets[0]?.tell({ is: "done", bytes: 10, hash: "beef" });
  puppets[0]?.end();
  await settle();
  const [over] = await shown();
  expect(over).toMatchObject({ status: "Completed", details: "10 B · beef" });
  expect(over?.eTime).toBeGreaterThanOrEqual(over?.sTime ?? Infinity);
  expect(await call({ action: "CLEAR", id })).toEqual({});
  expect(await shown()).toEqual([]);
});

test("a failed or cancelled task leaves no partial file", async () => {
  const { begin, puppets, shown, call, root } = stage();
  for (const name of ["a", "b"]) {
    const id = await begin(download(name));
    writeFileSync(join(root, partName(id)), "some");
  }
  puppets[0]?.tell({ is: "failed", code: "refused", message: "the server answered 404" });
  puppets[0]?.end();
  const cancelled = call({ action: "CANCEL", id: puppets[1]?.job.id });
  expect(puppets[1]?.orders).toEqual(["cancel"]);
  // The error of a cancelled process is not a failure of the transfer.
  puppets[1]?.tell({ is: "failed", code: "cancelled", message: "cancelled" });
  puppets[1]?.end();
  await cancelled;
  expect((await shown()).map(({ status, details }) => [status, details])).toEqual([
    ["Failed", "the server answered 404"],
    ["Cancelled", "cancelled"],
  ]);
  await waitFor("the parts are removed", () => readdirSync(root).join() === "images,volumes");
});

test("limits the queue", async () => {
  const { call, puppets } = stage();
  for (let n = 0; n < 34; n += 1) await call(download(`f${n}`));
  await waitFor("two run", () => puppets.length === 2);
  await expect(call(download("one-more"))).rejects.toMatchObject({ code: "busy" });
});

test("retries a process that exits without a report, and serves others meanwhile", async () => {
  const clock = new FakeClock();
  const { call, puppets, shown } = stage({ clock, settings: { maxTransfers: 1 } });
  await call(download("a"));
  await call(download("b"));
  await waitFor("the first runs", () => puppets.length === 1);
  puppets[0]?.tell({ is: "resumable", resume: { bytes: 3, etag: '"x"' } });
  puppets[0]?.end("SIGKILL");
  await waitFor("the second runs", () => puppets.length === 2);
  expect((await shown())[0]?.details).toBe("waiting to be tried again: its process ended once");
  puppets[1]?.tell({ is: "done", bytes: 1 });
  puppets[1]?.end();
  await clock.advance(999);
  expect(puppets.length).toBe(2);
  await clock.advance(1);
  await waitFor("the first runs again", () => puppets.length === 3);
  expect(puppets[2]?.job).toMatchObject({ parts: ["a"], resume: { bytes: 3, etag: '"x"' } });
});

test("the next agent resumes running tasks where they were, keeps waiting ones in order, and deletes partial files without a task", async () => {
  const first = stage({ settings: { maxTransfers: 1 } });
  const id = await first.begin(download("a"));
  await first.call(download("b"));
  first.puppets[0]?.tell({ is: "resumable", resume: { bytes: 4, etag: '"x"' } });
  first.puppets[0]?.tell({ is: "resumable", resume: { bytes: 8, etag: '"x"' } });
  writeFileSync(join(first.root, partName(id)), "12345678");
  writeFileSync(join(first.root, partName("6b1f0c1e-8b1c-4f0a-9c39-5b1de24d4b11")), "lost");
  await first.close();
  expect(first.puppets[0]?.orders).toEqual(["leave"]);
  const second = stage({ dir: first.dir });
  second.dataStore.reopen();
  await waitFor("both run", () => second.puppets.length === 2);
  // There is room for both, and one first verifies its partial file.
  const began = new Map(second.puppets.map(({ job }) => [job.parts.join("/"), job.resume?.bytes]));
  expect(began).toEqual(
    new Map([
      ["a", 8],
      ["b", undefined],
    ]),
  );
  await waitFor("the other part is swept", () => readdirSync(second.root).length === 3);
  expect(readdirSync(second.root)).toContain(partName(id));
});

test("an interrupted upload by HTTP has failed, and the next agent reports it", async () => {
  const first = stage();
  writeFileSync(join(first.root, "f"), "x");
  await first.begin({ action: "HTTP_UPLOAD", filePath: "f", uri: "http://h.example/up" });
  await first.close();
  const second = stage({ dir: first.dir });
  second.dataStore.reopen();
  expect(await second.shown()).toMatchObject([
    { status: "Failed", details: "interrupted: the agent ended, and an upload by HTTP cannot be resumed" },
  ]);
  expect(second.puppets).toEqual([]);
});

test("a long deletion is a task that survives its caller, and can be cancelled", async () => {
  const clock = new FakeClock();
  const dir = tempDir();
  const plain = openStore(join(dir, "data-store"));
  let removed: (entries: number) => void = () => undefined;
  const remove = (_path: string, signal: AbortSignal, onRemoved: (entries: number) => void) => {
    removed = onRemoved;
    return new Promise<void>((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
    });
  };
  const { call, shown } = stage({ dir, clock, options: { store: { ...plain, remove } } });
  const caller = new AbortController();
  const requested = call({ action: "DELETE", filename: "old" }, caller.signal);
  const outcome = requested.catch((error: unknown) => error);
  await clock.advance(1999);
  expect(await shown()).toEqual([]);
  await clock.advance(1);
  removed(250);
  const [task] = await shown();
  expect(task).toMatchObject({ name: "Delete", status: "Running", path: "old", details: "250 entries removed" });
  caller.abort(new Error("the deadline passed"));
  expect(await outcome).toMatchObject({ message: "the deadline passed" });
  expect((await shown())[0]?.status).toBe("Running");
  expect(await call({ action: "CANCEL", id: task?.id })).toEqual({});
  expect((await shown())[0]?.status).toBe("Cancelled");
});

test("inspects an image through an open descriptor", async () => {
  const { call, root } = stage();
  writeFileSync(join(root, "a"), "four");
  const seen: number[] = [];
  const imageInfo = (fd: number) => {
    seen.push(statSync(`/proc/self/fd/${fd}`).size);
    return Promise.resolve({ bytes: 4, format: "raw", virtualBytes: 4 });
  };
  expect(await call({ action: "IMAGE_INFO", filename: "a" })).toEqual({ bytes: 1 });
  const asking = stage({ options: { imageInfo } });
  writeFileSync(join(asking.root, "a"), "four");
  expect(await asking.call({ action: "IMAGE_INFO", filename: "a" })).toMatchObject({ format: "raw" });
  expect(seen).toEqual([4]);
});

test("the next agent lists the tasks of an earlier one", async () => {
  const first = stage();
  const work: Work = { action: "DELETE", filename: "old" };
  const task = newTask("6b1f0c1e-8b1c-4f0a-9c39-5b1de24d4b11", work, Date.now());
  first.tasks.put(step(task, { is: "started" }, Date.now()));
  await first.close();
  const second = stage({ dir: first.dir });
  second.dataStore.reopen();
  expect(await second.shown()).toMatchObject([{ status: "Failed", name: "Delete" }]);
});

const WHOLE = { bytes: 5, whole: { mark: "1 5 1", hash: "beef" } };

test("records completion before the rename and cannot be cancelled then; the next agent does not verify again", async () => {
  const first = stage();
  const id = await first.begin(download("a"));
  first.puppets[0]?.tell({ is: "whole", resume: WHOLE });
  expect(first.puppets[0]?.orders).toEqual(["publish"]);
  expect(first.tasks.find(id)?.resume).toEqual(WHOLE);
  const cancelling = first.call({ action: "CANCEL", id }).catch((error: unknown) => error);
  await first.close();
  expect(await cancelling).toMatchObject({ code: "busy" });
  const second = stage({ dir: first.dir, settings: { maxBytes: 4 }, options: { isInUse: () => "a machine" } });
  writeFileSync(join(second.root, "a"), "12345");
  second.dataStore.reopen();
  await waitFor("it is gone on with", () => second.puppets.length === 1);
  expect(second.puppets[0]?.job.resume).toEqual(WHOLE);
});

test("reports a download completed during its cancellation as completed", async () => {
  const { begin, puppets, call } = stage();
  const id = await begin(download("a"));
  puppets[0]?.tell({ is: "whole", resume: WHOLE });
  const cancelling = call({ action: "CANCEL", id });
  puppets[0]?.tell({ is: "done", bytes: 5 });
  puppets[0]?.end();
  await expect(cancelling).rejects.toMatchObject({ code: "conflict" });
});

test("does not replace what came into use during the download, nor exceed the quota shared by all", async () => {
  const uses = new Set<string>();
  const isInUse = ([name = ""]: readonly string[]) => (uses.has(name) ? "a machine" : undefined);
  const { begin, puppets, shown } = stage({ settings: { maxBytes: 1_000_000 }, options: { isInUse } });
  for (const name of ["a", "b"]) await begin(download(name));
  for (const puppet of puppets) puppet.tell({ is: "progress", bytes: 10, total: 600_000, rate: 1 });
  uses.add("a");
  puppets[0]?.tell({ is: "whole", resume: WHOLE });
  expect(puppets.map(({ orders }) => orders)).toEqual([["cancel"], ["cancel"]]);
  expect((await shown()).map(({ details }) => details)).toEqual([
    "a is in use: a machine",
    expect.stringContaining("quota of 1.0 MB"),
  ]);
});

test("downloads nothing into what is being deleted", async () => {
  const { call } = stage();
  await call({ action: "MKDIR", filename: "d/e" });
  const requested = call({ action: "DELETE", filename: "d" });
  await expect(call({ ...download("a"), location: "d/e" })).rejects.toMatchObject({ code: "busy" });
  await requested;
});
