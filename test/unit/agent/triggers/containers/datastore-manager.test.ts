import { expect, test } from "vitest";
import { datastoreManager } from "../../../../../src/agent/triggers/containers/datastore-manager.ts";
import { memoryJournal, rig } from "../rig.ts";

function stage(options: Parameters<typeof rig>[1] = {}) {
  const audits: string[] = [];
  const requested: string[] = [];
  const answer = ({ action }: { readonly action: string }): Promise<unknown> => {
    requested.push(action);
    return Promise.resolve({});
  };
  const made = rig([datastoreManager(answer, (what) => audits.push(what))], options);
  const ask = (body: unknown) => made.run("datastore-manager", { body });
  return { ...made, audits, requested, ask };
}

const id = "6b1f0c1e-8b1c-4f0a-9c39-5b1de24d4b11";
const READING = [
  {},
  { action: "LIST", filename: "a" },
  { action: "TASKS" },
  { action: "IMAGE_INFO", filename: "a" },
] as const;
const CHANGING = [
  { action: "MKDIR", filename: "a" },
  { action: "DELETE", filename: "a" },
  { action: "CANCEL", id },
  { action: "CLEAR", id },
  { action: "HTTP_DOWNLOAD", uri: "http://h.example/a", filename: "a" },
  { action: "S3_UPLOAD", filePath: "a", bucketDest: "s3://bucket/a" },
] as const;

test("a screen that polls the tasks delays no changes", async () => {
  const { ask } = stage({ journal: memoryJournal({ maxRows: 3 }).journal });
  for (let n = 0; n < 10; n += 1) {
    for (const body of READING) expect(await ask(body)).toEqual({ body: {} });
  }
  for (const body of CHANGING.slice(0, 3)) expect(await ask(body)).toEqual({ body: {} });
  expect(await ask(CHANGING[3])).toMatchObject({ error: { code: "busy" } });
});

test("without a journal, reading and freeing space still work", async () => {
  const { ask } = stage({ journal: memoryJournal({ isPersistent: false }).journal });
  for (const body of READING) expect(await ask(body)).toEqual({ body: {} });
  for (const body of CHANGING) {
    const isFreeing = ["DELETE", "CANCEL", "CLEAR"].includes(body.action);
    const answer = isFreeing ? { body: {} } : { error: { code: "storage-unavailable" } };
    expect(await ask(body), body.action).toMatchObject(answer);
  }
});

test("an agent has no data store, and reports that for every action", async () => {
  const { ask, requested } = stage({ node: { type: "Agent", state: "ACTIVE" } });
  for (const body of [...READING, ...CHANGING]) {
    expect(await ask(body)).toEqual({
      error: { code: "not-supported", message: "datastore-manager is for appliances; this node is an agent" },
    });
  }
  expect(requested).toEqual([]);
});

test("a deletion on the node is in the node's audit trail, and a request of the control plane in its own", async () => {
  const { ask, audits, dispatcher, channel } = stage();
  await ask({ action: "DELETE", filename: "theirs" });
  const body = { action: "DELETE", filename: "mine" };
  await dispatcher.runLocal({ event: "datastore-manager", body, wait: true }, channel).reply;
  expect(audits).toEqual(["local deleted mine from the data store"]);
});

test("an INACTIVE node answers no data store event", async () => {
  const { ask, requested } = stage({ node: { type: "Node", state: "INACTIVE" } });
  for (const body of [...READING, ...CHANGING]) expect(await ask(body)).toMatchObject({ error: { code: "inactive" } });
  expect(requested).toEqual([]);
});
