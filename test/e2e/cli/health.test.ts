import { describe, expect, it } from "vitest";
import { Health } from "../../../src/protocol/local/answers.ts";
import { someStatus } from "../../support/fake-local-provider.ts";
import { someDirectories, startLocalAgent } from "../../support/local-agent.ts";
import { runVerb } from "../../support/run-verb.ts";
import { holdfast } from "../../support/run-holdfast.ts";

const troubled: Health = {
  schema: 1,
  verdict: "degraded",
  items: [
    { name: "session", status: "pass", message: "online" },
    {
      name: "disk",
      status: "warn",
      message: "4 % \u001b[5mleft",
      since: Date.now() - 3_600_000 * 3,
      fix: "free some space",
    },
    { name: "clock", status: "unknown", message: "never compared" },
  ],
};

describe("holdfast health", () => {
  it("exits 0 when all is well", async () => {
    await using agent = await startLocalAgent();
    const { code, stdout } = await holdfast(["health", "--run", agent.runDir]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^verdict +ok\npass +session +online\n$/);
  });

  it("exits 5 when a check fails, and prints what to do", async () => {
    await using agent = await startLocalAgent();
    agent.provider.currentHealth = troubled;
    const { code, stdout } = await runVerb(["health", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(stdout).toMatch(/warn +disk +4 % left \(3 h ago\)\n +fix: free some space\nunknown clock +never compared/);
  });

  it("breaks no line for a program", async () => {
    await using agent = await startLocalAgent();
    const message = "a long story ".repeat(40).trim();
    agent.provider.currentHealth = { ...troubled, items: [{ name: "disk", status: "warn", message }] };
    expect((await runVerb(["health", "--run", agent.runDir])).stdout).toContain(message);
    agent.provider.currentStatus = someStatus({ faults: [{ code: "disk", message, since: 1 }] });
    expect((await runVerb(["status", "--run", agent.runDir])).stdout).toContain(message);
  });

  it("prints the documented JSON", async () => {
    await using agent = await startLocalAgent();
    agent.provider.currentHealth = troubled;
    const { code, stdout } = await runVerb(["health", "--json", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(Health.parse(JSON.parse(stdout))).toEqual(troubled);
  });

  it("exits 1 when it failed, 4 unregistered, 5 not connected, 3 without an agent", async () => {
    await using agent = await startLocalAgent();
    const run = async (): Promise<number | null> => (await runVerb(["health", "--run", agent.runDir])).code;
    agent.provider.currentStatus = someStatus({ session: { state: "connecting", since: 0, attempt: 1 } });
    expect(await run()).toBe(5);
    agent.provider.currentHealth = { schema: 1, verdict: "failed", items: [] };
    expect(await run()).toBe(1);
    agent.provider.currentStatus = someStatus({ node: null });
    expect(await run()).toBe(4);
    await using empty = await someDirectories();
    expect((await runVerb(["health", "--run", empty.runDir])).code).toBe(3);
  });
});
