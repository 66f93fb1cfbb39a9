import { createServer, type RequestListener, type Server } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import {
  megabitsPerSecond,
  speedTest,
  type SpeedTestOptions,
} from "../../../../../src/agent/triggers/diagnostics/speed-test.ts";
import type { TransferTarget } from "../../../../../src/agent/triggers/tools/speed-transfer.ts";
import { systemClock, type Clock } from "../../../../../src/host/clock.ts";
import { deferred } from "../../../../support/deferred.ts";
import { rig } from "../rig.ts";

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

interface Seen {
  readonly got: string[];
  posted: number;
  most: number;
}

/** A server for speed tests, which counts requests. */
async function serve(listener?: RequestListener): Promise<{ readonly url: URL; readonly seen: Seen }> {
  const seen: Seen = { got: [], posted: 0, most: 0 };
  let now = 0;
  const server = createServer((request, response) => {
    now += 1;
    seen.most = Math.max(seen.most, now);
    response.on("close", () => (now -= 1));
    seen.got.push(`${request.method} ${request.url}`);
    if (listener !== undefined) listener(request, response);
    else if (request.method === "GET") {
      const bytes = Number(new URL(request.url ?? "", "http://h").searchParams.get("bytes"));
      response.end(Buffer.alloc(bytes));
    } else {
      request.on("data", (piece: Buffer) => (seen.posted += piece.length));
      request.on("end", () => response.writeHead(204).end());
    }
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/speed`), seen };
}

/** Plain connections to the test's own servers. */
function to(url: URL): TransferTarget {
  return { url, connect: () => Promise.resolve(connect(Number(url.port), url.hostname)) };
}

const NEVER_MS = 3_600_000;
/** Ends by its volume, in any time; nothing stalls. */
const small = {
  clock: systemClock(),
  durationMs: NEVER_MS,
  reportMs: 100,
  stallMs: NEVER_MS,
  maxBytes: 4_000_000,
};

async function measure(options: Partial<SpeedTestOptions>, body: unknown = {}) {
  const reply = await rig([speedTest({ ...small, target: () => undefined, ...options })]).run("speed-test", { body });
  const text = JSON.stringify(reply);
  if ("error" in reply) return { error: reply.error, lines: [], text };
  const { output } = reply.body as { output: { message: string; exitCode: string } };
  const lines = output.message.trim().split("\n");
  return { error: undefined, lines: lines.map((line) => JSON.parse(line) as Record<string, unknown>), text };
}

test("decimal megabits", () => {
  expect([megabitsPerSecond(1_250_000, 1000), megabitsPerSecond(1, 0), megabitsPerSecond(0, 5)]).toEqual([10, 0, 0]);
});

describe("measures", () => {
  test("both directions over four connections, and ends with all four figures", async () => {
    const { url, seen } = await serve();
    const { lines } = await measure({ target: () => to(url) });
    const last = lines.at(-1);
    expect(last).toMatchObject({ done: true });
    for (const name of ["downloadMbps", "maxDownloadMbps", "uploadMbps", "maxUploadMbps"])
      expect(last?.[name]).toBeGreaterThan(0);
    expect(lines.slice(0, -1).every((line) => line["done"] === undefined)).toBe(true);
    expect(seen.got.some((line) => /^GET \/speed\?bytes=\d+$/.test(line))).toBe(true);
    expect(seen.got.some((line) => line === "POST /speed")).toBe(true);
    expect(seen.most).toBeLessThanOrEqual(4);
  });

  test("one direction on request, within the allowed volume", async () => {
    const { url, seen } = await serve();
    const { lines } = await measure({ target: () => to(url), maxBytes: 1_000_000 }, { action: "upload" });
    expect(lines.at(-1)).toMatchObject({ done: true, downloadMbps: 0, maxDownloadMbps: 0 });
    expect(seen.posted).toBe(1_000_000);
    expect(seen.got.filter((line) => line.startsWith("GET"))).toEqual([]);
    const down = await measure({ target: () => to(url), maxBytes: 1_000_000 }, { action: "download" });
    expect(down.lines.at(-1)).toMatchObject({ done: true, uploadMbps: 0 });
  });

  test("for the set time against a server that never ends, and no more than requested", async () => {
    const { url } = await serve((_, response) => {
      const fill = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(16_384)));
      };
      response.on("drain", fill);
      fill();
    });
    const timed = { target: () => to(url), maxBytes: 1e15, durationMs: 300 };
    const { lines } = await measure(timed, { action: "download" });
    expect(lines.length).toBeGreaterThanOrEqual(2);
    expect(lines.at(-1)).toMatchObject({ done: true });
    const bounded = await measure({ target: () => to(url), maxBytes: 1_000_000 }, { action: "download" });
    expect(bounded.lines.at(-1)).toMatchObject({ done: true });
  });
});

test("the peak is never below the average, not even when the last interval is the fastest", async () => {
  // Almost nothing for one interval, then everything at once: the whole is then faster than the one interval that was timed.
  const timed = deferred<void>();
  let intervals = 0;
  const real = systemClock();
  const sleep: Clock["sleep"] = (ms, signal) => {
    // The previous one is timed.
    if (++intervals === 2) timed.resolve();
    return real.sleep(ms, signal);
  };
  const { url } = await serve((_, response) => {
    response.write(Buffer.alloc(1000));
    void timed.promise.then(() => response.end(Buffer.alloc(4_000_000)));
  });
  const { lines } = await measure({ clock: { ...real, sleep }, target: () => to(url) }, { action: "download" });
  expect(lines.length).toBeGreaterThan(2);
  for (const line of lines) {
    expect(Number(line["maxDownloadMbps"])).toBeGreaterThanOrEqual(Number(line["downloadMbps"]));
  }
  expect(lines.at(-1)?.["downloadMbps"]).toBeGreaterThan(0);
});

describe("reports", () => {
  test("a missing server, a wrong action, and an INACTIVE node", async () => {
    expect((await measure({})).error).toMatchObject({ code: "not-configured" });
    const { url } = await serve();
    expect((await measure({ target: () => to(url) }, { action: "sideways" })).error).toMatchObject({
      code: "invalid-body",
      details: { field: "action" },
    });
    const inactive = rig([speedTest({ ...small, target: () => to(url) })], {
      node: { type: "Node", state: "INACTIVE" },
    });
    expect(await inactive.run("speed-test")).toMatchObject({ error: { code: "inactive" } });
  });

  test("a server that stalls, in either direction", async () => {
    const { url } = await serve((_, response) => response.flushHeaders());
    for (const action of ["download", "upload"]) {
      const silent = action === "download" ? url : (await serve(() => undefined)).url;
      const stalling = { target: () => to(silent), stallMs: 300, maxBytes: 1e9 };
      const { error } = await measure(stalling, { action });
      expect(error).toMatchObject({ code: "timeout", details: { server: silent.host } });
    }
  });

  test.each([
    ["an error", (status: number) => status, 500],
    ["a redirect", (status: number) => status, 302],
  ])("a server that answers with %s", async (_, __, status) => {
    const { url } = await serve((request, response) => {
      request.resume();
      response.writeHead(status, { location: "/else" }).end();
    });
    for (const action of ["download", "upload"]) {
      expect((await measure({ target: () => to(url) }, { action })).error).toMatchObject({
        code: "exec-failed",
        message: `speed-test server ${url.host}: it answered with status ${status}`,
      });
    }
  });

  test("one that sends less, resets, or is unreachable", async () => {
    const { url } = await serve((_, response) => response.end("short"));
    expect((await measure({ target: () => to(url) })).error?.message).toContain("it sent 5 of");
    const { url: resetting } = await serve((request) => request.socket.resetAndDestroy());
    for (const action of ["download", "upload"]) {
      expect((await measure({ target: () => to(resetting) }, { action })).error).toMatchObject({ code: "exec-failed" });
    }
    const gone = new URL("http://127.0.0.1:1/");
    expect((await measure({ target: () => to(gone) })).error).toMatchObject({ code: "exec-failed" });
  });

  test("nothing after a cancel", async () => {
    const { url } = await serve();
    const trigger = speedTest({ ...small, maxBytes: 1e15, target: () => to(url) });
    const { dispatcher, run } = rig([trigger]);
    const jti = "6e1f7d3c-94c4-4c1c-9c36-8d6a9b7c0010";
    const reply = run("speed-test", { jti });
    expect(await run("speed-test")).toMatchObject({ error: { code: "busy" } });
    dispatcher.cancel(jti);
    expect(await reply).toMatchObject({ error: { code: "cancelled" } });
  });
});
