import { describe, expect, it, vi } from "vitest";
import { LogLine } from "../../../src/protocol/local/answers.ts";
import { someDirectories, startLocalAgent } from "../../support/local-agent.ts";
import { runVerb } from "../../support/run-verb.ts";
import { holdfast, startHoldfast } from "../../support/run-holdfast.ts";

const ESC = "\u001b";
const lines: LogLine[] = [
  {
    time: 1_800_000_000_123,
    level: "info",
    component: "session",
    message: "connected",
    fields: { attempt: 2, url: "ws://x" },
  },
  {
    time: 1_800_000_001_000,
    level: "warn",
    message: `${ESC}[31mred\u009b2J\nsecond line`,
    fields: { [`k${ESC}c`]: `${ESC}]0;t\u0007` },
  },
];

describe("holdfast logs", () => {
  it("prints lines without terminal control", async () => {
    await using agent = await startLocalAgent();
    agent.provider.lines = lines;
    const { code, stdout } = await holdfast(["logs", "-n", "5", "--run", agent.runDir]);
    expect(code).toBe(0);
    expect(stdout).toBe(
      '2027-01-15T08:00:00.123Z info session: connected attempt=2 url="ws://x"\n' +
        '2027-01-15T08:00:01.000Z warn red\n  second line k="\\u001b]0;t\\u0007"\n',
    );
    expect(agent.provider.requested).toEqual([{ lines: 5, follow: false }]);
  });

  it("prints the documented JSON, without loss", async () => {
    await using agent = await startLocalAgent();
    agent.provider.lines = lines;
    const { stdout } = await runVerb(["logs", "--json", "--run", agent.runDir]);
    expect(stdout).not.toMatch(/[^\P{Cc}\n]/u);
    expect(
      stdout
        .trim()
        .split("\n")
        .map((line) => LogLine.parse(JSON.parse(line))),
    ).toEqual(lines);
    expect(agent.provider.requested).toEqual([{ lines: 100, follow: false }]);
  });

  it("follows until Ctrl-C", async () => {
    await using agent = await startLocalAgent();
    agent.provider.followed = lines;
    const running = startHoldfast(["logs", "-n0", "-f", "--run", agent.runDir]);
    await running.until(/connected/);
    running.child.kill("SIGINT");
    expect((await running.finished).code).toBe(0);
    await vi.waitUntil(() => agent.provider.aborted === 1, { timeout: 120_000 });
  });

  it("reports it when the agent stops during --follow", async () => {
    await using agent = await startLocalAgent();
    agent.provider.followed = lines;
    const running = startHoldfast(["logs", "-f", "--run", agent.runDir]);
    await running.until(/connected/);
    await agent.close();
    const { code, stderr } = await running.finished;
    expect(code).toBe(3);
    expect(stderr).toContain("no agent answers");
  });

  it("ends quietly when its reader has ended", async () => {
    await using agent = await startLocalAgent();
    agent.provider.lines = Array.from({ length: 10_000 }, (_, time) => ({
      time,
      level: "info",
      message: "x".repeat(200),
    }));
    const running = startHoldfast(["logs", "-n", "10000", "--run", agent.runDir]);
    running.child.stdout.once("data", () => running.child.stdout.destroy());
    const { code, stderr } = await running.finished;
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  });

  it.each(["x", "-1", "1.5", "10001", ""])("refuses --lines=%s", async (count) => {
    const { code, stderr } = await runVerb(["logs", `--lines=${count}`]);
    expect(code).toBe(2);
    expect(stderr).toContain("--lines needs a whole number");
  });

  it("exits 3 without an agent", async () => {
    await using dirs = await someDirectories();
    expect((await runVerb(["logs", "--run", dirs.runDir])).code).toBe(3);
  });
});
