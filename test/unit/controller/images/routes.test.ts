import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { SessionError } from "../../../../src/errors.ts";
import { DataStoreRequest } from "../../../../src/protocol/triggers/data-store.ts";
import { RemoteError } from "../../../../src/protocol/channel/rpc.ts";
import { ApiBench, items, type CallOptions } from "../../../support/control-plane/api-bench.ts";

const ID = "0d1c2b3a-4f5e-4d6c-8b7a-091827364554";
const OTHER = "0d1c2b3a-4f5e-4d6c-8b7a-091827364555";
const image = { id: ID, displayName: "Windows", location: "/images/win.qcow2", os: "win10" };
const info = { bytes: 1000, format: "qcow2", virtualBytes: 64_000_000_000 };

let bench: ApiBench;
let uid: string;
/** The files of the node. */
let files: Map<string, typeof info>;
let asked: DataStoreRequest[];

beforeEach(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "one" })).uid;
  files = new Map([["images/win.qcow2", info]]);
  asked = [];
  bench.fleet.script = ({ body }) => {
    const request = DataStoreRequest.parse(body);
    asked.push(request);
    const { filename } = z.object({ filename: z.string() }).parse(body);
    const found = files.get(filename.replace(/^\//, ""));
    if (found === undefined) return Promise.reject(new RemoteError("not-found", `there is no ${filename}`));
    if (request.action === "IMAGE_INFO") return Promise.resolve(found);
    files.delete(filename.replace(/^\//, ""));
    return Promise.resolve({});
  };
});

const call = (method: string, path = "", json?: unknown, options: CallOptions = {}) =>
  bench.call(method, `/v2/node/${uid}/kvm/image${path}`, { ...(json === undefined ? {} : { json }), ...options });
const setOnline = (isOnline: boolean) => bench.fleet.setOnline(uid, isOnline);
const refuseAll = (refusal: Error) => {
  bench.fleet.script = () => Promise.reject(refusal);
};

describe("POST", () => {
  it("enters an image whose file the node has, and tells what it is", async () => {
    const answer = await call("POST", "", { ...image, id: ID.toUpperCase(), description: "the desktop" });
    const record = { ...image, description: "the desktop" };
    expect([answer.status, answer.json]).toEqual([200, { ...record, present: true, ...info }]);
    expect(asked).toEqual([{ action: "IMAGE_INFO", filename: image.location }]);
    expect(await bench.deps.images.ofNode(uid)).toEqual([record]);
    expect(await bench.fleet.changes()).toEqual(["admin: Image Windows added"]);
  });

  it("makes an id where none is sent", async () => {
    const { json } = await call("POST", "", { ...image, id: undefined });
    const { id } = z.object({ id: z.uuid() }).parse(json);
    expect(await bench.deps.images.get(uid, id)).toMatchObject({ displayName: "Windows" });
  });

  it.each([
    [{ ...image, id: "seven" }, /^id: /],
    [{ ...image, displayName: "" }, /^displayName: /],
    [{ ...image, displayName: "x".repeat(257) }, /^displayName: /],
    [{ ...image, description: 7 }, /^description: /],
    [{ ...image, location: undefined }, /^location: /],
    [{ ...image, location: "a\0" }, /^location: must hold no NUL$/],
    [{ ...image, os: null }, /^os: /],
  ])("refuses %j without asking the node", async (body, line) => {
    const { status, json } = await call("POST", "", body);
    expect([status, json]).toEqual([422, [expect.stringMatching(line)]]);
    expect(asked).toEqual([]);
  });

  it.each([
    new RemoteError("not-found", "there is no such file"),
    new RemoteError("invalid-body", "it is a directory"),
  ])("names the location when the node says: %s", async (error) => {
    refuseAll(error);
    const { status, json } = await call("POST", "", image);
    expect([status, json]).toEqual([422, [`location: ${error.message}`]]);
    expect(await bench.deps.images.ofNode(uid)).toEqual([]);
  });

  it("refuses an id that is there, a node that is offline or fails, and an agent", async () => {
    await call("POST", "", image);
    expect(await call("POST", "", image)).toMatchObject({ status: 422, json: [`id: image ${ID} already exists`] });
    const another = { ...image, id: OTHER };
    refuseAll(new RemoteError("busy", "too much to do"));
    expect(await call("POST", "", another)).toMatchObject({ status: 422, json: ["too much to do"] });
    setOnline(false);
    expect(await call("POST", "", another)).toMatchObject({ status: 503, json: { code: "offline" } });
    uid = (await bench.fleet.add({ name: "two", type: "Agent" })).uid;
    expect(await call("POST", "", another)).toMatchObject({ status: 422, json: [expect.stringContaining("agents")] });
    expect((await call("GET")).status).toBe(422);
  });

  it("takes as many as a node may have", async () => {
    for (let at = 0; at < 256; at += 1) await bench.fleet.store.images.put(uid, { ...image, id: `id-${at}` });
    expect(await call("POST", "", image)).toMatchObject({ status: 422, json: [expect.stringMatching(/^body: /)] });
    expect(await bench.deps.images.ofNode(uid)).toHaveLength(256);
  });
});

describe("GET", () => {
  beforeEach(async () => {
    await bench.fleet.store.images.put(uid, image);
    await bench.fleet.store.images.put(uid, { ...image, id: OTHER, displayName: "Gone", location: "images/gone.raw" });
  });

  it("tells which files are there, without an audit of each look", async () => {
    const gone = { id: OTHER, displayName: "Gone", location: "images/gone.raw", os: "win10", present: false };
    const { status, json } = await call("GET");
    expect([status, json]).toEqual([200, [gone, { ...image, present: true, ...info }]]);
    expect((await call("GET", `/${OTHER.toUpperCase()}`)).json).toEqual(gone);
    expect(bench.fleet.triggered.map(({ request }) => request.isAudited)).toEqual([false, false, false]);
  });

  it.each(["a node that is offline", "a node that fails", "a node that does not answer in time"])(
    "leaves presence out for %s",
    async (what) => {
      if (what.includes("offline")) setOnline(false);
      else if (what.includes("fails")) refuseAll(new SessionError("offline", "went away"));
      else {
        const timers: (() => void)[] = [];
        const clock = {
          ...bench.deps.clock,
          after: (_: number, run: () => void) => (timers.push(run), () => undefined),
        };
        bench = await ApiBench.create(clock);
        uid = (await bench.fleet.add({ name: "slow" })).uid;
        await bench.fleet.store.images.put(uid, image);
        await bench.fleet.store.images.put(uid, { ...image, id: OTHER });
        bench.fleet.script = (_, { signal }) =>
          new Promise((_resolve, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason as Error));
            if (bench.fleet.triggered.length === 2) timers[0]?.();
          });
      }
      const { status, json } = await call("GET");
      expect(status).toBe(200);
      expect(items(json).map((item) => [item["id"], "present" in item, "bytes" in item])).toHaveLength(2);
      expect(items(json).some((item) => "present" in item || "bytes" in item)).toBe(false);
    },
  );

  it("asks about two at a time", async () => {
    for (let at = 0; at < 20; at += 1) await bench.fleet.store.images.put(uid, { ...image, id: randomUUID() });
    let [now, most] = [0, 0];
    bench.fleet.script = async () => {
      now += 1;
      most = Math.max(most, now);
      await new Promise((resolve) => setImmediate(resolve));
      now -= 1;
      return info;
    };
    expect(items((await call("GET")).json).filter((item) => item["present"] === true)).toHaveLength(22);
    expect(most).toBe(2);
  });

  it("of one that is not there is 404, as is one of another node", async () => {
    uid = (await bench.fleet.add({ name: "two" })).uid;
    expect((await call("GET", `/${ID}`)).status).toBe(404);
    expect((await call("DELETE", `/${ID}`)).status).toBe(404);
    expect((await call("PUT", `/${ID}`, image)).status).toBe(404);
    expect((await call("GET")).json).toEqual([]);
  });
});

describe("PUT", () => {
  beforeEach(() => bench.fleet.store.images.put(uid, { ...image, description: "old" }));

  it("replaces the record, not its file", async () => {
    const changed = { displayName: "Desktop", location: "images/win.qcow2", os: "win11" };
    const { status, json } = await call("PUT", `/${ID}`, changed);
    expect([status, json]).toEqual([200, { ...changed, id: ID, present: true, ...info }]);
    expect(await bench.deps.images.get(uid, ID)).toEqual({ ...changed, id: ID });
    expect(await bench.fleet.changes()).toEqual(["admin: Image Desktop changed"]);
    expect(files.size).toBe(1);
  });

  it("refuses another id and a location without a file", async () => {
    expect((await call("PUT", `/${ID}`, { ...image, id: OTHER })).json).toEqual([`id: must be ${ID}, or absent`]);
    const { status, json } = await call("PUT", `/${ID}`, { ...image, location: "nowhere" });
    expect([status, json]).toEqual([422, ["location: there is no nowhere"]]);
    expect(await bench.deps.images.get(uid, ID)).toMatchObject({ description: "old" });
  });
});

describe("DELETE", () => {
  beforeEach(() => bench.fleet.store.images.put(uid, image));

  it("removes the record alone, also of a node that is offline", async () => {
    setOnline(false);
    const { status, json } = await call("DELETE", `/${ID}`);
    expect([status, json]).toEqual([200, {}]);
    expect(await bench.deps.images.ofNode(uid)).toEqual([]);
    expect([files.size, asked, await bench.fleet.changes()]).toEqual([1, [], ["admin: Image Windows removed"]]);
  });

  it("removes a record once, though it is asked for twice at the same moment", async () => {
    const answers = await Promise.all([call("DELETE", `/${ID}`), call("DELETE", `/${ID}`)]);
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 404]);
    expect(await bench.fleet.changes()).toEqual(["admin: Image Windows removed"]);
  });

  it("removes the file first where that is asked for", async () => {
    expect((await call("DELETE", `/${ID}?deleteFile=true`)).status).toBe(200);
    expect(asked).toEqual([{ action: "DELETE", filename: image.location }]);
    expect(bench.fleet.triggered[0]?.request.isAudited).toBeUndefined();
    expect([files.size, await bench.deps.images.ofNode(uid)]).toEqual([0, []]);
  });

  it("goes on when the file is gone already", async () => {
    files.clear();
    expect((await call("DELETE", `/${ID}?deleteFile=1`)).status).toBe(200);
    expect(await bench.deps.images.ofNode(uid)).toEqual([]);
  });

  it.each([
    [new RemoteError("busy", "a volume is mounted there"), 422],
    [new SessionError("offline", "went away"), 503],
  ])("keeps the record when the file cannot be removed: %s", async (error, status) => {
    refuseAll(error);
    expect((await call("DELETE", `/${ID}?deleteFile=true`)).status).toBe(status);
    expect(await bench.deps.images.ofNode(uid)).toEqual([image]);
    expect(await bench.fleet.changes()).toEqual([]);
  });

  it("keeps a file that another image is in", async () => {
    await bench.fleet.store.images.put(uid, {
      ...image,
      id: OTHER,
      displayName: "Copy",
      location: "images//win.qcow2",
    });
    const { status, json } = await call("DELETE", `/${ID}?deleteFile=true`);
    expect([status, json]).toEqual([422, ["image Copy uses the same file"]]);
    expect(asked).toEqual([]);
  });
});
