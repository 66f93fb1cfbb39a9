import { describe, expect, onTestFinished, test } from "vitest";
import { progressLine } from "../../../../../src/cli/text/data-store-progress.ts";
import { tasksText } from "../../../../../src/cli/verbs/data-store/tasks.ts";
import { dataStoreVerb } from "../../../../../src/cli/verbs/data-store/data-store.ts";
import type { Call } from "../../../../../src/cli/frame/verb.ts";
import { systemClock, type Clock } from "../../../../../src/host/clock.ts";
import type { DataStoreRequest, DataStoreTask } from "../../../../../src/protocol/triggers/data-store.ts";
import type { TriggerLine } from "../../../../../src/protocol/local/answers.ts";
import { someCall } from "../../../../support/fake-call.ts";
import { startLocalAgent, type LocalAgent } from "../../../../support/local-agent.ts";

const ID = "0d1c2b3a-4f5e-4d6c-8b7a-091827364554";
const NOW = Date.UTC(2026, 0, 2, 12, 0, 0);
/** One second takes ten milliseconds. */
const real = systemClock();
const clock: Clock = {
  ...real,
  now: () => NOW,
  elapsed: () => real.elapsed() * 100,
  sleep: (ms, signal) => real.sleep(ms / 100, signal),
};
const running: DataStoreTask = {
  id: ID,
  name: "Transfer HTTP File",
  status: "Running",
  details: "45 %",
  sTime: NOW - 20_000,
  progress: { bytes: 450_000_000, total: 1_000_000_000, rate: 12_300_000, secondsLeft: 45 },
  path: "isos/a.iso",
  peer: "https://files.example/a.iso",
};
const completed: DataStoreTask = { ...running, status: "Completed", details: "1.0 GB", eTime: NOW - 1000 };

/** The real local API of an agent with these data store answers; undefined is a refusal. */
async function stage(answer: (request: DataStoreRequest, at: number) => unknown) {
  const agent: LocalAgent = await startLocalAgent();
  onTestFinished(() => agent[Symbol.asyncDispose]());
  const requested: DataStoreRequest[] = [];
  agent.provider.trigger = async function* (event, body): AsyncGenerator<TriggerLine> {
    expect(event).toBe("datastore-manager");
    const request = body as DataStoreRequest;
    requested.push(request);
    const answered = answer(request, requested.length);
    if (answered === undefined) yield { kind: "error", code: "not-found", message: "there is no \u001b[31mfile" };
    else yield { kind: "result", body: await Promise.resolve(answered) };
  };
  const run = async (words: readonly string[], values: Call["values"] = {}, changes: Partial<Call> = {}) => {
    const { call, shown } = someCall(agent, { positionals: words, values, clock });
    const settings = { ...call.settings, timeoutMs: 10_000, isJson: values["json"] === true };
    const terminal = {
      ...call.terminal,
      size: () => ({ columns: 100, rows: 24 }),
      isInteractive: values["tty"] === true,
    };
    const exit = await dataStoreVerb.run({ ...call, settings, terminal, ...changes }).catch((error: unknown) => error);
    return { exit, text: shown.join("") };
  };
  return { run, requested };
}

describe("refused before any request", () => {
  test.each<[words: readonly string[], values: Call["values"], says: string]>([
    [["copy"], {}, "data-store takes ls, rm, mkdir, get, put or tasks, not 'copy'"],
    [["ls", "a", "b"], {}, "data-store ls takes a path at most"],
    [["rm"], {}, "data-store rm needs one path"],
    [["rm", "a", "b"], {}, "data-store rm needs one path"],
    [["mkdir"], {}, "data-store mkdir needs one path"],
    [["mkdir", "a\0"], {}, "must hold no NUL"],
    [["get"], {}, "data-store get needs a URI"],
    [["put", "a"], {}, "data-store put needs a path and a URI"],
    [["tasks", "stop", ID], {}, "data-store tasks takes cancel or clear"],
    [["tasks", "cancel"], {}, "needs the ID of a task"],
    [["tasks", "cancel", ID], { watch: true }, "does not take --watch"],
    [["ls"], { detach: true }, "data-store ls does not take --detach"],
    [["put", "a", "https://files.example/"], { sha256: "00" }, "data-store put does not take --sha256"],
    [["get", "https://files.example/a"], { multipart: true }, "data-store get does not take --multipart"],
    [["get", "ftp://files.example/a"], {}, "is no http, https or s3 address"],
    [["get", "https://files.example/"], {}, "ends in no name of a file"],
    [["get", "https://me:pw@files.example/a"], {}, "must hold no user name"],
    [["get", "https://files.example/a"], { sha256: "00" }, "--sha256 needs 64 hexadecimal digits"],
    [["get", "https://files.example/a"], { hash: "x".repeat(64) }, "--hash needs 32, 40 or 64"],
    [["get", "https://files.example/a"], { hash: "0", sha256: "0" }, "not both"],
    [["get", "s3://bucket/a"], { hash: "0".repeat(64) }, "no hash is checked"],
    [["get", "s3://b/a", "x"], {}, "must be s3://<bucket>/<key>"],
    [["put", "a", "nowhere"], {}, "is no http, https or s3 address"],
    [["put", "a", "s3://bucket/"], { multipart: true }, "--multipart is for http addresses"],
  ])("%j with %j", async (words, values, says) => {
    const { run, requested } = await stage(() => ({}));
    const { exit } = await run(words, values);
    expect(exit).toMatchObject({ code: "usage" });
    expect(String(exit)).toContain(says);
    expect(requested).toEqual([]);
  });
});

test.each<[words: readonly string[], values: Call["values"], request: object]>([
  [
    ["get", "https://files.example/x/a%20b.iso?sig=1"],
    {},
    { action: "HTTP_DOWNLOAD", uri: "https://files.example/x/a%20b.iso?sig=1", filename: "a b.iso", location: "/" },
  ],
  [
    ["get", "https://files.example/a%2Fb", "isos/"],
    { hash: "0".repeat(40) },
    {
      action: "HTTP_DOWNLOAD",
      uri: "https://files.example/a%2Fb",
      filename: "a%2Fb",
      location: "isos/",
      hash: "0".repeat(40),
      algo: "SHA1",
    },
  ],
  [
    ["get", "http://files.example/", "isos/new.iso"],
    { sha256: "A".repeat(64) },
    {
      action: "HTTP_DOWNLOAD",
      uri: "http://files.example/",
      filename: "new.iso",
      location: "isos/",
      hash: "A".repeat(64),
      algo: "SHA-256",
    },
  ],
  [["get", "s3://bucket/k/a.iso"], {}, { action: "S3_DOWNLOAD", uri: "s3://bucket/k/a.iso", location: "/a.iso" }],
  [["get", "s3://bucket/a", "isos/b"], {}, { action: "S3_DOWNLOAD", uri: "s3://bucket/a", location: "isos/b" }],
  [
    ["put", "isos/a", "https://files.example/up"],
    { multipart: true },
    { action: "HTTP_UPLOAD", filePath: "isos/a", uri: "https://files.example/up", multipart: true },
  ],
  [["put", "isos/a", "s3://bucket"], {}, { action: "S3_UPLOAD", filePath: "isos/a", bucketDest: "s3://bucket/a" }],
  [["put", "isos/a", "s3://bucket/k/"], {}, { action: "S3_UPLOAD", filePath: "isos/a", bucketDest: "s3://bucket/k/a" }],
  [["put", "isos/a", "s3://bucket/b"], {}, { action: "S3_UPLOAD", filePath: "isos/a", bucketDest: "s3://bucket/b" }],
])("%j with %j starts one transfer, and --detach prints its id", async (words, values, request) => {
  const { run, requested } = await stage(() => ({ id: ID }));
  expect(await run(words, { ...values, detach: true })).toEqual({ exit: "ok", text: `${ID}\n` });
  expect(requested).toEqual([request]);
  expect((await run(words, { ...values, detach: true, json: true })).text).toBe(`{"id":"${ID}"}\n`);
});

const files = [
  {
    name: "images",
    path: "images",
    type: "directory",
    size: "9.4 GB",
    bytes: 9_400_000_000,
    files: [
      { name: "win\u001b[31m\n.raw", path: "images/win", type: "file", size: "9.4 GB", bytes: 9_400_000_000 },
      { name: "", path: "", type: "truncated", size: "", bytes: 0 },
    ],
  },
  { name: "a", path: "a", type: "file", size: "7 B", bytes: 7 },
];

test("ls prints a tree with sizes, names without terminal control, and that there is more", async () => {
  const { run, requested } = await stage(() => ({ files }));
  const { exit, text } = await run(["ls", "images"]);
  expect(requested).toEqual([{ action: "LIST", filename: "images" }]);
  expect([exit, text.split("\n")]).toEqual([
    "ok",
    [
      "  SIZE  NAME",
      "9.4 GB  images/",
      "9.4 GB    win .raw",
      "          … there is more",
      "   7 B  a",
      "not everything is shown: name a directory to see what is below it",
      "",
    ],
  ]);
  expect(JSON.parse((await run([], { json: true })).text)).toEqual({ files });
});

test("rm and mkdir print what they did, and a refusal of the node is an error", async () => {
  const { run, requested } = await stage((request) => (request.action === "MKDIR" ? {} : undefined));
  expect(await run(["mkdir", "a\u001b[31mb"])).toEqual({ exit: "ok", text: "ab: made\n" });
  expect((await run(["mkdir", "a"], { json: true })).text).toBe("{}\n");
  expect((await run(["rm", "x"])).exit).toMatchObject({ code: "not-found" });
  expect(requested.at(-1)).toEqual({ action: "DELETE", filename: "x" });
});

test("an empty store and no task are reported in words", async () => {
  const { run } = await stage(({ action }) => (action === "LIST" ? { files: [] } : { tasks: [] }));
  expect((await run([])).text).toBe("it is empty\n");
  expect((await run(["tasks"])).text).toBe("no task\n");
});

test("tasks is a table within the width of the terminal, and a prefix of an id is enough to cancel one", async () => {
  const other = { ...completed, id: ID.replace("0d1c", "0d1d"), peer: "\u001b[31ms3://bucket/a" };
  const { run, requested } = await stage(({ action }) => (action === "TASKS" ? { tasks: [running, other] } : {}));
  const { text } = await run(["tasks"]);
  expect(text.split("\n")).toEqual([
    "ID        TASK                STATUS     FILE        OTHER END            STARTED   ENDED    DETAILS",
    "0d1c2b3a  Transfer HTTP File  Running    isos/a.iso  https://files.exam…  20 s ago           45 %",
    "0d1d2b3a  Transfer HTTP File  Completed  isos/a.iso  s3://bucket/a        20 s ago  1 s ago  1.0 GB",
    "",
  ]);
  const whole = tasksText({ tasks: [running] }, NOW, (_, cell) => cell, Infinity);
  expect(whole).toContain("  https://files.example/a.iso  20 s ago  45 %\n");
  expect((await run(["tasks", "cancel", "0D1C"])).text).toBe(`${ID}: is being cancelled\n`);
  expect(requested.at(-1)).toEqual({ action: "CANCEL", id: ID });
  expect((await run(["tasks", "clear", "0d1d"])).text).toBe(`${other.id}: cleared\n`);
  expect(requested.at(-1)).toEqual({ action: "CLEAR", id: other.id });
  expect((await run(["tasks", "clear", "0d1"])).exit).toMatchObject({ code: "usage" });
  expect((await run(["tasks", "clear", "f"])).exit).toMatchObject({ code: "not-found" });
});

describe("get waits for the end", () => {
  const get = ["get", "https://files.example/a.iso", "isos/a.iso"];
  const ending = (last: DataStoreTask) =>
    stage(({ action }, at) => {
      if (action === "TASKS") return { tasks: [at < 4 ? running : last] };
      return { id: ID };
    });

  test("on a terminal with a progress bar in place", async () => {
    const { run } = await ending(completed);
    const { exit, text } = await run(get, { tty: true });
    expect(exit).toBe("ok");
    const bar = "\r\u001b[K[#############-----------------]  45 %  450 MB of 1.0 GB  12 MB/s  45 s left";
    expect(text).toBe(`${bar}${bar}\r\u001b[Kisos/a.iso: 1.0 GB\n`);
  });

  test("elsewhere with a line at intervals", async () => {
    const { run } = await ending(completed);
    const { text } = await run(get);
    expect(text.split("\n")).toEqual([
      "[#############-----------------]  45 %  450 MB of 1.0 GB  12 MB/s  45 s left",
      "isos/a.iso: 1.0 GB",
      "",
    ]);
  });

  test("for a program with the task as an object on each line", async () => {
    const { run } = await ending(completed);
    const { text } = await run(get, { json: true });
    const lines = text
      .trimEnd()
      .split("\n")
      .map((line): unknown => JSON.parse(line));
    expect(lines).toEqual([running, completed]);
  });

  test.each(["Failed", "Cancelled"] as const)("and fails when it is %s", async (status) => {
    const { run } = await ending({ ...completed, status, details: "the hash is another" });
    expect((await run(get)).exit).toMatchObject({ code: "transfer-failed", message: "the hash is another" });
  });

  test("and fails when it was cleared", async () => {
    const { run } = await stage(({ action }) => (action === "TASKS" ? { tasks: [] } : { id: ID }));
    expect((await run(get)).exit).toMatchObject({ code: "not-found" });
  });

  test("Ctrl-C cancels the task and waits until it has ended", async () => {
    const interrupt = new AbortController();
    let isCancelled = false;
    const { run, requested } = await stage(({ action }, at) => {
      if (action === "TASKS" && at === 3) interrupt.abort(new Error("interrupted"));
      if (action === "CANCEL") isCancelled = true;
      const now = isCancelled ? { ...running, status: "Cancelled", details: "cancelled after 450 MB" } : running;
      return action === "TASKS" ? { tasks: [now] } : { id: ID };
    });
    const { exit, text } = await run(get, { tty: true }, { signal: interrupt.signal });
    expect(exit).toBe("interrupted");
    expect(text).toMatch(/\ncancelled after 450 MB\n$/);
    expect(requested.find(({ action }) => action === "CANCEL")).toEqual({ action: "CANCEL", id: ID });
  });

  test("one that has ended when Ctrl-C comes is done", async () => {
    const interrupt = new AbortController();
    const { run } = await stage(({ action }, at) => {
      if (action === "CANCEL") return undefined;
      if (at === 2) interrupt.abort(new Error("interrupted"));
      return action === "TASKS" ? { tasks: [at === 2 ? running : completed] } : { id: ID };
    });
    const { exit, text } = await run(get, {}, { signal: interrupt.signal });
    expect(exit).toBe("ok");
    expect(text).toMatch(/isos\/a\.iso: 1\.0 GB\n$/);
  });
});

test.each<[what: string, task: DataStoreTask, columns: number, line: string]>([
  ["waits", { ...running, progress: undefined, details: "waiting\nfor its turn" }, 80, "waiting for its turn"],
  ["has no known end", { ...running, progress: { bytes: 5000, rate: 1000 } }, 80, "5.0 kB  1.0 kB/s"],
  ["is of nothing", { ...running, progress: { bytes: 0, total: 0 } }, 80, "0 B of 0 B"],
  ["is more than was said", { ...running, progress: { bytes: 30, total: 20 } }, 30, "100 %  30 B of 20 B"],
  ["has little room", running, 20, " 45 %  450 MB of 1.0"],
  [
    "has room for a short bar",
    { ...running, progress: { bytes: 1, total: 2 } },
    34,
    "[#######-------]  50 %  1 B of 2 B",
  ],
])("the line of a task that %s", (_what, task, columns, line) => {
  expect(progressLine(task, columns)).toBe(line);
  expect(line.length).toBeLessThanOrEqual(columns);
});
