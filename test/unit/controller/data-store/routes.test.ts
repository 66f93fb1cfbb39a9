import { beforeEach, describe, expect, it } from "vitest";
import { SessionError } from "../../../../src/errors.ts";
import { RemoteError } from "../../../../src/protocol/channel/rpc.ts";
import { replyParts } from "../../../../src/protocol/channel/reply-parts.ts";
import type { TriggerScript } from "../../../support/control-plane/fleet-stage.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { ApiBench, type CallOptions } from "../../../support/control-plane/api-bench.ts";

let bench: ApiBench;
let base: string;
const ID = "0d1c2b3a-4f5e-4d6c-8b7a-091827364554";

beforeEach(async () => {
  bench = await ApiBench.create();
  base = `/v2/node/${(await bench.fleet.add({ name: "one" })).uid}/data-store`;
  bench.fleet.script = () => Promise.resolve({ id: ID });
});

const call = (method: string, path: string, json?: unknown, options: CallOptions = {}) =>
  bench.call(method, base + path, { ...(json === undefined ? {} : { json }), ...options });
const requests = () => bench.fleet.triggered.map(({ request }) => request);
const answering =
  (...results: readonly unknown[]): TriggerScript =>
  () =>
    Promise.resolve(results[Math.min(requests().length, results.length) - 1]);

const download = { uri: "https://files.example/a.iso?sig=1", filename: "a.iso", location: "/isos" };

describe("what is sent to the node", () => {
  it.each([
    ["GET", "/list", undefined, { files: [] }, { action: "LIST" }, 60_000],
    ["GET", "/list?filename=/images", undefined, { files: [] }, { action: "LIST", filename: "/images" }, 60_000],
    ["DELETE", "", { filename: "images/x" }, {}, { action: "DELETE", filename: "images/x" }, 600_000],
    ["DELETE", "?filename=images%2Fx", undefined, {}, { action: "DELETE", filename: "images/x" }, 600_000],
    ["POST", "/mkdir", { filename: "a/b" }, {}, { action: "MKDIR", filename: "a/b" }, 30_000],
    ["POST", "/http-download", download, { id: ID }, { action: "HTTP_DOWNLOAD", ...download }, 30_000],
    [
      "POST",
      "/http-download",
      { uri: "http://files.example/a", filename: "a", hash: "", algo: null },
      { id: ID },
      { action: "HTTP_DOWNLOAD", uri: "http://files.example/a", filename: "a", location: "/" },
      30_000,
    ],
    [
      "POST",
      "/http-download",
      { ...download, hash: "0".repeat(32), algo: "MD5" },
      { id: ID },
      { action: "HTTP_DOWNLOAD", ...download, hash: "0".repeat(32), algo: "MD5" },
      30_000,
    ],
    [
      "POST",
      "/http-upload",
      { filePath: "a", uri: "https://files.example/", multipart: true },
      { id: ID },
      { action: "HTTP_UPLOAD", filePath: "a", uri: "https://files.example/", multipart: true },
      30_000,
    ],
    [
      "POST",
      "/s3-download",
      { uri: "s3://bucket/key/a", location: "/isos/a" },
      { id: ID },
      { action: "S3_DOWNLOAD", uri: "s3://bucket/key/a", location: "/isos/a" },
      30_000,
    ],
    [
      "POST",
      "/s3-upload",
      { filePath: "a", bucketDest: "s3://bucket/a" },
      { id: ID },
      { action: "S3_UPLOAD", filePath: "a", bucketDest: "s3://bucket/a" },
      30_000,
    ],
    ["GET", "/tasks", undefined, { tasks: [] }, { action: "TASKS" }, 30_000],
  ] as const)("%s %s of %j answers as the node does", async (method, path, json, answer, body, deadlineMs) => {
    bench.fleet.script = answering(answer);
    const answered = await call(method, path, json);
    expect([answered.status, answered.json]).toEqual([200, answer]);
    expect(requests()).toEqual([{ event: "datastore-manager", body, wait: true, user: "admin", deadlineMs }]);
  });
});

describe("what is refused without asking the node", () => {
  it.each([
    ["GET", "/list?filename=", undefined, /^filename: /],
    ["DELETE", "", undefined, /^filename: is missing$/],
    ["DELETE", "", {}, /^filename: is missing$/],
    ["DELETE", "", { filename: 7 }, /^filename: /],
    ["DELETE", "?filename=a", { filename: "b" }, /^filename: body and query name different ones$/],
    ["POST", "/mkdir", {}, /^filename: /],
    ["POST", "/mkdir", undefined, /^body: /],
    ["POST", "/mkdir", { filename: "a\0b" }, /^filename: must hold no NUL$/],
    ["POST", "/mkdir", { filename: "x".repeat(4097) }, /^filename: /],
    ["POST", "/http-download", { filename: "a" }, /^uri: /],
    ["POST", "/http-download", { uri: "https://files.example/a" }, /^filename: /],
    [
      "POST",
      "/http-download",
      { ...download, uri: "ftp://files.example/a" },
      /^uri: must be an http or https address$/,
    ],
    ["POST", "/http-download", { ...download, uri: "https://me:pw@files.example/a" }, /^uri: must hold no user name/],
    ["POST", "/http-download", { ...download, location: 1 }, /^location: /],
    ["POST", "/http-download", { ...download, algo: "SHA-512" }, /^algo: /],
    ["POST", "/http-download", { ...download, hash: "x".repeat(64) }, /^hash: must be hexadecimal digits$/],
    ["POST", "/http-download", { ...download, hash: "00" }, /^hash: must be 64 digits for SHA-256$/],
    ["POST", "/http-upload", { uri: "https://files.example/a" }, /^filePath: /],
    ["POST", "/http-upload", { filePath: "a" }, /^uri: /],
    ["POST", "/http-upload", { filePath: "a", uri: "https://files.example/", multipart: "yes" }, /^multipart: /],
    ["POST", "/s3-download", { uri: "s3://b/k", location: "a" }, /^uri: must be s3:/],
    ["POST", "/s3-download", { uri: "s3://bucket/k" }, /^location: /],
    ["POST", "/s3-upload", { bucketDest: "s3://bucket/k" }, /^filePath: /],
    ["POST", "/s3-upload", { filePath: "a", bucketDest: "https://bucket/k" }, /^bucketDest: must be s3:/],
  ] as const)("%s %s of %j", async (method, path, json, line) => {
    const { status, json: lines } = await call(method, path, json);
    expect([status, lines]).toEqual([422, [expect.stringMatching(line)]]);
    expect(requests()).toEqual([]);
  });

  it("a node that is offline, is an agent, or is none", async () => {
    const under = async (change: object) =>
      `/v2/node/${(await bench.fleet.add({ name: "two", ...change })).uid}/data-store/tasks`;
    expect(await bench.call("GET", await under({ isOnline: false }))).toMatchObject({
      status: 503,
      json: { code: "offline" },
    });
    const agent = await bench.call("GET", await under({ name: "laptop", type: "Agent" }));
    expect(agent).toMatchObject({ status: 422, json: ["agents have no data store"] });
    expect((await bench.call("GET", `/v2/node/${ID}/data-store/tasks`)).status).toBe(404);
    expect(requests()).toEqual([]);
  });

  it("whoever lacks the one permission, also with the blanket one for triggers", async () => {
    const key = await bench.keyFor(["nodes::read", "nodes::manage", "nodes::remote-execute"]);
    expect((await call("GET", "/tasks", undefined, { key })).status).toBe(403);
    bench.fleet.script = answering({ tasks: [] });
    const allowed = await bench.keyFor(["nodes::service:datastore-manager"]);
    expect((await call("GET", "/tasks", undefined, { key: allowed })).status).toBe(200);
  });
});

describe("what the node refuses", () => {
  it.each([
    [new RemoteError("not-found", "there is no a"), 404],
    [new RemoteError("invalid-body", "filename: leads out", { details: { field: "filename" } }), 422],
    [new RemoteError("busy", "32 transfers are waiting"), 422],
    [new RemoteError("inactive", "the node is INACTIVE"), 422],
    [new RemoteError("storage-unavailable", "the disk is full"), 507],
    [new RemoteError("unknown-event", "an old node"), 422],
    [new SessionError("offline", "went away"), 503],
    [new SessionError("timeout", "too late"), 504],
  ])("%s has its status", async (refusal, status) => {
    bench.fleet.script = () => Promise.reject(refusal);
    for (const [method, path, json] of [
      ["GET", "/list", undefined],
      ["DELETE", "", { filename: "a" }],
      ["POST", "/http-download", download],
    ] as const) {
      const answer = await call(method, path, json);
      const told =
        status === 422 ? [refusal.message] : { code: refusal.code, error: refusal.message, message: refusal.message };
      expect([answer.status, answer.json]).toEqual([status, told]);
    }
  });

  it("and an answer that is none is the node's fault", async () => {
    bench.fleet.script = answering({ files: "none" });
    expect(await call("GET", "/list")).toMatchObject({ status: 502, json: { code: "invalid-reply" } });
    expect(await call("GET", "/tasks")).toMatchObject({ status: 502, json: { code: "invalid-reply" } });
  });
});

describe("a listing in parts", () => {
  const files = Array.from({ length: 10_000 }, (_, index) => {
    const name = `${"ü😀".repeat(20)}-${index}.bin`;
    return { name, path: `images/${name}`, type: "file", size: "1.2 GB", bytes: 1_200_000_000 + index };
  });
  const text = JSON.stringify({ files });
  const sent = (drop: number): TriggerScript => {
    return (_, { onProgress }) => {
      let seq = 0;
      for (const data of replyParts(text)) {
        seq += 1;
        if (seq !== drop) onProgress?.({ seq, kind: "json", data });
      }
      return Promise.resolve({ replyBytes: Buffer.byteLength(text) });
    };
  };

  it("is put together", async () => {
    bench.fleet.script = sent(0);
    const answer = await call("GET", "/list");
    expect(answer.status).toBe(200);
    expect(answer.json).toEqual({ files });
  });

  it("of which one is lost is no listing", async () => {
    bench.fleet.script = sent(3);
    expect(await call("GET", "/list")).toMatchObject({ status: 502, json: { code: "interrupted" } });
  });

  it("that does not end is taken back", async () => {
    const part = { replyPart: "x".repeat(16 * 1024) };
    bench.fleet.script = (_, { onProgress, signal }) => {
      for (let seq = 0; seq < 2000 && !signal.aborted; seq += 1) onProgress?.({ seq, kind: "json", data: part });
      return Promise.reject(signal.aborted ? (signal.reason as Error) : new Error("never stopped"));
    };
    expect(await call("GET", "/list")).toMatchObject({ status: 502, json: { code: "too-large" } });
  });
});

describe("listings in parts that are under way", () => {
  const listing = (bytes: number) => ({
    files: [{ name: "x".repeat(bytes), path: "x", type: "file", size: "1 B", bytes: 1 }],
  });
  const large = JSON.stringify(listing(100_000));
  const [first, ...rest] = replyParts(large);
  const path = (uid: string) => `/v2/node/${uid}/data-store/list`;
  let nodes: readonly string[];
  let end: (() => void)[];

  /** Nodes whose answers stop after their first part, until they are let go on. */
  beforeEach(async () => {
    nodes = await Promise.all(
      Array.from({ length: 9 }, async (_, at) => (await bench.fleet.add({ name: `many-${at}` })).uid),
    );
    end = [];
    bench.fleet.script = async (_, { onProgress, signal }) => {
      onProgress?.({ seq: 0, kind: "json", data: first });
      if (signal.aborted) throw signal.reason;
      await new Promise<void>((resolve) => void end.push(resolve));
      for (const [at, data] of rest.entries()) onProgress?.({ seq: at + 1, kind: "json", data });
      return { replyBytes: Buffer.byteLength(large) };
    };
  });

  const begun = async (uids: readonly string[]) => {
    const before = end.length;
    const answers = uids.map((uid) => bench.call("GET", path(uid)));
    await waitFor("all have begun", () => end.length === before + uids.length);
    return answers;
  };
  const endAll = (): void => {
    for (const go of end.splice(0)) go();
  };
  const refused = async (uid: string) => {
    const { status, json, headers } = await bench.call("GET", path(uid));
    expect([status, json]).toMatchObject([503, { code: "overloaded" }]);
    expect(headers.get("retry-after")).toBe("5");
  };

  it("are so many that more are refused for a while, and those are put together", async () => {
    const answers = await begun(nodes.slice(0, 8));
    await refused(nodes[8] ?? "");
    const trigger = await bench.call("POST", `/node/${nodes[8]}/trigger/datastore-manager?wait=1`);
    expect([trigger.status, trigger.json]).toMatchObject([503, { code: "overloaded" }]);
    endAll();
    for (const { status, text } of await Promise.all(answers)) expect([status, text]).toEqual([200, large]);
    const again = await begun(nodes.slice(1));
    endAll();
    expect((await Promise.all(again)).map(({ status }) => status)).toEqual(Array(8).fill(200));
  });

  it("are two of one node at most", async () => {
    const [one = "", two = ""] = nodes;
    const answers = await begun([one, one]);
    await refused(one);
    const [other] = await begun([two]);
    endAll();
    expect((await Promise.all([...answers, other])).map((answer) => answer?.status)).toEqual([200, 200, 200]);
  });

  it("do not keep those that come whole, or that only wait", async () => {
    const answers = await begun(nodes.slice(0, 8));
    const held = bench.fleet.script;
    bench.fleet.script = () => Promise.resolve(listing(10));
    const whole = await bench.call("GET", path(nodes[0] ?? ""));
    expect([whole.status, whole.json]).toEqual([200, listing(10)]);
    bench.fleet.script = held;
    endAll();
    await Promise.all(answers);
    // Twenty that have sent nothing yet count for nothing.
    const silent: (() => void)[] = [];
    bench.fleet.script = () => new Promise((resolve) => silent.push(() => resolve(listing(10))));
    const waiting = Array.from({ length: 20 }, () => bench.call("GET", path(nodes[0] ?? "")));
    await waitFor("all wait", () => silent.length === 20);
    bench.fleet.script = held;
    const more = await begun(nodes.slice(0, 8));
    endAll();
    for (const go of silent) go();
    expect((await Promise.all([...more, ...waiting])).every(({ status }) => status === 200)).toBe(true);
  });

  it("count no more once they have failed", async () => {
    const held = bench.fleet.script;
    bench.fleet.script = (_, { onProgress }) => {
      onProgress?.({ seq: 0, kind: "json", data: first });
      return Promise.reject(new SessionError("offline", "went away"));
    };
    for (let at = 0; at < 20; at += 1) expect((await bench.call("GET", path(nodes[0] ?? ""))).status).toBe(503);
    bench.fleet.script = held;
    const answers = await begun(nodes.slice(0, 8));
    endAll();
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(Array(8).fill(200));
  });
});

describe("DELETE of a task", () => {
  const task = (status: string) => ({ id: ID, name: "Transfer HTTP File", status, details: "", sTime: 1 });

  it.each([
    ["Pending", "CANCEL"],
    ["Running", "CANCEL"],
    ["Completed", "CLEAR"],
    ["Failed", "CLEAR"],
    ["Cancelled", "CLEAR"],
  ])("that is %s is a %s", async (status, action) => {
    bench.fleet.script = answering({ tasks: [task(status)] }, { whatever: 1 });
    const answer = await call("DELETE", `/tasks/${ID.toUpperCase()}`);
    expect([answer.status, answer.json]).toEqual([200, {}]);
    expect(requests().map(({ body }) => body)).toEqual([{ action: "TASKS" }, { action, id: ID }]);
    expect(requests().map(({ isAudited }) => isAudited)).toEqual([false, undefined]);
  });

  it("that is not there is refused", async () => {
    bench.fleet.script = answering({ tasks: [task("Running")] });
    const answer = await call("DELETE", "/tasks/0d1c2b3a-0000-4d6c-8b7a-091827364554");
    expect([answer.status, answer.json]).toMatchObject([404, { code: "not-found" }]);
  });
});

it("the trigger itself has the deadline of what it is to do", async () => {
  const trigger = (json?: unknown) =>
    bench.call("POST", `${base.replace("/v2", "").replace("/data-store", "")}/trigger/datastore-manager?wait=1`, {
      json,
    });
  for (const json of [
    undefined,
    { action: "LIST" },
    { action: "DELETE", filename: "a" },
    { action: "CLEAR", id: ID },
    { action: "NEW" },
  ]) {
    expect((await trigger(json)).status).toBe(200);
  }
  expect(requests().map(({ deadlineMs }) => deadlineMs)).toEqual([60_000, 60_000, 600_000, 30_000, 30_000]);
});

it("the trigger itself answers what comes in parts as a whole, to who waits", async () => {
  const text = JSON.stringify({ files: [{ name: "x".repeat(100_000) }] });
  bench.fleet.script = (_, { onProgress }) => {
    let seq = 0;
    for (const data of replyParts(text)) onProgress?.({ seq: (seq += 1), kind: "json", data });
    return Promise.resolve({ replyBytes: text.length });
  };
  const path = `${base.replace("/v2", "").replace("/data-store", "")}/trigger/datastore-manager?wait=1`;
  expect((await bench.call("POST", path)).text).toBe(text);
});
