import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import type { Status } from "../../../src/protocol/local/answers.ts";
import { fakeTime, type FakeTime } from "../../support/fake-time.ts";
import { fileEnd } from "../../support/file-end.ts";
import { startAgent, type AgentProgram } from "../../support/machine/programs.ts";
import { sampleOf, TESTS_ALL } from "../../support/sample.ts";
import { eventsOf, startStage, statusWhere, untilOnline, type Stage } from "../../support/stage.ts";
import { startHoldfast } from "../../support/run-holdfast.ts";
import { runVerb } from "../../support/run-verb.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

/** One node for the first two tests, with this wall clock. */
let stage: Stage;
let time: FakeTime;
let agent: AgentProgram;
const onFinished = fileEnd();

beforeAll(async () => {
  const dir = tempDir(onFinished);
  time = fakeTime(dir, "@1970-01-01 00:01:00");
  stage = await startStage(dir, { isTls: true, agent: time.options, onFinished });
  agent = stage.agent;
});

async function ping({ controller, uid }: Stage): Promise<number> {
  const body = { host: "127.0.0.1", count: 1 };
  return (await controller.call("POST", `/node/${uid}/trigger/tg-ping?wait=1`, body)).status;
}

async function clockItem() {
  return (await agent.health()).items.find(({ name }) => name === "clock");
}

test("a node with a clock in 1970 registers over TLS, works, and reports that its clock is wrong", async () => {
  const { dir, controller, uid } = stage;
  expect((await agent.status()).startedAt).toBeLessThan(3_600_000);
  expect(await ping(stage)).toBe(200);
  await controller.call("PUT", `/node/${uid}/tag/site`, { value: "one" });
  await statusWhere(agent, "documents arrive", ({ tags }) => tags["site"] === "one");
  const behind = await clockItem();
  expect(behind).toMatchObject({ status: "fail", fix: expect.stringContaining("set the clock") as string });
  expect(behind?.message).toMatch(/^clock-behind: .* at 1970-01-01 .*, and it is 20\d\d-/);
  expect((await agent.status()).clock).toMatchObject({ state: "clock-behind", by: "control-plane" });
  // Sent records have the control plane's time, or at least that of the build.
  const { body } = await controller.call("GET", `/v2/event/${uid}?limit=100&sort=timestamp:asc`);
  const events = body as { timestamp: number; receivedTime: number }[];
  expect(events.length).toBeGreaterThan(0);
  for (const { timestamp, receivedTime } of events) {
    expect(timestamp).toBeGreaterThan(Date.UTC(2026, 0, 1) / 1000);
    expect(timestamp).toBeLessThanOrEqual(receivedTime + 1);
  }

  // With the right time at the next start it is the same node, and not reported as two.
  await agent.end();
  time.set("+0d");
  agent = await startAgent(`${dir}/node`, { ...time.options, onFinished });
  await untilOnline(agent);
  expect(await ping(stage)).toBe(200);
  const types = (await eventsOf(controller, uid)).map(({ eventType }) => eventType);
  expect(types).not.toContain("Identity Shared");
});

test("a wall clock that jumps a year and back costs no session and no trigger; before any session it is compared with the stored time, and is right at once when set", async () => {
  const { dir, controller, proxy, uid } = stage;
  expect(await clockItem()).toMatchObject({ status: "pass" });
  const { session } = await agent.status();
  const { connections } = proxy;

  const jumps = [
    ["+365d", "ahead"],
    ["-365d", "behind"],
  ] as const;
  for (const [jump, says] of sampleOf(jumps, 1, "jumps of the clock")) {
    const { rttMs } = (await agent.status()).session;
    time.set(jump);
    expect(await ping(stage)).toBe(200);
    const item = await waitFor(
      "health names the clock",
      async () => {
        const found = await clockItem();
        return found?.status === "fail" ? found : undefined;
      },
      45_000,
    );
    expect(item.message).toContain(says);
    // The next timer detects that the clocks disagree.
    await statusWhere(agent, "a ping was answered", (status) => status.session.rttMs !== rttMs, 80_000);
    expect((await agent.status()).session).toMatchObject({ state: "online", sid: session.sid });
    expect(await ping(stage)).toBe(200);
  }
  time.set("+0d");
  await waitFor("health is content again", async () => (await clockItem())?.status === "pass", 45_000);
  expect((await agent.status()).session).toMatchObject({ state: "online", sid: session.sid });
  expect(await ping(stage)).toBe(200);
  expect(proxy.connections).toBeLessThanOrEqual(connections + 3);

  const kept = join(agent.stateDir, "reported/known-time.json");
  await waitFor("the time is kept", () => existsSync(kept));
  const first = readFileSync(kept, "utf8");
  const { body } = await controller.call("GET", `/v2/event/${uid}?limit=100`);
  const before = (body as unknown[]).length;
  await agent.end();
  // A clean stop stores the elapsed time.
  expect(readFileSync(kept, "utf8")).not.toBe(first);
  await controller.end();

  time.set("-3d");
  const late = await startAgent(`${dir}/node`, time.options);
  const status = await late.status();
  expect(status.session.state).not.toBe("online");
  expect(status.clock).toMatchObject({ state: "clock-behind", by: "control-plane" });
  expect((status.clock?.knownAt ?? 0) - (status.clock?.clockAt ?? 0)).toBeGreaterThan(2 * 24 * 3600 * 1000);
  const dirs = ["--state", late.stateDir, "--run", late.runDir];
  expect((await runVerb(["why", ...dirs])).stdout).toContain("clock-behind");
  expect(before).toBeGreaterThan(0);
  // The dialogue, with the machine's own clock.
  const env = Object.fromEntries(
    Object.entries(time.options.env ?? {}).flatMap(([k, v]) => (v === undefined ? [] : [[k, v]])),
  );
  const args = ["setup", "--config", join(dir, "agent.json"), ...dirs];
  const setup = startHoldfast(args, { input: "\n\n\n", env });
  await setup.until(/FAIL clock +clock-behind: this machine's clock is at[\s\S]*fix: set the clock/);
  // It would wait for a session.
  setup.child.kill("SIGINT");
  await setup.finished;

  time.set("+0d");
  expect((await late.status()).clock).toBeUndefined();
  expect((await runVerb(["why", ...dirs])).stdout).not.toContain("clock-behind");
});

if (TESTS_ALL) {
  test("a waiting node whose clocks suddenly disagree, as after a suspend, reconnects at once", async () => {
    const dir = tempDir();
    const time = fakeTime(dir, "+0d");
    const { agent, proxy } = await startStage(dir, { agent: time.options });
    await proxy.set({ kind: "refuse" });
    const isFar = ({ session }: Status): boolean =>
      session.state === "waiting" && (session.retryAt ?? 0) - Date.now() > 30_000;
    const { session } = await statusWhere(agent, "the next attempt is far away", isFar, 240_000);
    await proxy.set({ kind: "pass" });
    time.set("+8h");
    expect((await untilOnline(agent, 25_000)).session.attempt).toBe(session.attempt + 1);
  }, 360_000);
}
