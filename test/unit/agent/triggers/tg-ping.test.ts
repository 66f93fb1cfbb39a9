import { describe, expect, test, vi } from "vitest";
import { pingArguments, tgPing } from "../../../../src/agent/triggers/tg-ping.ts";
import { TgPing } from "../../../../src/protocol/trigger-bodies.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostExec } from "../../../../src/host/exec.ts";
import { rig } from "./rig.ts";

const exec = hostExec(systemClock());

describe("arguments", () => {
  test.each<[TgPing, boolean, string]>([
    [{ host: "192.0.2.1" }, true, "-n -O -c 4 -W 3 -- 192.0.2.1"],
    [{ host: "192.0.2.1" }, false, "-n -O -c 600 -W 3 -- 192.0.2.1"],
    [{ host: "h", count: 7 }, true, "-n -O -c 7 -W 3 -- h"],
    [{ host: "h", count: 7 }, false, "-n -O -c 7 -W 3 -- h"],
    [{ host: "127.1.2.3" }, true, "-n -O -c 4 -W 3 -I 127.0.0.1 -- 127.1.2.3"],
    [{ host: "127.example.net" }, true, "-n -O -c 4 -W 3 -- 127.example.net"],
    [{ host: "::1" }, true, "-n -O -c 4 -W 3 -- ::1"],
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
    [{ host: "h", source: "lo" }],
    [{ host: "h", source: "-f" }],
    [{ host: "h", count: 0 }],
    [{ host: "h", count: 601 }],
    [{ host: "h", count: 1.5 }],
    [{ host: "h", count: "4" }],
  ])("%j is refused", (body) => {
    expect(TgPing.safeParse(body).success).toBe(false);
  });
});

describe("with the real tool", () => {
  test("replies are text and exit status 0", async () => {
    const { run } = rig([tgPing(exec)]);
    const reply = await run("tg-ping", { body: { host: "127.0.0.1", count: 1, name: "tg-ping" } });
    expect(reply).toMatchObject({ body: { output: { exitCode: "0", truncated: false } } });
    expect(JSON.stringify(reply)).toContain("1 packets transmitted, 1 received, 0% packet loss");
  });

  test("no reply and a source that is not ours are results", async () => {
    const { run } = rig([tgPing(exec)]);
    // From a loopback source nothing elsewhere answers; TEST-NET-1 (RFC 5737) is nobody's.
    const lost = await run("tg-ping", { body: { host: "192.0.2.1", source: "127.0.0.1", count: 1 } });
    expect(lost).toMatchObject({ body: { output: { exitCode: "1" } } });
    expect(JSON.stringify(lost)).toContain("100% packet loss");
    const foreign = await run("tg-ping", { body: { host: "127.0.0.1", source: "203.0.113.9", count: 1 } });
    expect(foreign).toMatchObject({
      body: { output: { exitCode: "2", message: "ping: bind: Cannot assign requested address\n" } },
    });
  });

  test("a name that no resolver knows is a result", async () => {
    const reply = await rig([tgPing(exec)]).run("tg-ping", { body: { host: "no-such-host.invalid", count: 1 } });
    expect(reply).toMatchObject({ body: { output: { exitCode: "2" } } });
  });

  test("a session streams until it is cancelled, the summary included", async () => {
    const { dispatcher, run, channel } = rig([tgPing(exec)]);
    expect(await run("tg-ping", { body: { host: "127.0.0.1" }, wait: false })).toEqual({ body: true });
    await vi.waitFor(() => expect(channel.text).toContain("icmp_seq=1"));
    dispatcher.cancel(channel.parts[0]?.id ?? "");
    await vi.waitFor(() => expect(channel.results).toMatchObject([{ reply: { error: { code: "cancelled" } } }]));
    expect(channel.text).toContain("ping statistics");
  });

  test("a session whose every packet is answered ends with 0", async () => {
    const { run, channel } = rig([tgPing(exec)]);
    await run("tg-ping", { body: { host: "127.0.0.1", count: 3 }, wait: false });
    await vi.waitFor(() => expect(channel.results).toMatchObject([{ reply: { body: { exitCode: 0 } } }]), 20_000);
    expect(channel.text).toContain("3 packets transmitted, 3 received");
  });

  test("a deadline gives what there is, with the summary", async () => {
    const reply = await rig([tgPing(exec)]).run("tg-ping", {
      body: { host: "127.0.0.1", count: 600 },
      deadlineMs: 300,
    });
    expect(reply).toMatchObject({ error: { code: "timeout", details: { output: { truncated: false } } } });
    expect(JSON.stringify(reply)).toContain("ping statistics");
  });

  test("a machine without ping says so", async () => {
    const reply = await rig([tgPing(hostExec(systemClock(), "/nowhere"))]).run("tg-ping", {
      body: { host: "127.0.0.1" },
    });
    expect(reply).toMatchObject({ error: { code: "tool-missing", details: { tool: "ping" } } });
  });
});
