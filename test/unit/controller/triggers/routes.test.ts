import { once } from "node:events";
import type { Server } from "node:http";
import { serve } from "@hono/node-server";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { InputError, SessionError } from "../../../../src/errors.ts";
import { systemClock, type Clock } from "../../../../src/host/clock.ts";
import { RemoteError } from "../../../../src/protocol/channel/rpc.ts";
import { ADMIN_KEY, ApiBench } from "../../../support/control-plane/api-bench.ts";

/** Takes a body in the pieces in which it comes; empty at its end. */
function readerOf({ body }: Response): () => Promise<string> {
  const reader: ReadableStreamDefaultReader<Uint8Array> | undefined = body?.getReader();
  return async () => new TextDecoder().decode((await reader?.read())?.value);
}

let bench: ApiBench;
let uid: string;
let timers: { readonly ms: number; readonly run: () => void }[];

beforeEach(async () => {
  timers = [];
  const clock: Clock = {
    ...systemClock(),
    after: (ms, run) => {
      const timer = { ms, run };
      timers.push(timer);
      return () => void timers.splice(timers.indexOf(timer), 1);
    },
  };
  bench = await ApiBench.create(clock);
  uid = (await bench.fleet.add({ name: "one" })).uid;
});

const trigger = (event: string, json?: unknown, key?: string) =>
  bench.call("POST", `/node/${uid}/trigger/${event}`, { json, ...(key === undefined ? {} : { key }) });
const requests = () => bench.fleet.triggered.map(({ request }) => request);
const lines = (text: string): unknown[] =>
  text
    .trimEnd()
    .split("\n")
    .map((line): unknown => JSON.parse(line));

describe("POST /node/{nodeID}/trigger/{event}", () => {
  it("answers true without waiting, and the node's answer with it", async () => {
    expect((await trigger("flows")).json).toBe(true);
    expect((await trigger("tg-ping?wait=1", { host: "::1", name: "tg-ping" })).json).toEqual({
      output: { message: "pong" },
    });
    expect(requests()).toEqual([
      { event: "flows", body: {}, wait: false, user: "admin", deadlineMs: 30_000 },
      { event: "tg-ping", body: { host: "::1", name: "tg-ping" }, wait: true, user: "admin", deadlineMs: 60_000 },
    ]);
    expect(timers).toEqual([]);
  });

  it.each([
    ["?wait=1", true],
    ["?wait=true", true],
    ["?wait=yes", true],
    ["?wait", false],
    ["?wait=", false],
    ["?wait=0", false],
    ["?wait=false", false],
    ["?wait=0&wait=1", true],
    ["?stream=0", false],
  ])("%s waits: %s", async (query, wait) => {
    expect((await trigger(`flows${query}`)).status).toBe(200);
    expect(requests()).toMatchObject([{ wait }]);
  });

  it.each([
    ["any-event?wait=1", 15_000],
    ["tg-traceroute?wait=1", 60_000],
    ["tg-nc?wait=1", 60_000],
    ["speed-test", 120_000],
    ["tg-ping?stream=1", 660_000],
  ])("gives %s its deadline of %d ms", async (event, deadlineMs) => {
    await trigger(event);
    expect(requests()).toMatchObject([{ deadlineMs }]);
  });

  it.each([undefined, "", "null", "{}"])("takes the body %j for an empty object", async (body) => {
    const headers = { "content-type": "application/json" };
    const path = `/node/${uid}/trigger/flows`;
    expect((await bench.call("POST", path, body === undefined ? {} : { body, headers })).status).toBe(200);
    expect(requests()).toMatchObject([{ body: {} }]);
  });

  it.each(["[]", "1", '"x"', "true"])("refuses the body %s", async (body) => {
    const answer = await bench.call("POST", `/node/${uid}/trigger/flows`, {
      body,
      headers: { "content-type": "application/json" },
    });
    expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(/^body: /)]]);
    expect(requests()).toEqual([]);
  });

  it("refuses a body over 1 MiB", async () => {
    expect((await trigger("flows", { a: "x".repeat(1024 * 1024) })).status).toBe(413);
    expect(requests()).toEqual([]);
  });

  it.each(["-dash", ".dot", "a%20b", "a".repeat(65)])("knows no event %s", async (event) => {
    const answer = await trigger(event);
    expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(/^event: /)]]);
    expect(requests()).toEqual([]);
  });

  it.each([
    ["no-such-event", {}, /^event: no trigger event no-such-event/],
    ["tg-ping", {}, /^host: /],
    ["tg-ping", { host: "-f" }, /^host: /],
  ])("checks %s with %j before it answers without wait", async (event, body, line) => {
    const answer = await trigger(event, body);
    expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(line)]]);
    expect(requests()).toEqual([]);
  });

  it("without wait names a record that tells the outcome to those who may send the event", async () => {
    const { triggers } = bench.fleet.store;
    const id = "4d3f0a44-7d2b-4b7e-8f0e-0d8f7b1c2a11";
    bench.fleet.script = async (_, { onSent, onOutcome }) => {
      await triggers.add({ id, node: uid, event: "node-reboot", user: "admin" }, 1000);
      onSent?.(id);
      await triggers.settle(id, "interrupted");
      await onOutcome?.("interrupted");
      return true;
    };
    const answer = await trigger("node-reboot");
    expect([answer.status, answer.json, answer.headers.get("holdfast-trigger")]).toEqual([200, true, id]);
    const record = { id, event: "node-reboot", user: "admin", sentAt: 1000, outcome: "interrupted" };
    const read = (key?: string, node = uid) =>
      bench.call("GET", `/v2/node/${node}/trigger/${id}`, key === undefined ? {} : { key });
    expect((await read()).json).toEqual(record);
    expect((await read(await bench.keyFor(["nodes::service:node-reboot"]))).json).toEqual(record);
    for (const right of ["nodes::service:tg-ping", "nodes::read", "events::read"]) {
      expect((await read(await bench.keyFor([right]))).status).toBe(403);
    }
    expect((await read(undefined, (await bench.fleet.add({ name: "two" })).uid)).status).toBe(404);
    const audits = JSON.stringify((await bench.call("GET", `/v2/audit/${uid}`)).json);
    expect(audits).toContain("node-reboot of admin ended: interrupted");
  });

  it("reads the record of a sent event once for permission and answer", async () => {
    const { services, store } = bench.fleet;
    const reads = vi.spyOn(services.triggers, "sent");
    await store.triggers.add({ id: "one", node: uid, event: "node-reboot", user: "admin" }, 1000);
    expect((await bench.call("GET", `/v2/node/${uid}/trigger/one`)).status).toBe(200);
    expect((await bench.call("GET", `/v2/node/${uid}/trigger/none`)).status).toBe(404);
    expect(reads).toHaveBeenCalledTimes(2);
  });

  it("refuses a body too deep to be signed and parsed by the node", async () => {
    const nested = (levels: number): unknown => JSON.parse(`${'{"a":'.repeat(levels)}1${"}".repeat(levels)}`);
    expect((await trigger("tg-ping?wait=1", nested(28))).status).toBe(200);
    const answer = await trigger("tg-ping", nested(29));
    expect([answer.status, answer.json]).toEqual([422, ["body: nested deeper than 28 levels"]]);
    expect(requests()).toHaveLength(1);
  });

  it("is open to the permission of the event and to the blanket one", async () => {
    const ping = { host: "::1" };
    expect((await trigger("tg-ping", ping, await bench.keyFor(["nodes::service:tg-ping"]))).status).toBe(200);
    expect((await trigger("tg-ping", ping, await bench.keyFor(["nodes::remote-execute"]))).status).toBe(200);
    expect((await trigger("node-reboot", {}, await bench.keyFor(["nodes::service:tg-ping"]))).status).toBe(403);
    const guarded = await bench.keyFor(["nodes::remote-execute"], ["*"], ["nodes::service:node-reboot"]);
    expect((await trigger("node-reboot", {}, guarded)).status).toBe(403);
    expect((await trigger("*", {}, await bench.keyFor(["nodes::service:tg-ping"]))).status).toBe(403);
  });

  it("captures whole packets only for who holds the permission by its name", async () => {
    const by = async (...key: Parameters<typeof bench.keyFor>) =>
      (await trigger("tg-capture", { action: "status" }, await bench.keyFor(...key))).status;
    expect(await by(["node-advanced::service:tg-capture"])).toBe(200);
    expect(await by(["node-advanced::service:tg-capture"], ["*"], ["node-advanced::*"])).toBe(403);
    expect(await by(["*", "nodes::service:tg-capture"])).toBe(403);
  });

  it("writes a capture into the data store only for who may change that", async () => {
    const file = { iface: "wan0", file: "captures/a" };
    const key = await bench.keyFor(["nodes::service:tg-tcpdump"]);
    expect((await trigger("tg-tcpdump", { iface: "wan0" }, key)).status).toBe(200);
    expect((await trigger("tg-tcpdump", file, key)).status).toBe(403);
    expect((await trigger("tg-tcpdump?stream=1", file, key)).status).toBe(403);
    expect(requests()).toHaveLength(1);
    const both = await bench.keyFor(["nodes::service:tg-tcpdump", "nodes::service:datastore-manager"]);
    expect((await trigger("tg-tcpdump", file, both)).status).toBe(200);
    expect((await trigger("tg-tcpdump", file, await bench.keyFor(["nodes::remote-execute"]))).status).toBe(200);
    const guarded = await bench.keyFor(["nodes::remote-execute"], ["*"], ["nodes::service:datastore-manager"]);
    expect((await trigger("tg-tcpdump", file, guarded)).status).toBe(403);
  });

  it.each(["", "?wait=1", "?stream=1"])("answers 503 for a node that is offline, with '%s'", async (query) => {
    uid = (await bench.fleet.add({ name: "off", isOnline: false })).uid;
    const answer = await trigger(`tg-ping${query}`, { host: "::1" });
    expect([answer.status, answer.json]).toMatchObject([503, { code: "offline" }]);
    // A newer node may know it.
    if (query !== "") expect((await trigger(`tg-newer${query}`)).status).toBe(503);
  });

  it.each(["", "?wait=1", "?stream=1"])(
    "refuses a wrong body before it says that the node is offline, with '%s'",
    async (query) => {
      uid = (await bench.fleet.add({ name: "off", isOnline: false })).uid;
      const answer = await trigger(`tg-ping${query}`, { hots: "::1" });
      expect([answer.status, answer.json]).toMatchObject([
        422,
        expect.arrayContaining([expect.stringMatching(/^host: /)]),
      ]);
      if (query === "")
        expect((await trigger("tg-pong")).json).toEqual([expect.stringMatching(/^event: no trigger event/)]);
    },
  );

  it.each([
    [new RemoteError("invalid-body", "host: missing", { details: { field: "host" } }), 422],
    [new RemoteError("unknown-event", "no such event"), 422],
    [new RemoteError("tool-missing", "mtr is not installed"), 501],
    [new RemoteError("engine-refused", "port 80 is taken by process 4711 (nginx)"), 502],
    [new RemoteError("unauthorized", "?"), 502],
    [new RemoteError("invalid-query", "?"), 502],
    [new InputError("busy", "eight are running"), 422],
    [new SessionError("offline", "went away"), 503],
    [new SessionError("timeout", "too late"), 504],
  ])("hands on what the node refuses: %s", async (error, status) => {
    bench.fleet.script = async () => {
      throw error;
    };
    for (const query of ["?wait=1", "?stream=1", ""]) {
      const answer = await trigger(`tg-ping${query}`, { host: "::1" });
      const { code, message } = error;
      const told = status === 422 ? [message] : { code, message, error: message };
      expect([answer.status, answer.json]).toEqual([status, told]);
    }
  });

  it("gives up five seconds after the deadline", async () => {
    bench.fleet.script = (_, { signal }) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason as Error));
        const [timer] = timers;
        expect(timer?.ms).toBe(20_000);
        timer?.run();
      });
    const answer = await trigger("any-event?wait=1");
    expect([answer.status, answer.json]).toMatchObject([504, { code: "timeout" }]);
    expect(timers).toEqual([]);
  });
});

describe("with stream=1", () => {
  it("answers every chunk and then the result", async () => {
    bench.fleet.script = (_, { onProgress }) => {
      onProgress?.({ seq: 1, kind: "stdout", data: "64 bytes\n" });
      onProgress?.({ seq: 2, kind: "stderr", data: "oh" });
      return Promise.resolve({ exitCode: 0 });
    };
    const answer = await trigger("tg-ping?stream=1");
    expect(answer.headers.get("content-type")).toBe("application/x-ndjson");
    expect(lines(answer.text)).toEqual([
      { seq: 1, kind: "stdout", data: "64 bytes\n" },
      { seq: 2, kind: "stderr", data: "oh" },
      { result: { exitCode: 0 } },
    ]);
    expect(timers).toEqual([]);
  });

  it("answers just the result when there is no output", async () => {
    expect(lines((await trigger("tg-ping?stream=1")).text)).toEqual([{ result: { output: { message: "pong" } } }]);
  });

  it("ends with the error once output has begun", async () => {
    bench.fleet.script = (_, { onProgress }) => {
      onProgress?.({ seq: 1, kind: "stdout", data: "x" });
      return Promise.reject(new RemoteError("exec-failed", "killed"));
    };
    const answer = await trigger("tg-ping?stream=1");
    expect(answer.status).toBe(200);
    expect(lines(answer.text).at(-1)).toEqual({ error: "killed", code: "exec-failed" });
  });

  it("takes the trigger back when its reader turns away", async () => {
    const cancelled = new Promise<unknown>((resolve) => {
      bench.fleet.script = (_, { onProgress, signal }) => {
        signal.addEventListener("abort", () => resolve(signal.reason));
        onProgress?.({ seq: 1, kind: "stdout", data: "x" });
        return new Promise(() => undefined);
      };
    });
    const headers = { authorization: ADMIN_KEY };
    const response = await bench.app.request(`/node/${uid}/trigger/tg-ping?stream=1`, { method: "POST", headers });
    await response.body?.cancel();
    expect(await cancelled).toMatchObject({ code: "cancelled" });
  });

  it("takes the trigger back when its reader does not keep up", async () => {
    let reason: unknown;
    let sent = 0;
    bench.fleet.script = (_, { onProgress, signal }) => {
      while (!signal.aborted && sent < 1000) {
        sent += 1;
        onProgress?.({ seq: sent, kind: "stdout", data: "x".repeat(16 * 1024) });
      }
      reason = signal.reason;
      return Promise.reject(new SessionError("cancelled", "taken back"));
    };
    const answer = await trigger("tg-ping?stream=1");
    expect(reason).toMatchObject({ code: "cancelled" });
    expect(answer.text.length).toBeLessThan(4.1 * 1024 * 1024);
    expect(lines(answer.text).length).toBe(sent + 1);
    expect(lines(answer.text).at(-1)).toMatchObject({ code: "cancelled" });
  });
});

describe("over a socket", () => {
  let server: Server | undefined;

  afterEach(() => {
    server?.closeAllConnections();
    server?.close();
  });

  async function listen(): Promise<string> {
    const started = serve({ fetch: bench.app.fetch, hostname: "127.0.0.1", port: 0 });
    server = z.custom<Server>((value) => value !== null).parse(started);
    await once(server, "listening");
    const address = z.object({ port: z.number() }).parse(server.address());
    return `http://127.0.0.1:${address.port}/node/${uid}/trigger/tg-ping`;
  }

  it.each(["?wait=1", "?stream=1"])("a caller who goes away cancels the trigger, with %s", async (query) => {
    const address = await listen();
    const caller = new AbortController();
    const reason = new Promise<unknown>((resolve) => {
      bench.fleet.script = (_, { signal, onProgress }) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => {
            resolve(signal.reason);
            reject(signal.reason as Error);
          });
          onProgress?.({ seq: 1, kind: "stdout", data: "begun" });
          if (query === "?wait=1") caller.abort();
        });
    });
    const options = { method: "POST", headers: { authorization: ADMIN_KEY }, signal: caller.signal };
    const asked = fetch(address + query, options);
    if (query === "?wait=1") {
      await expect(asked).rejects.toThrow();
    } else {
      const next = readerOf(await asked);
      expect(await next()).toContain("begun");
      caller.abort();
    }
    expect(await reason).toMatchObject({ code: "cancelled" });
  });

  it("chunks come as they are made", async () => {
    const address = await listen();
    let emit: ((data: string) => void) | undefined;
    let finish: ((result: unknown) => void) | undefined;
    bench.fleet.script = (_, { onProgress }) => {
      let seq = 0;
      emit = (data) => onProgress?.({ seq: (seq += 1), kind: "stdout", data });
      emit("one");
      return new Promise((resolve) => {
        finish = resolve;
      });
    };
    const response = await fetch(`${address}?stream=1`, { method: "POST", headers: { authorization: ADMIN_KEY } });
    const next = readerOf(response);
    expect(lines(await next())).toEqual([{ seq: 1, kind: "stdout", data: "one" }]);
    emit?.("two");
    expect(lines(await next())).toEqual([{ seq: 2, kind: "stdout", data: "two" }]);
    finish?.({ exitCode: 0 });
    expect(lines(await next())).toEqual([{ result: { exitCode: 0 } }]);
    expect(await next()).toBe("");
  });

  it("an overlong body is refused without being read to its end", async () => {
    const address = await listen();
    const answer = await fetch(address, {
      method: "POST",
      headers: { authorization: ADMIN_KEY, "content-type": "application/json" },
      body: "x".repeat(3 * 1024 * 1024),
    });
    expect(answer.status).toBe(413);
    expect(await answer.json()).toMatchObject({ code: "too-large" });
  });
});
