import { execFile } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { pino } from "pino";
import { expect, test } from "vitest";
import { openCaptures, tgCapture } from "../../../../../src/agent/triggers/diagnostics/tg-capture.ts";
import { HostError, InputError } from "../../../../../src/errors.ts";
import { systemClock, type Clock } from "../../../../../src/host/clock.ts";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { hostExec, type Exec } from "../../../../../src/host/process/exec.ts";
import type { TgCapture } from "../../../../../src/protocol/triggers/capture.ts";
import { fakeTools } from "../../../../support/fake-tools.ts";
import { somePcap } from "../../../../support/some-pcap.ts";
import { tempDir } from "../../../../support/temp-dir.ts";
import { waitFor } from "../../../../support/wait-for.ts";
import { LOCAL_USER } from "../../../../../src/agent/triggers/execution/trigger.ts";
import { rig } from "../../../../unit/agent/triggers/rig.ts";

const BEGUN = 'echo "tcpdump: listening on lo, link-type EN10MB" >&2';
const UNTIL_STOPPED = 'trap "exit 0" INT; while :; do sleep 0.05; done';

interface StageOptions {
  readonly lengths?: readonly number[];
  /** Shell lines after the packets were written. */
  readonly after?: string;
  readonly clock?: Clock;
  /** Capacity of the store in bytes. */
  readonly room?: number;
  /** The machine's own tools instead of a tcpdump of the test's. */
  readonly exec?: Exec;
}

function stage({
  lengths = [60, 60],
  after = UNTIL_STOPPED,
  clock = systemClock(),
  room = Infinity,
  exec,
}: StageOptions = {}) {
  const stream = join(tempDir(), "stream");
  writeFileSync(stream, somePcap(lengths));
  const tools = fakeTools({ tcpdump: `case "$1" in -d) exit 0;; esac\n${BEGUN}\ncat '${stream}'\n${after}` });
  const stored = new Map<string, Buffer>();
  const audits: string[] = [];
  const unpublished = new Set<string>();
  let left = room;
  const captures = openCaptures({
    exec: exec ?? tools.exec,
    files: hostFiles(),
    clock,
    log: pino({ level: "silent" }),
    audit: (what) => void audits.push(what),
    store: {
      handle(request) {
        if (request.action === "DELETE") stored.delete(request.filename);
        if (request.action !== "LIST") return Promise.resolve({});
        if (stored.size === 0) return Promise.reject(new InputError("not-found", "no directory"));
        const files = [...stored].map(([path, content]) => ({
          name: path.slice("captures/".length),
          path,
          type: "file",
          bytes: content.length,
          size: "",
        }));
        return Promise.resolve({ files });
      },
      create(path) {
        const parts: Buffer[] = [];
        unpublished.add(path);
        return Promise.resolve({
          append(content: Uint8Array) {
            left -= content.length;
            if (left < 0) throw new HostError("disk-full", "no room");
            parts.push(Buffer.from(content));
          },
          publish() {
            unpublished.delete(path);
            stored.set(path, Buffer.concat(parts));
            return Promise.resolve(0);
          },
          discard: () => void unpublished.delete(path),
        });
      },
    },
  });
  const signal = new AbortController().signal;
  const ask = (request: object, user = "jane@example.net") =>
    captures.handle(
      {
        filter: "",
        maxMegabytes: 100,
        maxSeconds: 86_400,
        packetCount: 0,
        deleteExisting: false,
        ...request,
      } as TgCapture,
      user,
      signal,
    );
  const start = (more: object = {}, user?: string) => ask({ action: "start", iface: "lo", ...more }, user);
  const ended = () =>
    waitFor("the end", async () => {
      const answer = await ask({ action: "status" });
      return answer.state === "STOPPED" ? answer : undefined;
    });
  return { captures, tools, stored, audits, unpublished, ask, start, ended };
}

test("a capture runs until stopped, and its files remain", async () => {
  const { ask, start, stored, tools, audits } = stage();
  expect(await ask({ action: "status" })).toEqual({ state: "STOPPED", files: [] });
  const begun = await start({ filter: "icmp" }, LOCAL_USER);
  expect(begun).toMatchObject({
    state: "RUNNING",
    capture: { iface: "lo", filter: "icmp", maxMegabytes: 100, user: "local" },
    files: [],
  });
  expect(audits).toEqual(["local started a capture of packets on lo"]);
  await expect(start()).rejects.toMatchObject({ code: "busy" });
  await waitFor("both packets", async () => (await ask({ action: "status" })).capture?.packets === 2);
  expect(stored.size).toBe(0);
  const stopped = await ask({ action: "stop" });
  expect(stopped).toMatchObject({
    state: "STOPPED",
    capture: { packets: 2, bytes: 24 + 2 * 76, reason: { code: "stopped" } },
  });
  const [[path, content] = ["", Buffer.alloc(0)]] = stored;
  expect(path).toMatch(/^captures\/capture-\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\.pcap0$/);
  expect(content).toEqual(somePcap([60, 60]));
  expect(stopped.files).toEqual([{ path, bytes: content.length }]);
  expect(tools.calls("tcpdump")).toEqual(["-d -n -i lo -- icmp", "-n -i lo -w - -- icmp"]);
  expect(await ask({ action: "stop" })).toMatchObject({ state: "STOPPED", capture: { reason: { code: "stopped" } } });
});

test("keeps the packets that tcpdump had not received when it was stopped", async () => {
  const { ask, start } = stage({ exec: hostExec(systemClock()) });
  await start({ filter: "icmp" });
  await promisify(execFile)("ping", ["-c", "1", "127.0.0.1"]);
  const { capture } = await ask({ action: "stop" });
  expect(capture?.packets).toBeGreaterThanOrEqual(2);
});

test("replaces the oldest file, so that all together stay within the limit", async () => {
  const { ask, start, stored, unpublished } = stage({ lengths: Array.from({ length: 40 }, () => 65_000) });
  await start({ maxMegabytes: 1 });
  await waitFor("all packets", async () => (await ask({ action: "status" })).capture?.packets === 40);
  await ask({ action: "stop" });
  const sizes = [...stored.values()].map(({ length }) => length);
  expect(sizes.length).toBe(2);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(500_000);
  expect([...stored.keys()].map((path) => path.replace(/.*\.pcap/, ""))).toEqual(["4", "5"]);
  expect(unpublished.size).toBe(0);
});

test("ends by itself after its packets and after its time", async () => {
  const counted = stage({ after: "exit 0" });
  await counted.start({ packetCount: 2 });
  expect(await counted.ended()).toMatchObject({ capture: { reason: { code: "packets" } } });
  expect(counted.tools.calls("tcpdump")).toEqual(["-n -i lo -w - -c 2"]);
  const real = systemClock();
  let timeIsUp = (): void => undefined;
  const isUpWhenTold: Clock = {
    ...real,
    after(ms, run) {
      if (ms !== 86_399_000) return real.after(ms, run);
      timeIsUp = run;
      return () => undefined;
    },
  };
  const timed = stage({ clock: isUpWhenTold });
  await timed.start({ maxSeconds: 86_399 });
  await waitFor("both packets", async () => (await timed.ask({ action: "status" })).capture?.packets === 2);
  timeIsUp();
  expect(await timed.ended()).toMatchObject({ capture: { reason: { code: "time" } } });
  expect(timed.stored.size).toBe(1);
});

test("ends on a full disk, and earlier packets stay", async () => {
  const { start, ended, stored } = stage({ lengths: [100, 100, 100], room: 300 });
  // It may be full before the tool has reported its start.
  await start().catch(() => undefined);
  expect(await ended()).toMatchObject({ capture: { reason: { code: "disk-full" } } });
  expect(stored.size).toBe(1);
});

test("reports at once what prevents tcpdump from capturing", async () => {
  const tool = stage({ after: "" });
  await expect(tool.start({ iface: "none0" })).rejects.toMatchObject({
    code: "not-found",
    details: { field: "iface" },
  });
  const broken = fakeTools({ tcpdump: 'echo "tcpdump: lo: no such thing" >&2; exit 1' });
  const captures = openCaptures({
    exec: broken.exec,
    files: hostFiles(),
    clock: systemClock(),
    log: pino({ level: "silent" }),
    audit: () => undefined,
    store: {
      handle: () => Promise.reject(new InputError("not-found", "no directory")),
      create: () => Promise.reject(new Error("no file")),
    },
  });
  const { run } = rig([tgCapture(captures)]);
  expect(await run("tg-capture", { body: { action: "start", iface: "lo" } })).toMatchObject({
    error: { code: "exec-failed", message: "tcpdump ended with status 1: lo: no such thing" },
  });
  expect(await run("tg-capture", { body: { action: "status" } })).toMatchObject({
    body: { state: "STOPPED", capture: { reason: { code: "exec-failed" } }, files: [] },
  });
});

test("is refused before the start if its files have no place", async () => {
  const begun = join(tempDir(), "begun");
  const tool = `case "$1" in -d) exit 0;; esac\ntouch '${begun}'\n${BEGUN}\n${UNTIL_STOPPED}`;
  const captures = openCaptures({
    exec: fakeTools({ tcpdump: tool }).exec,
    files: hostFiles(),
    clock: systemClock(),
    log: pino({ level: "silent" }),
    audit: () => undefined,
    store: {
      handle: () => Promise.reject(new InputError("forbidden", "captures is a link")),
      create: () => Promise.reject(new Error("no file")),
    },
  });
  const { run } = rig([tgCapture(captures)]);
  expect(await run("tg-capture", { body: { action: "start", iface: "lo" } })).toMatchObject({
    error: { code: "forbidden" },
  });
  expect(existsSync(begun)).toBe(false);
  await captures.close();
});

test("the stop of the agent ends it and keeps its files; files of earlier ones are deleted on request", async () => {
  const { captures, start, ask, stored, unpublished } = stage();
  stored.set("captures/capture-2020-01-01_00-00-00.pcap0", Buffer.alloc(1));
  stored.set("captures/mine.txt", Buffer.alloc(1));
  await start({ deleteExisting: true });
  expect([...stored.keys()]).toEqual(["captures/mine.txt"]);
  await waitFor("both packets", async () => (await ask({ action: "status" })).capture?.packets === 2);
  await captures.close();
  expect(stored.size).toBe(2);
  expect(unpublished.size).toBe(0);
});

test("is for appliances, complete requests and known actions", async () => {
  const { captures } = stage();
  const agent = rig([tgCapture(captures)], { node: { type: "Agent", state: "ACTIVE" } });
  expect(await agent.run("tg-capture", { body: { action: "status" } })).toMatchObject({
    error: { code: "not-supported" },
  });
  const { run } = rig([tgCapture(captures)]);
  for (const body of [
    {},
    { action: "start" },
    { action: "start", iface: "lo", maxMegabytes: 1001 },
    { action: "pause" },
  ]) {
    expect(await run("tg-capture", { body })).toMatchObject({ error: { code: "invalid-body" } });
  }
});
