import { describe, expect, it } from "vitest";
import { LocalError, Status } from "../../../src/protocol/local/answers.ts";
import { exitCodes } from "../../../src/cli/frame/exit-codes.ts";
import { standing, statusText } from "../../../src/cli/text/status-view.ts";
import { identity, someStatus } from "../../support/fake-local-provider.ts";
import { someDirectories, startLocalAgent } from "../../support/local-agent.ts";
import { runVerb } from "../../support/run-verb.ts";
import { holdfast, startHoldfast } from "../../support/run-holdfast.ts";

const ESC = "\u001b";
const NOW = 1_800_000_000_000;
const plain = (_style: string, text: string): string => text;

describe("holdfast status", () => {
  it("prints a healthy node and exits 0", async () => {
    await using agent = await startLocalAgent();
    const { code, stdout, stderr } = await holdfast(["status", "--run", agent.runDir]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toContain("edge-1.example.net (Agent, ACTIVE)");
    expect(stdout).toMatch(/session +online for \d+ s, ws:\/\/127\.0\.0\.1:8480\/agent\/v1\/session,/);
    expect(stdout).not.toContain(ESC);
  });

  it("prints the documented JSON", async () => {
    await using agent = await startLocalAgent();
    const { code, stdout } = await holdfast(["status", "--json"], { env: { HOLDFAST_RUN: agent.runDir } });
    expect(code).toBe(0);
    expect(Status.parse(JSON.parse(stdout))).toEqual(agent.provider.currentStatus);
  });

  it("exits 3 without an agent, with the socket it tried", async () => {
    await using dirs = await someDirectories();
    const { code, stdout, stderr } = await runVerb(["status", "--json", "--run", dirs.runDir]);
    expect(code).toBe(3);
    expect(stderr).toBe(
      `holdfast: no agent answers on ${dirs.runDir}/agent.sock: start one with 'holdfast agent --run ${dirs.runDir}', or name its run directory with --run\n`,
    );
    const { error } = LocalError.parse(JSON.parse(stdout));
    expect(error.code).toBe("agent-unreachable");
    expect(`holdfast: ${error.message}\n`).toBe(stderr);
  });

  it("exits 3 when the agent died and left its socket", async () => {
    await using agent = await startLocalAgent();
    const { code } = await runVerb(["status", "--run", agent.runDir]);
    expect(code).toBe(0);
    await agent.close();
    expect((await runVerb(["status", "--run", agent.runDir])).code).toBe(3);
  });

  it("exits 4 when the node is not registered", async () => {
    await using agent = await startLocalAgent();
    agent.provider.currentStatus = someStatus({ node: null, session: { state: "unregistered", since: 0, attempt: 0 } });
    const { code, stdout } = await runVerb(["status", "--run", agent.runDir]);
    expect(code).toBe(4);
    expect(stdout).toContain("not registered: run 'holdfast register");
  });

  it("exits 5 while it waits for the control plane, with the reason", async () => {
    await using agent = await startLocalAgent();
    const reason = { code: "ECONNREFUSED", message: "connection refused" };
    const session = { state: "waiting" as const, since: Date.now(), attempt: 3, retryAt: Date.now() + 30_500, reason };
    agent.provider.currentStatus = someStatus({ session });
    const { code, stdout } = await runVerb(["status", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(stdout.replace(/\s+/g, " ")).toMatch(/waiting .*attempt 3, next in \d+ s, ECONNREFUSED: connection refused/);
  });

  it("watches until Ctrl-C, one object a second, also while the agent is down", async () => {
    await using agent = await startLocalAgent();
    const running = startHoldfast(["status", "--watch", "--json", "--run", agent.runDir]);
    await running.until(/"schema":1[^]*"schema":1/);
    await agent.close();
    await running.until(/agent-unreachable/);
    running.child.kill("SIGINT");
    const { code, stdout } = await running.finished;
    expect(code).toBe(0);
    for (const line of stdout.trim().split("\n")) Status.or(LocalError).parse(JSON.parse(line));
  });

  it("prints no terminal control characters, and keeps them in JSON", async () => {
    await using agent = await startLocalAgent();
    const message = `${ESC}[2J${ESC}]0;owned\u0007\u009b31mnasty\u202e\r\nsecond`;
    agent.provider.currentStatus = someStatus({ faults: [{ code: "x", message, since: 0 }] });
    const shown = await runVerb(["status", "--run", agent.runDir]);
    expect(shown.code).toBe(5);
    expect(shown.stdout).toContain("nasty second");
    expect(shown.stdout).not.toMatch(/[^\P{Cc}\n]|\p{Bidi_Control}/u);
    const { stdout } = await runVerb(["status", "--json", "--run", agent.runDir]);
    expect(stdout).not.toMatch(/[^\P{Cc}\n]|\p{Bidi_Control}/u);
    expect(Status.parse(JSON.parse(stdout)).faults[0]?.message).toBe(message);
  });
});

describe("standing", () => {
  const bad = (state: "failed" | "unsupported" | "pending" | "rejected" | "diverged"): Status =>
    someStatus({ sections: { network: { state, issues: ["mtu: too small"], steps: 0, version: 1 } } });

  it.each([
    [someStatus(), "ok"],
    [someStatus({ nodeState: "INACTIVE" }), "ok"],
    [bad("unsupported"), "ok"],
    [bad("pending"), "ok"],
    [bad("failed"), "degraded"],
    [bad("rejected"), "degraded"],
    [bad("diverged"), "degraded"],
    [someStatus({ faults: [{ code: "disk-full", message: "", since: 0 }] }), "degraded"],
    [someStatus({ session: { state: "stopped", since: 0, attempt: 0 } }), "degraded"],
    [someStatus({ node: null }), "unregistered"],
    [someStatus({ engines: { network: "netlink", dataPlane: { state: "degraded", paths: 2, up: 1 } } }), "ok"],
    [someStatus({ engines: { network: "netlink", dataPlane: { state: "down", paths: 2, up: 0 } } }), "degraded"],
  ])("case %#", (status, expected) => {
    expect(standing(status)).toBe(expected);
  });

  it.each([
    ["ok", "ok"],
    ["degraded", "degraded"],
    ["failed", "failed"],
  ] as const)("agrees with a verdict of %s", async (verdict, expected) => {
    expect(standing(someStatus(), verdict)).toBe(expected);
    await using agent = await startLocalAgent();
    agent.provider.currentHealth = { schema: 1, verdict, items: [] };
    const codes = ["status", "health"].map(async (verb) => (await runVerb([verb, "--run", agent.runDir])).code);
    expect(await Promise.all(codes)).toEqual(Array(2).fill(exitCodes[expected].code));
  });
});

describe("statusText", () => {
  it("fits 80 columns and prints only relative times", () => {
    const text = statusText(
      someStatus({
        session: {
          state: "waiting",
          since: NOW - 5000,
          attempt: 12,
          retryAt: NOW + 40_000,
          lastOnlineAt: NOW - 7_200_000,
          address: "192.0.2.10",
          url: identity.session,
          reason: {
            code: "tls-intercepted",
            message: "somebody between this node and its control plane reads the connection",
          },
        },
        cluster: "pair.example.net",
        lifecycleState: "production",
        documents: {
          keys: { version: 1 },
          node: { version: 7, appliedAt: NOW - 90_000 },
          domain: { version: 3, receivedAt: NOW },
        },
        sections: {
          connectors: { state: "unsupported", issues: [], steps: 0, version: 7 },
          network: { state: "failed", issues: ["mtu: too small"], steps: 0, version: 7 },
        },
        telemetry: { events: { queued: 4, dropped: 2 }, metrics: { queued: 0, dropped: 0 } },
        faults: Array.from({ length: 12 }, (_, at) => ({
          code: `f${at}`,
          message: "word ".repeat(30),
          since: NOW - 60_000,
        })),
      }),
      NOW,
      80,
      plain,
    );
    for (const line of text.split("\n")) expect(line.length).toBeLessThanOrEqual(80);
    const flat = text.replace(/\s+/g, " ");
    for (const part of [
      "waiting for 5 s",
      "(192.0.2.10), attempt 12, next in 40 s, last online 2 h ago, tls-intercepted: somebody",
      "(Agent, ACTIVE, production), member of pair.example.net",
      "keys 1, node 7 (applied 90 s ago), domain 3 (received now)",
      "1 unsupported, 1 failed network failed mtu: too small",
      "not applied connectors",
      "events 4 queued, 2 dropped",
      "and 2 more",
    ]) {
      expect(flat).toContain(part);
    }
  });

  it.each([
    [
      {
        state: "degraded",
        paths: 2,
        up: 1,
        carrier: { gateway: "gw2", path: "lte", since: NOW - 5000, reason: "gw1 is gone" },
      },
      "gateways degraded, 1 of 2 paths up; gw2/lte carries since 5 s ago (gw1 is gone)",
    ],
    [{ state: "down", paths: 1, up: 0 }, "gateways down, 0 of 1 paths up"],
    [{ state: "none", paths: 0, up: 0, server: "listening" }, "gateways own gateway listening"],
  ] as const)("prints the state of the paths to other nodes: %#", (dataPlane, expected) => {
    const text = statusText(someStatus({ engines: { network: "netlink", dataPlane } }), NOW, 120, plain);
    expect(text.replace(/\s+/g, " ")).toContain(expected);
  });

  it("does not break a word that is longer than the terminal is wide", () => {
    const text = statusText(someStatus({ tags: { name: "v".repeat(120) } }), NOW, 40, plain);
    expect(text).toContain(`name=${"v".repeat(120)}`);
  });
});
