import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { InputError } from "../../../src/errors.ts";
import { startLocalAgent } from "../../support/local-agent.ts";
import { runVerb } from "../../support/run-verb.ts";
import { holdfast } from "../../support/run-holdfast.ts";
import { tempDir } from "../../support/temp-dir.ts";

describe("holdfast plan", () => {
  it("prints the steps, what is rejected and what is not applied, and sends the document", async () => {
    await using agent = await startLocalAgent();
    agent.provider.currentPlan = {
      schema: 1,
      sections: [
        {
          section: "connectors",
          steps: [{ kind: "listen", subject: "c1\u001b[5m", guarded: false }],
          total: 3,
          issues: [{ path: "connectors.items.c2", code: "invalid", message: "connectors.items.c2: no port" }],
        },
        { section: "vpn", steps: [], total: 0, issues: [], unsupported: "not applied" },
      ],
      notes: [],
    };
    const file = join(tempDir(), "node.json");
    for (const text of ['{"config":{"connectors":{}}}', '{"connectors":{}}']) {
      writeFileSync(file, text);
      const { code, stdout } = await holdfast(["plan", "--document", file, "--run", agent.runDir]);
      expect(code).toBe(0);
      expect(stdout).toBe(
        "connectors: listen c1\nconnectors: and 2 more\nconnectors: invalid: connectors.items.c2: no port\nvpn: not applied\n3 steps\n",
      );
      expect(agent.provider.requested.at(-1)).toEqual({ config: { connectors: {} } });
    }
  });

  it("prints the detail of each step, all steps before the issues", async () => {
    await using agent = await startLocalAgent();
    const step = (kind: string, detail: string) => ({ kind, subject: "ea0076ec", guarded: false, detail });
    const issue = { path: "services.items.a", code: "service-down", message: "services.items.a: no answer" };
    agent.provider.currentPlan = {
      schema: 1,
      sections: [
        { section: "services", steps: [step("change", "web: \u001b[5mtarget 1 → 2")], total: 1, issues: [issue] },
        { section: "connectors", steps: [step("change", "tcp 127.0.0.1:1: maxmbps 10 → 20")], total: 1, issues: [] },
      ],
      notes: [],
    };
    const text =
      "services: change web: target 1 → 2\nconnectors: change tcp 127.0.0.1:1: maxmbps 10 → 20\n" +
      "services: service-down: services.items.a: no answer\n2 steps\n";
    expect((await runVerb(["plan", "--run", agent.runDir])).stdout).toBe(text);
    const json = JSON.parse((await runVerb(["plan", "--json", "--run", agent.runDir])).stdout) as unknown;
    expect(json).toEqual(agent.provider.currentPlan);
  });

  it("refuses an invalid configuration before any request", async () => {
    await using agent = await startLocalAgent();
    const file = join(tempDir(), "node.json");
    for (const text of ["[]", "{", '{"connectorz":{}}', '{"connectors":7}']) {
      writeFileSync(file, text);
      expect((await runVerb(["plan", "--document", file, "--run", agent.runDir])).code).toBe(2);
    }
    expect(agent.provider.requested).toEqual([]);
  });
});

describe("holdfast why", () => {
  it("exits 0 when there is nothing, 5 with the reasons otherwise", async () => {
    await using agent = await startLocalAgent();
    expect((await runVerb(["why", "--run", agent.runDir])).stdout).toBe("everything is as it should be\n");
    const now = Date.now();
    agent.provider.reasons = [
      {
        section: "connectors",
        item: "connectors.c1",
        code: "port-taken",
        message: "80 is taken",
        since: now - 7_200_000,
        lastAttempt: now - 10_800_000,
      },
    ];
    const { code, stdout } = await runVerb(["why", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(stdout).toMatch(/^connectors\.c1 +port-taken 80 is taken \(for 2 h, tried 3 h ago\)/);
  });

  it("prints a code once, also if the message begins with it", async () => {
    await using agent = await startLocalAgent();
    const now = Date.now();
    const message = "node: identity-lost: the keys are gone";
    agent.provider.reasons = [{ section: "node", code: "identity-lost", message, since: now, lastAttempt: now }];
    const { stdout } = await runVerb(["why", "--run", agent.runDir]);
    expect(stdout).toMatch(/^node +identity-lost the keys are gone \(/);
  });

  it("prints notices last, and exits 0 when there is nothing else", async () => {
    await using agent = await startLocalAgent();
    const at = { since: Date.now(), lastAttempt: Date.now() };
    const notice = { section: "connectors", item: "connectors.c1", code: "E_V1_ON_V2", message: "ignored", ...at };
    agent.provider.reasons = [{ ...notice, notice: true }];
    const well = await runVerb(["why", "--run", agent.runDir]);
    expect([well.code, well.stdout]).toEqual([
      0,
      expect.stringMatching(
        /^everything is as it should be\nconnectors\.c1 +notice E_V1_ON_V2 ignored \((?:just now|for )/,
      ),
    ]);
    agent.provider.reasons.push({ section: "services", code: "timeout", message: "too slow", ...at });
    const { code, stdout } = await runVerb(["why", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(stdout).toMatch(/^services +timeout .*\nconnectors\.c1 +notice /);
  });
});

describe("holdfast config show", () => {
  it("prints the applied configuration, whole or one section", async () => {
    await using agent = await startLocalAgent();
    agent.provider.currentConfig = { connectors: { a: 1 }, core: { b: 2 } };
    const show = async (...rest: string[]): Promise<unknown> =>
      JSON.parse((await runVerb(["config", "show", ...rest, "--run", agent.runDir])).stdout);
    expect(await show()).toEqual({ connectors: { a: 1 }, core: { b: 2 } });
    expect(await show("core")).toEqual({ core: { b: 2 } });
    expect(await show("vpn")).toEqual({});
    const exec = (value: string) => ({ commands: [{ id: "1", variables: [{ name: "PASSWORD", value }] }] });
    agent.provider.currentConfig = { exec: exec("correct-horse") };
    expect(await show("exec")).toEqual({ exec: exec("***") });
    expect(await show("exec", "--secrets")).toEqual({ exec: exec("correct-horse") });
    const { code, stderr } = await runVerb(["config", "show", "connector", "--run", agent.runDir]);
    expect(code).toBe(2);
    expect(stderr).toContain("did you mean connectors?");
    expect((await runVerb(["config", "hide", "--run", agent.runDir])).code).toBe(2);
  });
});

describe("holdfast rollback", () => {
  it("rolls back, or only plans it, with the node's document by default", async () => {
    await using agent = await startLocalAgent();
    const { code, stdout } = await runVerb(["rollback", "--run", agent.runDir]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^the node document goes back from version 8 to 7, until/);
    expect(agent.provider.requested.at(-1)).toEqual({ document: "node", plan: false });
    const planned = await runVerb(["rollback", "--document", "domain", "--plan", "--run", agent.runDir]);
    expect(planned.stdout).toMatch(
      /^going back from version 8 to 7 of the domain document would take:\nnothing to do\n$/,
    );
    expect(agent.provider.requested.at(-1)).toEqual({ document: "domain", plan: true });
  });

  it("refuses an unknown document before any request, and prints why the agent refuses", async () => {
    await using agent = await startLocalAgent();
    const wrong = await runVerb(["rollback", "--document", "nod", "--run", agent.runDir]);
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining("did you mean node?")]);
    expect(agent.provider.requested).toEqual([]);
    agent.provider.thrown = new InputError("not-found", "no node document before version 1 is kept");
    const refused = await runVerb(["rollback", "--run", agent.runDir]);
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining("before version 1")]);
  });
});
