import { copyFileSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { DataStoreTasks, type DataStoreTask } from "../../../src/protocol/triggers/data-store.ts";
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
import { runVerb } from "../../support/run-verb.ts";
import { isDue } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const TriggerResult = z.object({ kind: z.literal("result"), body: z.unknown() });
type Call = (body: object) => Promise<{ readonly status: number; readonly body: unknown }>;

/** A settings file that allows transfers with this machine, on a disk of any fullness. */
function settings(dir: string, dataStore: object = { allowAddresses: ["127.0.0.0/8"], reservePercent: 0 }): string[] {
  const path = join(dir, "agent.json");
  writeFileSync(path, JSON.stringify({ dataStore }));
  return ["--config", path];
}

async function startManaged() {
  const dir = tempDir(onFinished);
  const controller = await startController(dir, await freePort(), [], { onFinished });
  const more = settings(dir);
  const agent = await startAgent(join(dir, "node"), { more, onFinished });
  const uid = await registerNode(controller, agent, "store");
  const call: Call = (body) => controller.call("POST", `/node/${uid}/trigger/datastore-manager?wait=1`, body);
  return { dir, agent, call, more };
}

/** One node for all tests; the last ones start its agent again. */
let managed: Awaited<ReturnType<typeof startManaged>>;
const onFinished = fileEnd();

beforeAll(async () => {
  managed = await startManaged();
});

async function tasksOf(call: Call): Promise<readonly DataStoreTask[]> {
  return DataStoreTasks.parse((await call({ action: "TASKS" })).body).tasks;
}

async function begin(call: Call, body: object): Promise<string> {
  const { status, body: answer } = await call(body);
  if (status !== 200) throw new Error(`${status} ${JSON.stringify(answer)}`);
  return String((answer as { id: unknown }).id);
}

/** Waits until a task has this status. */
async function untilStatus(call: Call, id: string, status: DataStoreTask["status"]): Promise<DataStoreTask> {
  let seen: DataStoreTask | undefined;
  return waitFor(`the task is ${status}`, async () => {
    seen = (await tasksOf(call)).find((task) => task.id === id);
    return seen?.status === status ? seen : undefined;
  }).catch((error: unknown) => {
    throw new Error(`it is ${JSON.stringify(seen)}`, { cause: error });
  });
}

/** Calls through the command line of the node. */
function locally({ runDir }: AgentProgram): Call {
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

test("trigger events download, list, upload and remove files", async () => {
  const { agent, call } = managed;
  const files = await startPacedFiles(300_000);
  files.allow(Infinity);

  expect(await call({})).toMatchObject({ status: 200, body: { files: [{ name: "images" }, { name: "volumes" }] } });
  expect(await call({ action: "MKDIR", filename: "/isos" })).toEqual({ status: 200, body: {} });
  const download = { action: "HTTP_DOWNLOAD", uri: `${files.url}/a?key=hidden`, filename: "a.iso", location: "/isos" };
  const good = await begin(call, { ...download, hash: files.sha256 });
  expect(await untilStatus(call, good, "Completed")).toMatchObject({
    name: "Transfer HTTP File",
    path: "isos/a.iso",
    peer: `${files.url}/a?…`,
    progress: { bytes: 300_000 },
  });
  expect(readFileSync(join(agent.stateDir, "data-store/isos/a.iso")).equals(files.content)).toBe(true);
  const bad = await begin(call, { ...download, filename: "b.iso", hash: "0".repeat(64) });
  expect((await untilStatus(call, bad, "Failed")).details).toMatch(/hash|SHA-256/i);
  expect(namesIn(agent, "isos")).toEqual(["a.iso"]);
  expect(await call({ action: "LIST", filename: "isos" })).toMatchObject({
    body: { files: [{ name: "a.iso", path: "isos/a.iso", type: "file", size: "300.0 kB", bytes: 300_000 }] },
  });
  expect(await call({ action: "IMAGE_INFO", filename: "isos/a.iso" })).toMatchObject({ body: { bytes: 300_000 } });
  const upload = { action: "HTTP_UPLOAD", filePath: "isos/a.iso", uri: `${files.url}/up` };
  await untilStatus(call, await begin(call, upload), "Completed");
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
    expect(await call(body), JSON.stringify(body)).toMatchObject({
      status,
      body: typeof refusal === "string" ? { code: refusal } : [expect.stringMatching(refusal)],
    });
  }
  expect(await call({ action: "CLEAR", id: good })).toEqual({ status: 200, body: {} });
  expect((await tasksOf(call)).map(({ id }) => id)).not.toContain(good);
  const local = ["trigger", "datastore-manager", '{"action":"DELETE","filename":"isos"}', "--run", agent.runDir];
  expect((await holdfast(local)).code).toBe(0);
  expect(namesIn(agent)).toEqual(["images", "volumes"]);
  expect(agent.log()).not.toContain("hidden");
});

test("two run at a time, the others are queued, and any can be cancelled", async () => {
  const { agent, call } = managed;
  const files = await startPacedFiles(200_000);
  files.allow(100_000);
  const download = (n: number) =>
    begin(call, { action: "HTTP_DOWNLOAD", uri: `${files.url}/${n}`, filename: `${n}.img`, location: "images" });
  const ids: string[] = [];
  for (let n = 0; n < 5; n += 1) ids.push(await download(n));
  const again = { action: "HTTP_DOWNLOAD", uri: `${files.url}/x`, filename: "4.img", location: "/images" };
  expect(await call(again)).toMatchObject({
    status: 422,
    body: [expect.stringMatching(`^task ${ids[4]} is at work on the same file`)],
  });
  const mine = async () => (await tasksOf(call)).filter(({ id }) => ids.includes(id));
  const half = await waitFor("two are half-way", async () => {
    const tasks = await mine();
    return tasks.filter(({ progress }) => progress?.bytes === 100_000).length === 2 ? tasks : undefined;
  });
  expect(half.map(({ status }) => status)).toEqual(["Running", "Running", ...Array<string>(3).fill("Pending")]);
  expect(half[0]?.details).toMatch(/^50 % · 100\.0 kB of 200\.0 kB/);
  expect(half[4]?.details).toBe("waiting for its turn");
  expect(await call({ action: "DELETE", filename: "images/0.img" })).toMatchObject({
    status: 422,
    body: [expect.stringMatching(`^task ${ids[0]} .* is at work on images/0\\.img`)],
  });
  expect(files.ranges.length).toBe(2);

  for (const id of [ids[0], ids[3]]) expect(await call({ action: "CANCEL", id })).toEqual({ status: 200, body: {} });
  const rest = await mine();
  expect([rest[0]?.status, rest[3]?.status]).toEqual(["Cancelled", "Cancelled"]);
  files.allow(Infinity);
  for (const at of [1, 2, 4]) await untilStatus(call, ids[at] ?? "", "Completed");
  expect(namesIn(agent, "images")).toEqual([1, 2, 4].map((n) => `${n}.img`));
});

test.runIf(isDue("resumed downloads"))(
  "the next agent resumes the downloads of a killed one where they were",
  async () => {
    const { dir, agent, call, more } = managed;
    const files = await startPacedFiles(40_000_000);
    files.allow(20_000_000);
    const download = { action: "HTTP_DOWNLOAD", uri: `${files.url}/a`, filename: "a.img", location: "resumed" };
    const id = await begin(call, { ...download, hash: files.sha256 });
    await waitFor("what it can go on from is written", () => resumeOf(agent.stateDir, dir, id) !== undefined);
    await agent.end("SIGKILL");
    const seen = files.ranges.length;
    const successor = await startAgent(join(dir, "node"), { more, onFinished });
    managed = { ...managed, agent: successor };
    files.allow(Infinity);
    await waitFor("it is there", () => namesIn(successor, "resumed").includes("a.img"));
    expect(namesIn(successor, "resumed")).toEqual(["a.img"]);
    expect(readFileSync(join(successor.stateDir, "data-store/resumed/a.img")).equals(files.content)).toBe(true);
    expect(files.ranges.slice(seen)).toEqual([expect.stringMatching(/^bytes=[1-9]\d*-/)]);
    await untilStatus(locally(successor), id, "Completed");
  },
);

test("fetches from this machine only with permission, and reports the reason", async () => {
  const { dir } = managed;
  await managed.agent.end();
  const agent = await startAgent(join(dir, "node"), { more: settings(dir, { reservePercent: 0 }), onFinished });
  const before = namesIn(agent);
  const files = await startPacedFiles(10);
  const call = locally(agent);
  const id = await begin(call, { action: "HTTP_DOWNLOAD", uri: `${files.url}/a`, filename: "a" });
  expect((await untilStatus(call, id, "Failed")).details).toMatch(/127\.0\.0\.1.*(loopback|allowAddresses)/);
  expect(files.ranges).toEqual([]);
  expect(namesIn(agent)).toEqual(before);
});
