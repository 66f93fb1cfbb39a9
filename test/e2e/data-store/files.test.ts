import { execFile } from "node:child_process";
import { createHash, randomBytes, randomUUID } from "node:crypto";
import {
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { buffer } from "node:stream/consumers";
import { promisify } from "node:util";
import { afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import {
  DataStoreListing,
  DataStoreTasks,
  TaskStarted,
  type DataStoreTask,
} from "../../../src/protocol/triggers/data-store.ts";
import { fileEnd } from "../../support/file-end.ts";
import { startPacedFiles } from "../../support/data-store/paced-files.ts";
import {
  freePort,
  holdfast,
  registerNode,
  startAgent,
  startController,
  type AgentProgram,
} from "../../support/machine/programs.ts";
import { startHoldfast } from "../../support/run-holdfast.ts";
import { runVerb } from "../../support/run-verb.ts";
import { isDue } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const content = randomBytes(3_000_000);
const sha256 = createHash("sha256").update(content).digest("hex");

/** Serves one file, and stores what is posted. */
async function aFileServer() {
  const posted: { readonly type: string | undefined; readonly body: Buffer }[] = [];
  const server = createServer((request, response) => {
    if (request.method !== "POST") return void response.end(request.url?.startsWith("/file") ? content : "");
    void buffer(request).then((body) => {
      posted.push({ type: request.headers["content-type"], body });
      response.end();
    });
  });
  const port = await freePort();
  await new Promise<void>((resolve) => void server.listen(port, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${port}`, posted };
}

const TriggerResult = z.object({ kind: z.literal("result"), body: z.unknown() });
type Trigger = (body: object) => Promise<{ readonly status: number; readonly body: unknown }>;

/** Writes a settings file, and returns the option that names it. */
function settings(dir: string, dataStore: object): string[] {
  const path = join(dir, "agent.json");
  writeFileSync(path, JSON.stringify({ dataStore }));
  return ["--config", path];
}

async function startNode() {
  const dir = tempDir(onFinished);
  const more = settings(dir, { allowAddresses: ["127.0.0.0/8"], reservePercent: 0 });
  const controller = await startController(dir, await freePort(), [], { onFinished });
  const agent = await startAgent(join(dir, "node"), { more, onFinished });
  const uid = await registerNode(controller, agent, "edge");
  const call = (method: string, path: string, body?: unknown) =>
    controller.call(method, `/v2/node/${uid}/${path}`, body);
  const trigger: Trigger = (body) => controller.call("POST", `/node/${uid}/trigger/datastore-manager?wait=1`, body);
  const store = (method: string, path: string, body?: unknown) => call(method, `data-store${path}`, body);
  const tasks = async () => DataStoreTasks.parse((await store("GET", "/tasks")).body).tasks;
  const ended = async (started: { readonly body: unknown }): Promise<DataStoreTask> => {
    const { id } = TaskStarted.parse(started.body);
    return waitFor(`the task ${id} to end`, async () => {
      const task = (await tasks()).find((one) => one.id === id);
      return task === undefined || ["Pending", "Running"].includes(task.status) ? undefined : task;
    });
  };
  const names = async (filename: string) =>
    DataStoreListing.parse((await store("GET", `/list?filename=${filename}`)).body).files.map(({ path }) => path);
  const root = join(agent.stateDir, "data-store");
  return { dir, controller, agent, more, uid, call, trigger, store, tasks, ended, names, root };
}

const onFinished = fileEnd();
/** Tests share the node: each leaves an empty data store, and its tasks. */
let node: Awaited<ReturnType<typeof startNode>>;

beforeAll(async () => {
  node = await startNode();
});

afterEach(() => {
  const made = readdirSync(node.root).filter((name) => !["images", "volumes"].includes(name));
  for (const name of made) rmSync(join(node.root, name), { recursive: true });
});

async function tasksOf(trigger: Trigger): Promise<readonly DataStoreTask[]> {
  return DataStoreTasks.parse((await trigger({ action: "TASKS" })).body).tasks;
}

async function begin(trigger: Trigger, body: object): Promise<string> {
  const { status, body: answer } = await trigger(body);
  if (status !== 200) throw new Error(`${status} ${JSON.stringify(answer)}`);
  return String((answer as { id: unknown }).id);
}

/** Waits until a task has this status. */
async function untilStatus(trigger: Trigger, id: string, status: DataStoreTask["status"]): Promise<DataStoreTask> {
  let seen: DataStoreTask | undefined;
  return waitFor(`the task is ${status}`, async () => {
    seen = (await tasksOf(trigger)).find((task) => task.id === id);
    return seen?.status === status ? seen : undefined;
  }).catch((error: unknown) => {
    throw new Error(`it is ${JSON.stringify(seen)}`, { cause: error });
  });
}

/** Calls through the command line of the node. */
function locally({ runDir }: AgentProgram): Trigger {
  return async (body) => {
    const args = ["trigger", "datastore-manager", JSON.stringify(body), "--json", "--run", runDir];
    const { code, stdout, stderr } = await runVerb(args);
    if (code !== 0) throw new Error(`${stdout}${stderr}`);
    return { status: 200, body: TriggerResult.parse(JSON.parse(stdout)).body };
  };
}

/** Returns the agent's record for resuming a task; read from a copy, since the agent locks the file. */
function resumeOf(stateDir: string, dir: string, id: string): unknown {
  const copy = join(dir, "copy.db");
  for (const suffix of ["", "-wal"]) copyFileSync(join(stateDir, `state.db${suffix}`), copy + suffix);
  const sql = new DatabaseSync(copy);
  try {
    return sql.prepare("SELECT resume FROM data_store_tasks WHERE id = ? AND resume IS NOT NULL").get(id);
  } finally {
    sql.close();
  }
}

/** Returns the names in a directory of the node's data store. */
const namesIn = (agent: AgentProgram, ...path: readonly string[]): readonly string[] =>
  readdirSync(join(agent.stateDir, "data-store", ...path)).sort();

test("the HTTP API of a data store audits each operation without possible credentials", async () => {
  const { controller, uid, store, tasks, ended, names, root } = node;
  const { url, posted } = await aFileServer();

  expect(await store("POST", "/mkdir", { filename: "/isos/old" })).toEqual({ status: 200, body: {} });
  expect(await names("isos")).toEqual(["isos/old"]);
  const uri = `${url}/file?signature=secret`;
  const download = await store("POST", "/http-download", { uri, filename: "a.iso", location: "/isos", hash: sha256 });
  expect(await ended(download)).toMatchObject({ name: "Transfer HTTP File", status: "Completed", path: "isos/a.iso" });
  expect(readFileSync(join(root, "isos/a.iso")).equals(content)).toBe(true);
  expect((await names("isos")).sort()).toEqual(["isos/a.iso", "isos/old"]);

  for (const multipart of [false, true]) {
    const upload = await store("POST", "/http-upload", { filePath: "isos/a.iso", uri: `${url}/up`, multipart });
    expect(await ended(upload)).toMatchObject({ name: "Upload HTTP File", status: "Completed" });
  }
  expect(posted[0]?.body.equals(content)).toBe(true);
  expect(posted[1]?.type).toMatch(/^multipart\/form-data/);
  expect(posted[1]?.body.includes(content)).toBe(true);

  const s3 = [
    await store("POST", "/s3-download", { uri: "s3://bucket/a.iso", location: "isos/s3.iso" }),
    await store("POST", "/s3-upload", { filePath: "isos/a.iso", bucketDest: "s3://bucket/a.iso" }),
  ];
  const ids = s3.map(({ body }) => TaskStarted.parse(body).id);
  const there = (await tasks()).filter(({ id }) => ids.includes(id));
  expect(there.map(({ name }) => name).sort()).toEqual(["Transfer S3 File", "Upload S3 File"]);
  for (const id of ids) {
    // A running task is cancelled, an ended one is cleared.
    await waitFor(`the task ${id} to be gone`, async () => (await store("DELETE", `/tasks/${id}`)).status === 404);
  }

  expect(await store("DELETE", "", { filename: "isos" })).toEqual({ status: 200, body: {} });
  expect(await store("DELETE", "?filename=isos")).toMatchObject({ status: 404, body: { code: "not-found" } });
  // Audits arrive with telemetry, after the answers.
  const reported = await waitFor("the last audit", async () => {
    const text = JSON.stringify((await controller.call("GET", `/v2/audit/${uid}`)).body);
    return text.includes("Data Store: delete isos") && text;
  });
  expect(reported).toContain(`Data Store: download ${url}/file?… to /isos/a.iso`);
  expect(reported).not.toContain("secret");
});

test("each refusal of a data store has its status, and nothing outside it is accessible", async () => {
  const { store, root } = node;
  await store("POST", "/mkdir", { filename: "a" });
  symlinkSync("/etc", join(root, "a", "etc"));
  const refused = async (method: string, path: string, body: object) => (await store(method, path, body)).status;
  expect(await refused("DELETE", "", { filename: "../state.db" })).toBe(422);
  expect(await refused("DELETE", "", { filename: "/" })).toBe(403);
  expect(await refused("DELETE", "", { filename: "images" })).toBe(403);
  expect(await refused("POST", "/mkdir", { filename: "a/etc/x" })).toBe(403);
  expect(await refused("POST", "/http-upload", { filePath: "a/etc/passwd", uri: "http://127.0.0.1:9/" })).toBe(403);
  expect(await refused("POST", "/http-upload", { filePath: "none", uri: "http://127.0.0.1:9/" })).toBe(404);
  expect((await store("GET", "/list?filename=a/etc")).status).toBe(403);
});

test("ten thousand entries on many levels pass the session completely", async () => {
  const { store, root, agent, controller, uid } = node;
  const deep = Array.from({ length: 14 }, (_, at) => `level-${at}`).join("/");
  mkdirSync(join(root, deep), { recursive: true });
  writeFileSync(join(root, deep, "bottom"), "x");
  for (let dir = 0; dir < 90; dir += 1) {
    mkdirSync(join(root, `volumes-of-the-machines-${dir}`));
    for (let at = 0; at < 100; at += 1) {
      writeFileSync(join(root, `volumes-of-the-machines-${dir}`, `a rather long name of a file, ${at}.qcow2`), "");
    }
  }
  const listing = await store("GET", "/list");
  expect(listing.status).toBe(200);
  expect(JSON.stringify(listing.body).length).toBeGreaterThan(1024 * 1024);
  const { files } = DataStoreListing.parse(listing.body);
  expect(files.flatMap((entry) => entry.files ?? []).filter(({ name }) => name.endsWith(".qcow2"))).toHaveLength(9000);
  expect(JSON.stringify(files)).toContain(`${deep}/bottom`);
  const triggered = await controller.call("POST", `/node/${uid}/trigger/datastore-manager?wait=1`, {});
  expect(triggered).toEqual(listing);
  const { stdout } = await holdfast(["data-store", "ls", "--json", "--run", agent.runDir]);
  expect(JSON.parse(stdout)).toEqual(listing.body);
});

test("Ctrl-C on the command line cancels a transfer, and a second one leaves it to the node", async () => {
  const { agent, root, tasks } = node;
  const files = await startPacedFiles(200_000);
  files.allow(100_000);
  const get = (name: string) => {
    const words = ["data-store", "get", `${files.url}/${name}`, "--run", agent.runDir];
    return startHoldfast([...words, "--timeout", "120"]);
  };
  const begun = async (path: string) => {
    const isHalf = async () => (await tasks()).some((task) => task.path === path && task.progress?.bytes === 100_000);
    await waitFor(`${path} is half-way`, isHalf);
  };
  const mine = async () => (await tasks()).filter(({ path = "" }) => ["first", "second"].includes(path));
  const first = get("first");
  await begun("first");
  first.child.kill("SIGINT");
  const { code, stderr } = await first.finished;
  expect(code).toBe(130);
  expect(stderr).toMatch(/^cancelling: Ctrl-C again leaves it to the node\ncancelled after 100\.0 kB\n$/);
  expect(await mine()).toMatchObject([{ path: "first", status: "Cancelled" }]);
  expect(readdirSync(root).sort()).toEqual(["images", "volumes"]);

  const second = get("second");
  await begun("second");
  // A node that does not answer delays nobody.
  agent.process.kill("SIGSTOP");
  await waitFor("a request to wait for the agent", async () => {
    const { stdout } = await promisify(execFile)("ss", ["-xlH", "src", join(agent.runDir, "admin.sock")]);
    return /^u_str +LISTEN +[1-9]/.test(stdout);
  });
  second.child.kill("SIGINT");
  await second.until(/cancelling/);
  second.child.kill("SIGINT");
  expect((await second.finished).stderr).toBe("cancelling: Ctrl-C again leaves it to the node\n");
  expect(second.child.signalCode).toBe("SIGINT");
  agent.process.kill("SIGCONT");
  expect((await mine()).map(({ path }) => path)).toEqual(["first", "second"]);
});

test("the command line moves files and shows them", async () => {
  const { agent, root, tasks } = node;
  const { url, posted } = await aFileServer();
  const run = (...words: readonly string[]) => runVerb(["data-store", ...words, "--run", agent.runDir]);
  const got = await run("get", `${url}/file/a.iso?x=1`, "isos/", "--sha256", sha256);
  expect(got).toMatchObject({ code: 0, stderr: "" });
  expect(got.stdout).toMatch(/isos\/a\.iso: .*3\.0 MB/);
  expect(readFileSync(join(root, "isos/a.iso")).equals(content)).toBe(true);
  expect((await run("put", "isos/a.iso", `${url}/up`)).code).toBe(0);
  expect(posted[0]?.body.equals(content)).toBe(true);
  const failed = await run("get", `${url}/file`, "isos/b.iso", "--sha256", "0".repeat(64));
  expect(failed.code).toBe(1);
  expect((await run("ls", "isos")).stdout).toMatch(/3\.0 MB {2}a\.iso\n/);
  expect((await run("mkdir", "isos/new")).stdout).toBe("isos/new: made\n");
  expect((await run("rm", "isos")).stdout).toBe("isos: removed\n");
  expect((await run("rm", "isos")).code).toBe(1);
  const detached = await run("get", `${url}/file`, "late.iso", "--detach");
  const id = detached.stdout.trim();
  await waitFor("the task to end", async () => (await tasks()).some((one) => one.id === id && one.eTime !== undefined));
  expect((await run("tasks")).stdout).toContain(id.slice(0, 8));
  expect((await run("tasks", "clear", id.slice(0, 13))).stdout).toBe(`${id}: cleared\n`);
});

test("trigger events download, list, upload and remove files", async () => {
  const { agent, trigger } = node;
  const files = await startPacedFiles(300_000);
  files.allow(Infinity);

  expect(await trigger({})).toMatchObject({ status: 200, body: { files: [{ name: "images" }, { name: "volumes" }] } });
  expect(await trigger({ action: "MKDIR", filename: "/isos" })).toEqual({ status: 200, body: {} });
  const download = { action: "HTTP_DOWNLOAD", uri: `${files.url}/a?key=hidden`, filename: "a.iso", location: "/isos" };
  const good = await begin(trigger, { ...download, hash: files.sha256 });
  expect(await untilStatus(trigger, good, "Completed")).toMatchObject({
    name: "Transfer HTTP File",
    path: "isos/a.iso",
    peer: `${files.url}/a?…`,
    progress: { bytes: 300_000 },
  });
  expect(readFileSync(join(agent.stateDir, "data-store/isos/a.iso")).equals(files.content)).toBe(true);
  const bad = await begin(trigger, { ...download, filename: "b.iso", hash: "0".repeat(64) });
  expect((await untilStatus(trigger, bad, "Failed")).details).toMatch(/hash|SHA-256/i);
  expect(namesIn(agent, "isos")).toEqual(["a.iso"]);
  expect(await trigger({ action: "LIST", filename: "isos" })).toMatchObject({
    body: { files: [{ name: "a.iso", path: "isos/a.iso", type: "file", size: "300.0 kB", bytes: 300_000 }] },
  });
  expect(await trigger({ action: "IMAGE_INFO", filename: "isos/a.iso" })).toMatchObject({ body: { bytes: 300_000 } });
  const upload = { action: "HTTP_UPLOAD", filePath: "isos/a.iso", uri: `${files.url}/up` };
  await untilStatus(trigger, await begin(trigger, upload), "Completed");
  expect(files.uploads.map((body) => body.equals(files.content))).toEqual([true]);

  for (const [body, status, refusal] of [
    [{ action: "DELETE", filename: "nothing" }, 404, "not-found"],
    [{ action: "DELETE", filename: "images" }, 403, "forbidden"],
    [{ action: "DELETE", filename: "../../.." }, 422, /^filename: .* is not a path in the data store/],
    [{ action: "MKDIR", filename: "isos" }, 422, /^filename: "isos" already exists$/],
    [{ ...download, filename: "isos", location: "/" }, 422, /isos is there already and is no file/],
    [{ ...download, hash: "12" }, 422, /^hash: /],
    [{ ...upload, filePath: "isos" }, 422, /^filePath: "isos" is a directory$/],
    [{ action: "CANCEL", id: good }, 422, /is over: Completed$/],
    [{ action: "CLEAR", id: crypto.randomUUID() }, 404, "not-found"],
    [{ action: "FORMAT" }, 422, /^action: /],
  ] as const) {
    expect(await trigger(body), JSON.stringify(body)).toMatchObject({
      status,
      body: typeof refusal === "string" ? { code: refusal } : [expect.stringMatching(refusal)],
    });
  }
  expect(await trigger({ action: "CLEAR", id: good })).toEqual({ status: 200, body: {} });
  expect((await tasksOf(trigger)).map(({ id }) => id)).not.toContain(good);
  const local = ["trigger", "datastore-manager", '{"action":"DELETE","filename":"isos"}', "--run", agent.runDir];
  expect((await holdfast(local)).code).toBe(0);
  expect(namesIn(agent)).toEqual(["images", "volumes"]);
  expect(agent.log()).not.toContain("hidden");
});

test("two run at a time, the others are queued, and any can be cancelled", async () => {
  const { agent, trigger } = node;
  const files = await startPacedFiles(200_000);
  files.allow(100_000);
  const download = (n: number) =>
    begin(trigger, { action: "HTTP_DOWNLOAD", uri: `${files.url}/${n}`, filename: `${n}.img`, location: "images" });
  const ids: string[] = [];
  for (let n = 0; n < 5; n += 1) ids.push(await download(n));
  const again = { action: "HTTP_DOWNLOAD", uri: `${files.url}/x`, filename: "4.img", location: "/images" };
  expect(await trigger(again)).toMatchObject({
    status: 422,
    body: [expect.stringMatching(`^task ${ids[4]} is at work on the same file`)],
  });
  const mine = async () => (await tasksOf(trigger)).filter(({ id }) => ids.includes(id));
  const half = await waitFor("two are half-way", async () => {
    const tasks = await mine();
    return tasks.filter(({ progress }) => progress?.bytes === 100_000).length === 2 ? tasks : undefined;
  });
  expect(half.map(({ status }) => status)).toEqual(["Running", "Running", ...Array<string>(3).fill("Pending")]);
  expect(half[0]?.details).toMatch(/^50 % · 100\.0 kB of 200\.0 kB/);
  expect(half[4]?.details).toBe("waiting for its turn");
  expect(await trigger({ action: "DELETE", filename: "images/0.img" })).toMatchObject({
    status: 422,
    body: [expect.stringMatching(`^task ${ids[0]} .* is at work on images/0\\.img`)],
  });
  expect(files.ranges.length).toBe(2);

  for (const id of [ids[0], ids[3]]) expect(await trigger({ action: "CANCEL", id })).toEqual({ status: 200, body: {} });
  const rest = await mine();
  expect([rest[0]?.status, rest[3]?.status]).toEqual(["Cancelled", "Cancelled"]);
  files.allow(Infinity);
  for (const at of [1, 2, 4]) await untilStatus(trigger, ids[at] ?? "", "Completed");
  expect(namesIn(agent, "images")).toEqual([1, 2, 4].map((n) => `${n}.img`));
});

test.runIf(isDue("resumed downloads"))(
  "the next agent resumes the downloads of a killed one where they were",
  async () => {
    const { dir, agent, trigger, more } = node;
    const files = await startPacedFiles(40_000_000);
    files.allow(20_000_000);
    const download = { action: "HTTP_DOWNLOAD", uri: `${files.url}/a`, filename: "a.img", location: "resumed" };
    const id = await begin(trigger, { ...download, hash: files.sha256 });
    await waitFor("what it can go on from is written", () => resumeOf(agent.stateDir, dir, id) !== undefined);
    await agent.end("SIGKILL");
    const seen = files.ranges.length;
    const successor = await startAgent(join(dir, "node"), { more, onFinished });
    node = { ...node, agent: successor };
    files.allow(Infinity);
    await waitFor("it is there", () => namesIn(successor, "resumed").includes("a.img"));
    expect(namesIn(successor, "resumed")).toEqual(["a.img"]);
    expect(readFileSync(join(successor.stateDir, "data-store/resumed/a.img")).equals(files.content)).toBe(true);
    expect(files.ranges.slice(seen)).toEqual([expect.stringMatching(/^bytes=[1-9]\d*-/)]);
    await untilStatus(locally(successor), id, "Completed");
  },
);

test("images are registered for existing files, and removed with their files or without", async () => {
  const { call, root, controller, agent, uid } = node;
  const path = join(root, "images", "win.raw");
  await call("POST", "data-store/mkdir", { filename: "images" });
  writeFileSync(path, "");
  truncateSync(path, 1_048_576);
  const image = { id: randomUUID(), displayName: "Windows", location: "/images/win.raw", os: "win10" };
  const made = await call("POST", "kvm/image", image);
  expect(made).toMatchObject({ status: 200, body: { ...image, present: true, bytes: 1_048_576 } });
  const missing = await call("POST", "kvm/image", { ...image, id: randomUUID(), location: "images/none" });
  expect(missing).toMatchObject({ status: 422, body: [expect.stringMatching(/^location: /)] });
  const directory = await call("POST", "kvm/image", { ...image, id: randomUUID(), location: "images" });
  expect(directory).toMatchObject({ status: 422, body: [expect.stringMatching(/^location: /)] });
  const present = async () =>
    z.array(z.object({ present: z.boolean().optional() })).parse((await call("GET", "kvm/image")).body);
  expect(await present()).toEqual([{ present: true }]);
  const shadow = async () => JSON.stringify((await controller.call("GET", `/node/${uid}`)).body);
  // Entries are the only part of virtual machines: nothing starts one.
  await waitFor("the shadow tells that", async () => (await shadow()).includes('"kvm-enabled":"false"'));
  expect((await call("DELETE", `kvm/image/${image.id}?deleteFile=true`)).status).toBe(200);
  expect(await present()).toEqual([]);
  expect((await call("DELETE", "data-store", { filename: "images/win.raw" })).status).toBe(404);

  writeFileSync(path, "x");
  await call("POST", "kvm/image", image);
  // The next test starts the agent again.
  await agent.end("SIGTERM");
  await waitFor("the node to be offline", async () => {
    const { body } = await controller.call("GET", `/node/${uid}`);
    return z.object({ online: z.boolean() }).parse(body).online ? undefined : true;
  });
  expect(await present()).toEqual([{}]);
  expect((await call("DELETE", `kvm/image/${image.id}?deleteFile=true`)).status).toBe(503);
  expect(await present()).toHaveLength(1);
  expect((await call("DELETE", `kvm/image/${image.id}`)).status).toBe(200);
  expect(readFileSync(path, "utf8")).toBe("x");
});

test("fetches from this machine only with permission, and reports the reason", async () => {
  const { dir } = node;
  await node.agent.end();
  const agent = await startAgent(join(dir, "node"), { more: settings(dir, { reservePercent: 0 }), onFinished });
  const before = namesIn(agent);
  const files = await startPacedFiles(10);
  const trigger = locally(agent);
  const id = await begin(trigger, { action: "HTTP_DOWNLOAD", uri: `${files.url}/a`, filename: "a" });
  expect((await untilStatus(trigger, id, "Failed")).details).toMatch(/127\.0\.0\.1.*(loopback|allowAddresses)/);
  expect(files.ranges).toEqual([]);
  expect(namesIn(agent)).toEqual(before);
});
