import { expect, test, vi } from "vitest";
import {
  captureArguments,
  tgTcpdump,
  type BeginFile,
} from "../../../../../src/agent/triggers/diagnostics/tg-tcpdump.ts";
import { HostError, InputError } from "../../../../../src/errors.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { hostExec } from "../../../../../src/host/process/exec.ts";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { TgTcpdump } from "../../../../../src/protocol/triggers/bodies.ts";
import { fakeTools } from "../../../../support/fake-tools.ts";
import { fastClock, memoryJournal, rig } from "../../../../unit/agent/triggers/rig.ts";
import { untilHolds } from "../../../../support/until-holds.ts";

const ROOM = 4000;
const noFile: BeginFile = () => Promise.reject(new InputError("not-supported", "no data store"));

/** A tool that accepts every filter, and then runs the shell lines. */
function stage(script: string, clock = systemClock()) {
  const tools = fakeTools({ tcpdump: `case "$1" in -d) exit 0;; esac\n${script}` });
  const written = new Map<string, string>();
  const discarded: string[] = [];
  const begin: BeginFile = (path) => {
    let text = "";
    return Promise.resolve({
      append(more) {
        if (text.length + more.length > ROOM) throw new HostError("disk-full", "no room");
        text += more;
      },
      publish() {
        written.set(path, text);
        return Promise.resolve(text.length);
      },
      discard: () => void discarded.push(path),
    });
  };
  const made = rig([tgTcpdump({ exec: tools.exec, files: hostFiles(), clock, begin })]);
  return {
    ...made,
    tools,
    written,
    discarded,
    ask: (body: object, wait = true) => made.run("tg-tcpdump", { body: { iface: "lo", ...body }, wait }),
  };
}

test.each<[object, boolean, string]>([
  [{}, false, "-n -l -i lo -s 96"],
  [{}, true, "-n -l -i lo -s 96 -c 1000"],
  [{ packetCount: 3, snaplen: 128 }, true, "-n -l -i lo -s 128 -c 3"],
  [{ packetCount: 3, filter: " tcp port 80 " }, false, "-n -l -i lo -s 96 -c 3 -- tcp port 80"],
])("%j, wait %s: %s", (body, wait, line) => {
  expect(captureArguments(TgTcpdump.parse({ iface: "lo", ...body }), wait).join(" ")).toBe(line);
});

test("passes the filter as one argument, after a test", async () => {
  const { ask, tools } = stage("echo '08:50:16 IP a > b'; echo '1 packet captured' >&2");
  expect(await ask({ filter: "-w /tmp/x or icmp", packetCount: 1 })).toMatchObject({
    body: { output: { exitCode: "0" } },
  });
  expect(tools.calls("tcpdump")).toEqual([
    "-d -n -i lo -- -w /tmp/x or icmp",
    "-n -l -i lo -s 96 -c 1 -- -w /tmp/x or icmp",
  ]);
});

test("refuses a filter that tcpdump does not parse, with its message", async () => {
  const tools = fakeTools({ tcpdump: 'echo "tcpdump: can\'t parse filter expression: syntax error" >&2; exit 1' });
  const { run } = rig([tgTcpdump({ exec: tools.exec, files: hostFiles(), clock: systemClock(), begin: noFile })]);
  expect(await run("tg-tcpdump", { body: { iface: "lo", filter: "tcp prt 80" } })).toMatchObject({
    error: {
      code: "invalid-body",
      message: "tg-tcpdump: filter: can't parse filter expression: syntax error",
      details: { field: "filter" },
    },
  });
  expect(tools.calls("tcpdump")).toHaveLength(1);
});

test("limits a flood to a number of lines a second, and counts the rest", async () => {
  const { ask } = stage("seq 1 2000");
  const reply = await ask({});
  const { message } = (reply as { body: { output: { message: string } } }).body.output;
  expect(message).toContain("\n500\n");
  expect(message).not.toContain("\n501\n");
  expect(message).toContain("1500 lines dropped: more than 500 in a second");
});

test("ends after a number of bytes of text", async () => {
  const { ask } = stage("yes 0123456789 | head -n 200; sleep 60");
  const reply = await ask({ maxBytes: 1024 });
  const { message } = (reply as { body: { output: { message: string } } }).body.output;
  expect(message).toContain("ended after 1024 bytes of text\n");
  expect(message.split("\n").filter((line) => line === "0123456789")).toHaveLength(93);
});

test("a waiting caller gets the output of half a minute; a session ends the tool with itself", async () => {
  const forever = "trap 'echo summary >&2; exit 0' INT; echo first; while :; do sleep 0.05; done";
  const waited = await stage(forever, fastClock(100)).ask({});
  expect(waited).toMatchObject({ body: { output: { message: "first\nsummary\n", exitCode: "0" } } });
  const { ask, channel, dispatcher, tools } = stage(forever);
  await ask({}, false);
  await untilHolds(() => expect(channel.text).toBe("first\n"));
  channel.end();
  await dispatcher.close();
  expect(tools.calls("tcpdump")).toHaveLength(1);
});

test("writes the lines to a file as well, which is kept after the capture, also with its session", async () => {
  const { ask, written, discarded } = stage("echo 'a > b'; seq 1 600; echo '600 packets' >&2");
  const reply = await ask({ file: "/captures/a.txt" });
  const { message } = (reply as { body: { output: { message: string } } }).body.output;
  const text = `a > b\n${Array.from({ length: 499 }, (_, at) => `${at + 1}\n`).join("")}101 lines dropped: more than 500 in a second\n`;
  expect([...written]).toEqual([["/captures/a.txt", text]]);
  expect(message).toContain(`/captures/a.txt: ${text.length} bytes written to the data store\n`);
  const watched = stage("trap 'exit 0' INT; echo first; while :; do sleep 0.05; done");
  await watched.ask({ file: "b" }, false);
  await vi.waitFor(() => expect(watched.channel.text).toBe("first\n"));
  expect([...watched.written]).toEqual([]);
  watched.channel.end();
  await watched.dispatcher.close();
  expect([...watched.written]).toEqual([["b", "first\n"]]);
  expect([...discarded, ...watched.discarded]).toEqual([]);
});

test("keeps nothing of a capture that fails or finds no room, and starts none without a data store", async () => {
  const failing = stage("echo first; exit 1");
  expect(await failing.ask({ file: "a" })).toMatchObject({ body: { output: { exitCode: "1" } } });
  expect(failing.discarded).toEqual(["a"]);
  const full = stage("yes 0123456789 | head -n 2000; sleep 60");
  expect(await full.ask({ file: "a" })).toMatchObject({ error: { code: "disk-full" } });
  expect([[...full.written], full.discarded]).toEqual([[], ["a"]]);
  const tools = fakeTools({ tcpdump: "echo first" });
  const { run } = rig([tgTcpdump({ exec: tools.exec, files: hostFiles(), clock: systemClock(), begin: noFile })]);
  const requested = await run("tg-tcpdump", { body: { iface: "lo", file: "a" } });
  expect(requested).toMatchObject({ error: { code: "not-supported" } });
  expect(tools.calls("tcpdump")).toEqual([]);
});

test("writes no file without a journal", async () => {
  const tools = fakeTools({ tcpdump: "echo first" });
  const trigger = tgTcpdump({ exec: tools.exec, files: hostFiles(), clock: systemClock(), begin: noFile });
  const { run } = rig([trigger], { journal: memoryJournal({ isPersistent: false }).journal });
  const ask = (body: object) => run("tg-tcpdump", { body: { iface: "lo", ...body } });
  expect(await ask({})).toHaveProperty("body");
  expect(await ask({ file: "a" })).toMatchObject({ error: { code: "storage-unavailable" } });
});

test("an unknown link; privileges that it cannot drop; a missing tool", async () => {
  const { ask, run } = stage(
    "echo \"tcpdump: Couldn't change to 'tcpdump' uid=106 gid=109: Operation not permitted\" >&2; exit 1",
  );
  expect(await run("tg-tcpdump", { body: { iface: "nope0" } })).toMatchObject({
    error: { code: "not-found", details: { field: "iface" } },
  });
  expect(await ask({})).toMatchObject({
    error: { code: "exec-failed", message: expect.stringContaining("CAP_SETUID") as string },
  });
  const bare = rig([
    tgTcpdump({ exec: hostExec(systemClock(), "/nowhere"), files: hostFiles(), clock: systemClock(), begin: noFile }),
  ]);
  expect(await bare.run("tg-tcpdump", { body: { iface: "lo", filter: "icmp" } })).toMatchObject({
    error: { code: "tool-missing", message: "tcpdump is not installed: on Debian it is in the package tcpdump" },
  });
});

test.each([
  [{}, "iface"],
  [{ iface: "--help" }, "iface"],
  [{ iface: "lo;id" }, "iface"],
  [{ iface: "lo", filter: "a".repeat(513) }, "filter"],
  [{ iface: "lo", filter: "tcp\nport 80" }, "filter"],
  [{ iface: "lo", filter: "host ä" }, "filter"],
  [{ iface: "lo", filter: ["tcp"] }, "filter"],
  [{ iface: "lo", packetCount: -1 }, "packetCount"],
  [{ iface: "lo", packetCount: 10_001 }, "packetCount"],
  [{ iface: "lo", packetCount: "3" }, "packetCount"],
  [{ iface: "lo", maxBytes: 0 }, "maxBytes"],
  [{ iface: "lo", maxBytes: 1e9 }, "maxBytes"],
  [{ iface: "lo", snaplen: 0 }, "snaplen"],
  [{ iface: "lo", snaplen: 262_144 }, "snaplen"],
  [{ iface: "lo", file: "" }, "file"],
])("refuses %j for its %s", (body, field) => {
  expect(TgTcpdump.safeParse(body).error?.issues[0]?.path).toEqual([field]);
});
