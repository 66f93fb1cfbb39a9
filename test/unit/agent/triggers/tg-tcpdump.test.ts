import { expect, test } from "vitest";
import { captureArguments, tgTcpdump } from "../../../../src/agent/triggers/tg-tcpdump.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostExec } from "../../../../src/host/exec.ts";
import { hostFiles } from "../../../../src/host/files.ts";
import { TgTcpdump } from "../../../../src/protocol/trigger-bodies.ts";
import { fakeTools } from "../../../support/fake-tools.ts";
import { fastClock, rig } from "./rig.ts";
import { untilHolds } from "../../../support/until-holds.ts";

/** A tool that takes every filter, and then does what the lines say. */
function stage(script: string, clock = systemClock()) {
  const tools = fakeTools({ tcpdump: `case "$1" in -d) exit 0;; esac\n${script}` });
  const made = rig([tgTcpdump(tools.exec, hostFiles(), clock)]);
  return {
    ...made,
    tools,
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

test("the filter is one argument, tried out before the capture", async () => {
  const { ask, tools } = stage("echo '08:50:16 IP a > b'; echo '1 packet captured' >&2");
  expect(await ask({ filter: "-w /tmp/x or icmp", packetCount: 1 })).toMatchObject({
    body: { output: { exitCode: "0" } },
  });
  expect(tools.calls("tcpdump")).toEqual([
    "-d -n -i lo -- -w /tmp/x or icmp",
    "-n -l -i lo -s 96 -c 1 -- -w /tmp/x or icmp",
  ]);
});

test("a filter that tcpdump does not understand is refused with what it says", async () => {
  const tools = fakeTools({ tcpdump: 'echo "tcpdump: can\'t parse filter expression: syntax error" >&2; exit 1' });
  const { run } = rig([tgTcpdump(tools.exec, hostFiles(), systemClock())]);
  expect(await run("tg-tcpdump", { body: { iface: "lo", filter: "tcp prt 80" } })).toMatchObject({
    error: {
      code: "invalid-body",
      message: "tg-tcpdump: filter: can't parse filter expression: syntax error",
      details: { field: "filter" },
    },
  });
  expect(tools.calls("tcpdump")).toHaveLength(1);
});

test("a flood is held to so many lines a second, and the rest is counted", async () => {
  const { ask } = stage("seq 1 2000");
  const reply = await ask({});
  const { message } = (reply as { body: { output: { message: string } } }).body.output;
  expect(message).toContain("\n500\n");
  expect(message).not.toContain("\n501\n");
  expect(message).toContain("1500 lines left out: more than 500 in a second");
});

test("it ends after so many bytes of text", async () => {
  const { ask } = stage("yes 0123456789 | head -n 200; sleep 60");
  const reply = await ask({ maxBytes: 1024 });
  const { message } = (reply as { body: { output: { message: string } } }).body.output;
  expect(message).toContain("ended after 1024 bytes of text\n");
  expect(message.split("\n").filter((line) => line === "0123456789")).toHaveLength(93);
});

test("who waits gets what came in half a minute; a session ends the tool with itself", async () => {
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

test("no such link; rights that it cannot give up; no tool", async () => {
  const { ask, run } = stage(
    "echo \"tcpdump: Couldn't change to 'tcpdump' uid=106 gid=109: Operation not permitted\" >&2; exit 1",
  );
  expect(await run("tg-tcpdump", { body: { iface: "nope0" } })).toMatchObject({
    error: { code: "not-found", details: { field: "iface" } },
  });
  expect(await ask({})).toMatchObject({
    error: { code: "exec-failed", message: expect.stringContaining("CAP_SETUID") as string },
  });
  const bare = rig([tgTcpdump(hostExec(systemClock(), "/nowhere"), hostFiles(), systemClock())]);
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
])("%j is refused for its %s", (body, field) => {
  expect(TgTcpdump.safeParse(body).error?.issues[0]?.path).toEqual([field]);
});
