import { expect, test } from "vitest";
import { diagVerb } from "../../../../src/cli/verbs/diag.ts";
import { restartVerb } from "../../../../src/cli/verbs/restart.ts";
import type { TriggerLine } from "../../../../src/protocol/local/answers.ts";
import { someCall } from "../../../support/fake-call.ts";
import { someStatus } from "../../../support/fake-local-provider.ts";
import { someDirectories, startLocalAgent, type LocalAgent } from "../../../support/local-agent.ts";

const memory = { totalBytes: 1_000_000_000, availableBytes: 400_000_000, usedPercent: 60 };
const disk = { totalBytes: 2_000_000_000, freeBytes: 500_000_000, usedPercent: 75 };

/** Makes the agent answer these events; any other is unknown. */
function answering({ provider }: LocalAgent, answers: Readonly<Record<string, () => unknown>>): void {
  provider.trigger = async function* (event): AsyncGenerator<TriggerLine> {
    const answer = answers[event];
    yield answer === undefined
      ? { kind: "error", code: "not-configured", message: `no ${event} here` }
      : { kind: "result", body: answer() };
  };
}

function wellAnswers(agent: LocalAgent): Readonly<Record<string, () => unknown>> {
  const { provider } = agent;
  return {
    status: () => ({
      services: { "holdfast-agent.service": "active" },
      cpu: { load: 0.25 },
      memory,
      disk,
      uptimeSeconds: 7200,
      status: provider.currentStatus,
      health: provider.currentHealth,
    }),
    "network-status": () => ({
      interfaces: [{ name: "eth0", state: "UP", addresses: ["192.0.2.7/24"], mtu: 1500 }],
      nameServers: ["192.0.2.53"],
    }),
    "dns-health": () => ({ success: true, name: "cp.example.net", servers: [{ ip: "192.0.2.53", success: true }] }),
    errors: () => ({ errors: [{ time: 1, component: "session", message: "it broke", startup: false }] }),
  };
}

test("diag prints the agent's answers and its own checks, and names missing answers", async () => {
  await using agent = await startLocalAgent();
  answering(agent, wellAnswers(agent));
  const { call, shown } = someCall(agent, {});
  expect(await diagVerb.run(call)).toBe("ok");
  const text = shown.join("");
  expect(text).toMatch(/^NODE\n +health +ok\n +load +0\.25\n/);
  expect(text).toMatch(/\nSESSION\n +OK agent +it has a session/);
  expect(text).toMatch(/\nNAME SERVERS\n +OK 192\.0\.2\.53 +answers\n/);
  expect(text).toMatch(/\nINTERFACES\n +eth0 +UP, 192\.0\.2\.7\/24, MTU 1500\n/);
  expect(text).toMatch(/\nERRORS\n.*session: it broke\n/);
  expect(text).toMatch(/\nNOT ANSWERED\n +repo-connectivity +not-configured: no repo-connectivity here\nok\n$/);
  const json = someCall(agent, {});
  const { settings } = json.call;
  await diagVerb.run({ ...json.call, settings: { ...settings, isJson: true } });
  expect(diagVerb.output?.parse(JSON.parse(json.shown.join("")))).toMatchObject({ schema: 1, verdict: "ok" });
});

test.each([
  ["a name server", { "dns-health": () => ({ success: false, name: "cp.example.net", servers: [] }) }],
  ["the repository", { "repo-connectivity": () => ({ repositories: [{ url: "https://r.example", success: false }] }) }],
] as const)("diag is degraded by %s that does not answer", async (_what, worse) => {
  await using agent = await startLocalAgent();
  answering(agent, { ...wellAnswers(agent), ...worse });
  expect(await diagVerb.run(someCall(agent, {}).call)).toBe("degraded");
});

test("diag without an agent prints what it can, and once why there is no more", async () => {
  await using dirs = await someDirectories();
  const readTargets = () => Promise.resolve(() => Promise.resolve({ schema: 1 as const, paths: [] }));
  const { call, shown } = someCall(dirs, { offline: { readTargets } });
  expect(await diagVerb.run(call)).toBe("degraded");
  expect(shown.join("").match(/agent-unreachable/g)).toHaveLength(1);
});

test("restart waits for the next agent", async () => {
  await using agent = await startLocalAgent();
  const { provider } = agent;
  answering(agent, {
    "node-restart-service": () => {
      provider.currentStatus = someStatus({ pid: 4712, startedAt: Date.now() });
      return { output: { message: "Node service will restart" } };
    },
  });
  const { call, shown } = someCall(agent, {});
  expect(await restartVerb.run(call)).toBe("ok");
  expect(shown.join("")).toBe(`the agent restarted: process 4712, after ${process.pid}\n`);
});

test("restart reports why nothing would start the agent again, and that none runs", async () => {
  await using agent = await startLocalAgent();
  agent.provider.triggerLines = [{ kind: "error", code: "not-supported", message: "this is not a managed install" }];
  await expect(restartVerb.run(someCall(agent, {}).call)).rejects.toMatchObject({ code: "not-supported" });
  await agent.close();
  await expect(restartVerb.run(someCall(agent, {}).call)).rejects.toMatchObject({ code: "agent-unreachable" });
});
