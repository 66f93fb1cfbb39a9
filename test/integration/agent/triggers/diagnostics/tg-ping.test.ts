import { describe, expect, test } from "vitest";
import { pingArguments, tgPing } from "../../../../../src/agent/triggers/diagnostics/tg-ping.ts";
import { TgPing } from "../../../../../src/protocol/triggers/bodies.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { hostExec } from "../../../../../src/host/process/exec.ts";
import {
  EDGE_2,
  GATEWAY_1,
  refusedAs,
  ScriptedTunnels,
  someNodes,
} from "../../../../support/overlay/scripted-tunnels.ts";
import { fastClock, rig } from "../../../../unit/agent/triggers/rig.ts";
import { untilHolds } from "../../../../support/until-holds.ts";

const clock = systemClock();
const exec = hostExec(clock);
const tunnels = new ScriptedTunnels();

describe("arguments", () => {
  test.each<[TgPing, boolean, string]>([
    [{ host: "192.0.2.1" }, true, "-n -O -c 4 -W 3 -- 192.0.2.1"],
    [{ host: "192.0.2.1" }, false, "-n -O -c 600 -W 3 -- 192.0.2.1"],
    [{ host: "h", count: 7 }, true, "-n -O -c 7 -W 3 -- h"],
    [{ host: "h", count: 7 }, false, "-n -O -c 7 -W 3 -- h"],
    [{ host: "127.1.2.3" }, true, "-n -O -c 4 -W 3 -I 127.0.0.1 -- 127.1.2.3"],
    [{ host: "127.example.net" }, true, "-n -O -c 4 -W 3 -- 127.example.net"],
    [{ host: "::1" }, true, "-n -O -c 4 -W 3 -- ::1"],
    [{ host: "192.0.2.1", iface: "eth0" }, true, "-n -O -c 4 -W 3 -I eth0 -- 192.0.2.1"],
    [{ host: "h", iface: "eth0", source: "10.0.0.1" }, true, "-n -O -c 4 -W 3 -I eth0 -I 10.0.0.1 -- h"],
    [{ host: "192.0.2.1", source: "127.0.0.1" }, true, "-n -O -c 4 -W 3 -I 127.0.0.1 -- 192.0.2.1"],
  ])("%j, wait %s: %s", (request, wait, line) => {
    expect(pingArguments(request, wait).join(" ")).toBe(line);
  });

  test.each([
    [{}],
    [{ host: "" }],
    [{ host: "-f" }],
    [{ host: "--" }],
    [{ host: "a b" }],
    [{ host: "a\nb" }],
    [{ host: "$(id)" }],
    [{ host: "a;id" }],
    [{ host: "x".repeat(4096) }],
    [{ host: "bücher.example" }],
    [{ host: "１２７.0.0.1" }],
    [{ host: "fe80::1%lo" }],
    [{ host: ["h"] }],
    [{ host: "h", iface: "-f" }],
    [{ host: "h", iface: "../lo" }],
    [{ host: "h", ifaces: "lo" }],
    [{ host: "h", source: "lo" }],
    [{ host: "h", source: "-f" }],
    [{ host: "h", count: 0 }],
    [{ host: "h", count: 601 }],
    [{ host: "h", count: 1.5 }],
    [{ host: "h", count: "4" }],
  ])("refuses %j", (body) => {
    expect(TgPing.safeParse(body).success).toBe(false);
  });
});

describe("with the real tool", () => {
  test("accepts an interface, and refuses an unknown one by name", async () => {
    const { run } = rig([tgPing(exec, hostFiles(), tunnels, clock)]);
    const body = { host: "127.0.0.1", count: 1 };
    expect(await run("tg-ping", { body: { ...body, iface: "lo" } })).toMatchObject({
      body: { output: { exitCode: "0" } },
    });
    expect(await run("tg-ping", { body: { ...body, iface: "nosuch0" } })).toMatchObject({
      error: { code: "not-found", message: "no interface nosuch0", details: { field: "iface" } },
    });
  });

  test("replies are text and exit status 0", async () => {
    const { run } = rig([tgPing(exec, hostFiles(), tunnels, clock)]);
    const reply = await run("tg-ping", { body: { host: "127.0.0.1", count: 1, name: "tg-ping" } });
    expect(reply).toMatchObject({ body: { output: { exitCode: "0", truncated: false } } });
    expect(JSON.stringify(reply)).toContain("1 packets transmitted, 1 received, 0% packet loss");
  });

  test("no reply and a foreign source are results", async () => {
    const { run } = rig([tgPing(exec, hostFiles(), tunnels, clock)]);
    // Nothing answers to a loopback source; TEST-NET-1 (RFC 5737) is unused.
    const lost = await run("tg-ping", { body: { host: "192.0.2.1", source: "127.0.0.1", count: 1 } });
    expect(lost).toMatchObject({ body: { output: { exitCode: "1" } } });
    expect(JSON.stringify(lost)).toContain("100% packet loss");
    const foreign = await run("tg-ping", { body: { host: "127.0.0.1", source: "203.0.113.9", count: 1 } });
    expect(foreign).toMatchObject({
      body: { output: { exitCode: "2", message: "ping: bind: Cannot assign requested address\n" } },
    });
  });

  test("an unknown name is a result", async () => {
    const reply = await rig([tgPing(exec, hostFiles(), tunnels, clock)]).run("tg-ping", {
      body: { host: "no-such-host.invalid", count: 1 },
    });
    expect(reply).toMatchObject({ body: { output: { exitCode: "2" } } });
  });

  test("a session streams until cancelled, with the summary", async () => {
    const { dispatcher, run, channel } = rig([tgPing(exec, hostFiles(), tunnels, clock)]);
    expect(await run("tg-ping", { body: { host: "127.0.0.1" }, wait: false })).toEqual({ body: true });
    await untilHolds(() => expect(channel.text).toContain("icmp_seq=1"));
    dispatcher.cancel(channel.parts[0]?.id ?? "");
    await untilHolds(() => expect(channel.results).toMatchObject([{ reply: { error: { code: "cancelled" } } }]));
    expect(channel.text).toContain("ping statistics");
  });

  test("a session with all packets answered ends with 0", async () => {
    const { run, channel } = rig([tgPing(exec, hostFiles(), tunnels, clock)]);
    await run("tg-ping", { body: { host: "127.0.0.1", count: 3 }, wait: false });
    await untilHolds(() => expect(channel.results).toMatchObject([{ reply: { body: { exitCode: 0 } } }]));
    expect(channel.text).toContain("3 packets transmitted, 3 received");
  });

  test("a deadline gives a partial answer, with the summary", async () => {
    const reply = await rig([tgPing(exec, hostFiles(), tunnels, clock)]).run("tg-ping", {
      body: { host: "127.0.0.1", count: 600 },
      // The tool must be started until then.
      deadlineMs: 3000,
    });
    expect(reply).toMatchObject({ error: { code: "timeout", details: { output: { truncated: false } } } });
    expect(JSON.stringify(reply)).toContain("ping statistics");
  });

  test("reports a machine without ping", async () => {
    const reply = await rig([tgPing(hostExec(clock, "/nowhere"), hostFiles(), tunnels, clock)]).run("tg-ping", {
      body: { host: "127.0.0.1" },
    });
    expect(reply).toMatchObject({ error: { code: "tool-missing", details: { tool: "ping" } } });
  });
});

describe("through the tunnel", () => {
  const fast = fastClock(100);
  const none = hostExec(clock, "/nowhere");
  const messageOf = (reply: unknown): string =>
    (reply as { body: { output: { message: string } } }).body.output.message;

  test.each(["edge-2", "edge-2.example.net", EDGE_2])("%s is a peer, and each answer has its path", async (host) => {
    const scripted = new ScriptedTunnels();
    scripted.echoes = (_, seq) => ({ rttMs: 1.5, gateway: GATEWAY_1, path: seq === 0 ? "" : "wan2" });
    const reply = await rig([tgPing(none, hostFiles(), scripted, fast)]).run("tg-ping", { body: { host, count: 2 } });
    expect(messageOf(reply)).toBe(
      "PING edge-2.example.net through the tunnel, 64 bytes\n" +
        "64 bytes from edge-2.example.net: seq=0  time=1.50ms  by gw-1.example.net, default path\n" +
        "64 bytes from edge-2.example.net: seq=1  time=1.50ms  by gw-1.example.net, path wan2\n" +
        "--- edge-2.example.net: 2 sent, 2 answered, 0% lost\n" +
        "rtt min/avg/max = 1.50/1.50/1.50 ms\n",
    );
    expect(scripted.requested).toMatchObject([{ peer: EDGE_2 }, { peer: EDGE_2 }]);
  });

  test("a disconnected peer is a result", async () => {
    const scripted = new ScriptedTunnels();
    scripted.echoes = () => refusedAs("not-connected");
    const reply = await rig([tgPing(none, hostFiles(), scripted, fast)]).run("tg-ping", { body: { host: "edge-2" } });
    expect(reply).toMatchObject({ body: { output: { exitCode: "1" } } });
    expect(messageOf(reply)).toContain("no answer from edge-2.example.net: seq=3  it is not connected\n");
    expect(messageOf(reply)).toContain("4 sent, 0 answered, 100% lost\n");
  });

  test("a source, or a name with a final dot, means the network below", async () => {
    const scripted = new ScriptedTunnels();
    const { run } = rig([tgPing(exec, hostFiles(), scripted, fast)]);
    await run("tg-ping", { body: { host: "edge-2.example.net.", count: 1 } });
    await run("tg-ping", { body: { host: "edge-2", source: "127.0.0.1", count: 1 } });
    expect(scripted.requested).toEqual([]);
  });

  test.each([
    ["edge-9", "edge-9 is not a known node: used as a host name\n"],
    ["edge-9.example.net", "edge-9.example.net is not a known node: used as a host name\n"],
    ["Edge-1", "Edge-1 is not a known node: used as a host name\n"],
    ["edge-2.example.net.", ""],
    ["www.example.invalid", ""],
    ["127.0.0.1", ""],
    ["localhost", ""],
  ])("%s is taken for a host, with a notice if a node may be meant", async (host, printed) => {
    const { run } = rig([tgPing(exec, hostFiles(), new ScriptedTunnels(), fast)]);
    const pinged = messageOf(await run("tg-ping", { body: { host, count: 1 } }));
    expect(pinged.startsWith(printed)).toBe(true);
    expect(pinged.includes("used as a host name")).toBe(printed !== "");
  });

  test("an INACTIVE node pings hosts and no peers", async () => {
    const scripted = new ScriptedTunnels();
    scripted.known = { ...someNodes, isActive: false };
    const { run } = rig([tgPing(exec, hostFiles(), scripted, fast)], { node: { type: "Node", state: "INACTIVE" } });
    expect(await run("tg-ping", { body: { host: "edge-2" } })).toMatchObject({ error: { code: "inactive" } });
    expect(await run("tg-ping", { body: { host: "127.0.0.1", count: 1 } })).toMatchObject({
      body: { output: { exitCode: "0" } },
    });
  });
});
