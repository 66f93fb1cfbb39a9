import { describe, expect, it } from "vitest";
import { pingVerb } from "../../../src/cli/verbs/network/ping.ts";
import { speedtestVerb } from "../../../src/cli/verbs/network/speedtest.ts";
import type { TriggerLine } from "../../../src/protocol/local/answers.ts";
import { someCall } from "../../support/fake-call.ts";
import { startLocalAgent } from "../../support/local-agent.ts";
import { runVerb } from "../../support/run-verb.ts";
import { holdfast, startHoldfast } from "../../support/run-holdfast.ts";

const json = (...pieces: unknown[]): TriggerLine[] =>
  pieces.map((data, seq) => ({ kind: "progress", seq, channel: "json", data }));
const answer = { peer: "edge-2.example.net", size: 64, path: "", gateway: "gw-1.example.net" };
const end: TriggerLine = { kind: "result", body: { exitCode: 0 } };

describe("holdfast ping", () => {
  it("prints each answer with its path, the losses, and a summary", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = [
      ...json(
        { ...answer, seq: 0, rttMs: 1 },
        { seq: 1, timeout: true, reason: "timeout" },
        { seq: 2, timeout: true, reason: "not-connected" },
        { ...answer, seq: 3, rttMs: 2.5, path: "wan\u001b[5m2" },
      ),
      end,
    ];
    const { code, stdout } = await holdfast([
      "ping",
      "edge-2",
      "-c",
      "4",
      "-s",
      "100",
      "--path",
      "",
      "--run",
      agent.runDir,
    ]);
    expect(code).toBe(0);
    expect(stdout).toBe(
      "PING edge-2 through the tunnel, 100 bytes\n" +
        "64 bytes from edge-2.example.net: seq=0 time=1.00 ms by gw-1.example.net (default path)\n" +
        "no answer from edge-2: seq=1\n" +
        "no answer from edge-2: seq=2: it is not connected\n" +
        "64 bytes from edge-2.example.net: seq=3 time=2.50 ms by gw-1.example.net (path wan2)\n" +
        "--- edge-2: 4 sent, 2 answered, 50% lost\n" +
        "rtt min/avg/max = 1.00/1.75/2.50 ms\n" +
        "1 by gw-1.example.net (default path)\n" +
        "1 by gw-1.example.net (path wan2)\n",
    );
    expect(agent.provider.requested).toEqual([
      { event: "gateway-ping", body: { dest: "edge-2", sendJson: true, interval: 1, size: 100, count: 4, gwPath: "" } },
    ]);
  });

  it("prints the documented JSON, the summary last, and exits 1 when nothing was answered", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = [...json({ seq: 0, timeout: true, reason: "timeout" }, { newer: "thing" }), end];
    const { code, stdout } = await runVerb(["ping", "edge-2", "--json", "--run", agent.runDir]);
    expect(code).toBe(1);
    const lines = stdout.trim().split("\n");
    expect(lines.map((line) => pingVerb.output?.parse(JSON.parse(line)))).toEqual([
      { seq: 0, timeout: true, reason: "timeout" },
      { summary: { sent: 1, answered: 0, ways: [] } },
    ]);
  });

  it("sums up on Ctrl-C, and cancels the session at the agent", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = json({ ...answer, seq: 0, rttMs: 1 });
    agent.provider.isTriggerEndless = true;
    const running = startHoldfast(["ping", "edge-2", "--run", agent.runDir]);
    await running.until(/seq=0/);
    running.child.kill("SIGINT");
    const { code, stdout } = await running.finished;
    expect(code).toBe(0);
    expect(stdout).toContain("--- edge-2: 1 sent, 1 answered, 0% lost\n");
    await expect.poll(() => agent.provider.aborted).toBe(1);
  });

  it("can be interrupted before the first answer", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = [];
    agent.provider.isTriggerEndless = true;
    const running = startHoldfast(["ping", "edge-2", "--run", agent.runDir]);
    await expect.poll(() => agent.provider.requested).toHaveLength(1);
    running.child.kill("SIGINT");
    expect(await running.finished).toMatchObject({ code: 130, stdout: "" });
  });

  it.each([
    ["exec-failed", "peer is not connected", 1, "holdfast: peer is not connected: see 'holdfast gateways'\n"],
    ["not-found", "this node knows no node edge-9", 1, "holdfast: this node knows no node edge-9\n"],
    ["timeout", "too late", 6, "holdfast: too late\n"],
  ])("explains %s", async (code, message, exit, shown) => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = [{ kind: "error", code, message }];
    const ping = await runVerb(["ping", "edge-9", "--run", agent.runDir]);
    expect(ping).toMatchObject({ code: exit, stderr: shown, stdout: "" });
  });

  it("fails when the agent stops in the middle", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = json({ ...answer, seq: 0, rttMs: 1 });
    const { code, stderr } = await runVerb(["ping", "edge-2", "--run", agent.runDir]);
    expect(code).toBe(1);
    expect(stderr).toContain("the agent ended gateway-ping without a result");
  });

  it.each([
    [["ping"], "ping needs <node>"],
    [["ping", "a b"], "'a b' cannot be the name of a node"],
    [["ping", "h", "-c", "0"], "--count needs a whole number from 1 to 600, not 0"],
    [["ping", "h", "-c", "many"], "not many"],
    [["ping", "h", "--interval", "0.5"], "--interval needs a whole number from 1 to 60"],
    [["ping", "h", "--size", "7"], "--size needs a whole number from 8 to 65000"],
    [["speedtest", "sideways"], "the direction is download, upload or both, not 'sideways'"],
  ])("%j exits 2 with the mistake", async (args, message) => {
    const { code, stderr } = await runVerb(args);
    expect(code).toBe(2);
    expect(stderr).toContain(message);
  });
});

const figures = { downloadMbps: 0, maxDownloadMbps: 0, uploadMbps: 0, maxUploadMbps: 0 };
const run: TriggerLine[] = [
  ...json(
    { ...figures, downloadMbps: 90, maxDownloadMbps: 100 },
    { ...figures, downloadMbps: 93.44, maxDownloadMbps: 101, uploadMbps: 5, maxUploadMbps: 6 },
    { ...figures, downloadMbps: 93.44, maxDownloadMbps: 101, uploadMbps: 8, maxUploadMbps: 9, done: true },
  ),
  end,
];

describe("holdfast speedtest", () => {
  it("prints plain lines without a terminal", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = run;
    const { code, stdout } = await runVerb(["speedtest", "--run", agent.runDir]);
    expect(code).toBe(0);
    expect(stdout).toBe(
      "download 90.0 Mbit/s, peak 100.0\n" +
        "download 93.4 Mbit/s, peak 101.0; upload 5.0 Mbit/s, peak 6.0\n" +
        "download 93.4 Mbit/s, peak 101.0\n" +
        "upload 8.0 Mbit/s, peak 9.0\n",
    );
    expect(agent.provider.requested).toEqual([{ event: "speed-test", body: { action: "both" } }]);
  });

  it("updates one line on a terminal", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = run;
    const { call, shown } = someCall(agent, { positionals: ["both"] });
    const terminal = { ...call.terminal, isInteractive: true, size: () => ({ columns: 40, rows: 24 }) };
    expect(await speedtestVerb.run({ ...call, terminal })).toBe("ok");
    expect(shown).toEqual([
      "\r\u001b[Kdownload 90.0 Mbit/s, peak 100.0",
      "\r\u001b[Kdownload 93.4 Mbit/s, peak 101.0; uploa",
      "\r\u001b[Kdownload 93.4 Mbit/s, peak 101.0\nupload 8.0 Mbit/s, peak 9.0\n",
    ]);
  });

  it("prints the documented JSON, and what to do without a known server", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = run;
    const { stdout } = await runVerb(["speedtest", "upload", "--json", "--run", agent.runDir]);
    const lines = stdout.trim().split("\n");
    expect(lines.map((line) => speedtestVerb.output?.safeParse(JSON.parse(line)).success)).toEqual([true, true, true]);
    agent.provider.triggerLines = [
      { kind: "error", code: "not-configured", message: "no speed-test server is configured" },
    ];
    const { code, stderr } = await runVerb(["speedtest", "--run", agent.runDir]);
    expect(code).toBe(1);
    expect(stderr).toContain("no speed-test server is configured: the control plane offers one, or");
  });
});
