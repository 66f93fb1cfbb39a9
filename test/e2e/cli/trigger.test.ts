import { describe, expect, it, vi } from "vitest";
import { HostError, InputError } from "../../../src/errors.ts";
import { LocalError, TriggerLine } from "../../../src/protocol/local/answers.ts";
import { someDirectories, startLocalAgent } from "../../support/local-agent.ts";
import { httpAnswer, startRawAgent } from "../../support/control-plane/raw-agent.ts";
import { runVerb } from "../../support/run-verb.ts";
import { holdfast, startHoldfast } from "../../support/run-holdfast.ts";

const ESC = "\u001b";

describe("holdfast trigger", () => {
  it("prints output as it arrives and the result in its own form", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = [
      { kind: "progress", seq: 0, channel: "stdout", data: `PING ${ESC}[31m192.0.2.1\r\n` },
      { kind: "progress", seq: 1, channel: "stderr", data: "warning\u0007\n" },
      { kind: "progress", seq: 2, channel: "json", data: { downloadMbps: 1, note: ESC } },
      { kind: "progress", seq: 3, channel: "percent", data: 50 },
      { kind: "result", body: { exitCode: "0" } },
    ];
    const { code, stdout, stderr } = await holdfast([
      "trigger",
      "tg-ping",
      '{"host":"192.0.2.1"}',
      "--run",
      agent.runDir,
    ]);
    expect(code).toBe(0);
    expect(stdout).toBe('PING 192.0.2.1\n{"downloadMbps":1,"note":"\\u001b"}\n');
    expect(stderr).toBe('warning\n{"exitCode":"0"}\n');
    expect(agent.provider.requested).toEqual([{ event: "tg-ping", body: { host: "192.0.2.1" } }]);
  });

  it.each([
    [{ output: { message: "Node service will restart" } }, "Node service will restart\n"],
    [{ output: { message: `a${ESC}[1mb\n` } }, "ab\n"],
    [{ output: { networks: [] } }, '{\n  "output": {\n    "networks": []\n  }\n}\n'],
    [true, ""],
    [null, ""],
    ["text", '"text"\n'],
  ])("prints the result %j", async (body, shown) => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = [{ kind: "result", body }];
    const { code, stdout } = await runVerb(["trigger", "tg-nc", "--run", agent.runDir]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: shown });
  });

  it("prints every line as JSON, without loss", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = [
      { kind: "progress", seq: 0, channel: "stdout", data: `${ESC}[31mred\u009b\n` },
      { kind: "result", body: { exitCode: "1" } },
    ];
    const { code, stdout } = await runVerb(["trigger", "tg-ping", "--json", "--run", agent.runDir]);
    expect(code).toBe(0);
    expect(stdout).not.toMatch(/[^\P{Cc}\n]/u);
    expect(
      stdout
        .trim()
        .split("\n")
        .map((line) => TriggerLine.parse(JSON.parse(line))),
    ).toEqual(agent.provider.triggerLines);
  });

  it("reads the body from standard input", async () => {
    await using agent = await startLocalAgent();
    const { code } = await holdfast(["trigger", "tg-nc", "-", "--run", agent.runDir], { input: ' {"port": 80}\n' });
    expect(code).toBe(0);
    expect(agent.provider.requested).toEqual([{ event: "tg-nc", body: { port: 80 } }]);
  });

  it.each([
    ["{", "not JSON"],
    ["[1]", "must be a JSON object"],
    ['"host"', "must be a JSON object"],
    ['{"constructor":1}', "the key constructor is not allowed"],
    [`{"x":"${"y".repeat(70_000)}"}`, "exceed the limit"],
  ])("refuses a body that is not an object", async (body, message) => {
    await using agent = await startLocalAgent();
    const { code, stderr } = await runVerb(["trigger", "tg-ping", body, "--run", agent.runDir]);
    expect(code).toBe(2);
    expect(stderr).toContain(message);
    expect(agent.provider.requested).toEqual([]);
  });

  it.each([".tg-ping", "../status", "a b", "", "x".repeat(65)])("refuses an event of another form", async (event) => {
    const { code, stderr } = await runVerb(["trigger", event]);
    expect(code).toBe(2);
    expect(stderr).toContain("cannot be the name of a trigger event");
  });

  it("suggests the nearest event", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = [{ kind: "error", code: "unknown-event", message: "no trigger event tg-pnig" }];
    const { code, stdout, stderr } = await runVerb(["trigger", "tg-pnig", "--json", "--run", agent.runDir]);
    expect(code).toBe(1);
    expect(stderr).toBe("holdfast: tg-pnig failed: no trigger event tg-pnig: did you mean tg-ping?\n");
    expect(LocalError.parse(JSON.parse(stdout)).error.code).toBe("unknown-event");
  });

  it("exits by the class of the event's error", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = [];
    const run = (): ReturnType<typeof holdfast> => holdfast(["trigger", "tg-ping", "--run", agent.runDir]);
    agent.provider.thrown = new HostError("timeout", "the deadline passed");
    expect((await run()).code).toBe(6);
    agent.provider.thrown = new InputError("invalid-body", `host: must be${ESC}[2J an IP address`);
    expect(await run()).toMatchObject({ code: 1, stderr: "holdfast: tg-ping failed: host: must be an IP address\n" });
    agent.provider.thrown = new InputError("not-registered", "this node is not registered");
    expect((await run()).code).toBe(4);
  });

  it("is cancelled by Ctrl-C", async () => {
    await using agent = await startLocalAgent();
    agent.provider.isTriggerEndless = true;
    agent.provider.triggerLines = [{ kind: "progress", seq: 0, channel: "stdout", data: "begun\n" }];
    const running = startHoldfast(["trigger", "tg-ping", "--run", agent.runDir]);
    await running.until(/begun/);
    running.child.kill("SIGINT");
    expect(await running.finished).toEqual({ code: 130, stdout: "begun\n", stderr: "" });
    await vi.waitUntil(() => agent.provider.aborted === 1, { timeout: 120_000 });
  });

  it("may be silent for longer than the timeout, as long as the agent sends keep-alives", async () => {
    await using agent = await startRawAgent((socket) => {
      let beats = 0;
      const timer = setInterval(() => {
        beats += 1;
        socket.write(beats === 1 ? httpAnswer("\n") : beats < 40 ? "\n" : '{"kind":"result","body":true}\n');
        if (beats === 40) clearInterval(timer);
      }, 100);
    });
    expect((await runVerb(["trigger", "tg-ping", "--timeout", "3", "--run", agent.runDir])).code).toBe(0);
  });

  it("exits 3 without an agent", async () => {
    await using dirs = await someDirectories();
    expect((await runVerb(["trigger", "tg-ping", "--run", dirs.runDir])).code).toBe(3);
  });
});
