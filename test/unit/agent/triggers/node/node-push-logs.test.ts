import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import {
  bundlesToRemove,
  nodePushLogs,
  type BundleStore,
} from "../../../../../src/agent/triggers/node/node-push-logs.ts";
import { HostError, InputError } from "../../../../../src/errors.ts";
import type { MakeBundle } from "../../../../../src/host/process/bundle-process.ts";
import { memoryJournal, rig } from "../rig.ts";

const NAME = "holdfast-edge-20260301T120000Z.tar.gz";
const CONTENT = Buffer.from("an archive");
const missing = [{ name: "system/dmesg.txt", reason: "not permitted" }];

/** A data store in memory, and the maker of bundles. */
function stage(options: { readonly refusal?: Error; readonly full?: Error } = {}) {
  const files = new Map<string, string>();
  const requested: number[] = [];
  const discarded: string[] = [];
  const store: BundleStore = {
    create(path) {
      if (options.refusal !== undefined) return Promise.reject(options.refusal);
      let text = "";
      return Promise.resolve({
        append(content) {
          if (options.full !== undefined) throw options.full;
          text += Buffer.from(content).toString();
        },
        publish() {
          files.set(path, text);
          return Promise.resolve(text.length);
        },
        discard: () => void discarded.push(path),
      });
    },
    handle(request) {
      if (request.action === "DELETE") {
        files.delete(request.filename);
        return Promise.resolve({});
      }
      const names = [...files.keys()].filter((path) => path.startsWith("holdfast-bundles/"));
      if (names.length === 0) return Promise.reject(new InputError("not-found", "there is no such directory"));
      const entry = (path: string) => ({ name: path.split("/")[1], path, type: "file", size: "1 B", bytes: 1 });
      return Promise.resolve({ files: names.map(entry) });
    },
  };
  const make: MakeBundle = (maxBytes) => {
    requested.push(maxBytes);
    const report = { schema: 1 as const, path: "-", name: NAME, bytes: CONTENT.length, parts: [], missing };
    return Promise.resolve({ ...report, archive: CONTENT.toString("base64") });
  };
  return { files, requested, discarded, trigger: nodePushLogs(make, store) };
}

const reported = {
  name: NAME,
  bytes: CONTENT.length,
  sha256: createHash("sha256").update(CONTENT).digest("hex"),
  missing,
};

test("writes a bundle into the data store and keeps the newest three", async () => {
  const { files, trigger, requested } = stage();
  for (const day of ["01", "02", "03"]) files.set(`holdfast-bundles/holdfast-x-202601${day}T000000Z.tar.gz`, day);
  files.set("holdfast-bundles/notes.txt", "of somebody");
  const file = `holdfast-bundles/${NAME}`;
  expect(await rig([trigger]).run("node-push-logs")).toEqual({ body: { ...reported, file } });
  expect(requested).toEqual([10_000_000]);
  expect(Object.fromEntries(files)).toEqual({
    "holdfast-bundles/holdfast-x-20260102T000000Z.tar.gz": "02",
    "holdfast-bundles/holdfast-x-20260103T000000Z.tar.gz": "03",
    "holdfast-bundles/notes.txt": "of somebody",
    [file]: CONTENT.toString(),
  });
});

test("writes to a given path, and removes nothing for it", async () => {
  const { files, trigger } = stage();
  for (const day of ["01", "02", "03"]) files.set(`holdfast-bundles/holdfast-x-202601${day}T000000Z.tar.gz`, day);
  const body = { file: "a/b.tar.gz", maxBytes: 100_000 };
  expect(await rig([trigger]).run("node-push-logs", { body })).toEqual({ body: { ...reported, file: "a/b.tar.gz" } });
  expect(files.size).toBe(4);
});

test("comes in the answer without using the data store, also when nothing can be written and on agents", async () => {
  const { files, trigger } = stage({ refusal: new HostError("disk-full", "there is no room") });
  const { sql, journal } = memoryJournal();
  sql.exec("PRAGMA query_only = 1");
  const body = { inline: true };
  const answer = { body: { ...reported, archive: CONTENT.toString("base64") } };
  const node = { type: "Agent", state: "INACTIVE" } as const;
  expect(await rig([trigger], { journal, node }).run("node-push-logs", { body })).toEqual(answer);
  expect(files.size).toBe(0);
  expect(await rig([trigger], { journal }).run("node-push-logs")).toMatchObject({
    error: { code: "storage-unavailable" },
  });
});

test("is refused before the work if there is no room, and leaves nothing if it does not fit", async () => {
  const none = stage({ refusal: new InputError("not-supported", "an agent has no data store") });
  expect(await rig([none.trigger]).run("node-push-logs")).toMatchObject({ error: { code: "not-supported" } });
  expect(none.requested).toEqual([]);
  const full = stage({ full: new HostError("disk-full", "no room for more") });
  expect(await rig([full.trigger]).run("node-push-logs")).toMatchObject({ error: { code: "disk-full" } });
  expect(full.files.size).toBe(0);
  expect(full.discarded).toContain(`holdfast-bundles/${NAME}`);
});

test.each([{ inline: true, file: "x" }, { maxBytes: 1 }, { maxBytes: 1e9 }, { file: "" }])(
  "refuses %j",
  async (body) => {
    expect(await rig([stage().trigger]).run("node-push-logs", { body })).toMatchObject({
      error: { code: "invalid-body" },
    });
  },
);

test("counts only bundles, and only files", () => {
  const entry = (name: string, type: "file" | "directory" = "file") => ({ name, path: name, type, size: "", bytes: 0 });
  const named = (at: string) => `holdfast-edge-${at}.tar.gz`;
  const files = [
    entry(named("20260101T000000Z")),
    entry(named("20260301T000000Z")),
    entry(named("20260201T000000Z")),
    entry(named("20250101T000000Z"), "directory"),
    entry("holdfast-mine.tar.gz"),
  ];
  expect(bundlesToRemove(files)).toEqual([named("20260101T000000Z")]);
  expect(bundlesToRemove([])).toEqual([]);
});
