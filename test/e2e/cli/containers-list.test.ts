import { expect, test } from "vitest";
import { ContainersReport, VolumesReport, type ContainerView } from "../../../src/protocol/local/containers.ts";
import { someDirectories, startLocalAgent } from "../../support/local-agent.ts";
import { runVerb } from "../../support/run-verb.ts";
import { startHoldfast } from "../../support/run-holdfast.ts";

const now = Date.now();
const web: ContainerView = {
  id: "3f2b",
  name: "web",
  type: "service",
  enabled: true,
  state: "running",
  since: now - 3_600_000,
  stoppedByHand: false,
  health: "healthy",
  restarts: 2,
  image: { repository: "acme.example/web", tag: "1.2" },
};
const broken: ContainerView = {
  ...web,
  id: "4a",
  name: "db",
  type: "recurring",
  state: "backoff",
  health: undefined,
  reason: "pull of db:1 failed: \u001b[5munauthorized",
  nextAttempt: now + 60_000,
};
const well = { state: "well", since: now } as const;

function run(runDir: string, ...args: string[]) {
  return runVerb([...args, "--run", runDir]);
}

test("a table with a line for each, without empty columns", async () => {
  await using agent = await startLocalAgent();
  agent.provider.currentContainers = { schema: 1, engine: well, containers: [web] };
  const shown = await run(agent.runDir, "containers");
  expect(shown).toMatchObject({ code: 0, stderr: "" });
  const [head, row, ...rest] = shown.stdout.split("\n");
  expect(head?.split(/ +/)).toEqual(["NAME", "TYPE", "STATE", "SINCE", "HEALTH", "RESTARTS", "IMAGE"]);
  expect(row).toMatch(/^web +service +running +60 min +healthy +2 +acme\.example\/web:1\.2$/);
  expect(rest).toEqual([""]);
  expect((await run(agent.runDir, "containers", "list")).stdout.split("\n")).toHaveLength(3);
});

test("one with an issue is degraded, with its reason, and foreign text reaches the terminal escaped", async () => {
  await using agent = await startLocalAgent();
  const unwell = { state: "unwell", since: now, reason: "no socket" } as const;
  agent.provider.currentContainers = { schema: 1, engine: unwell, containers: [broken, web] };
  const shown = await run(agent.runDir, "containers");
  expect(shown.code).not.toBe(0);
  expect(shown.stdout).toContain("container engine unwell");
  expect(shown.stdout).toContain("no socket");
  expect(shown.stdout).toMatch(/^db .*pull of db:1 failed: .*unauthorized; tried again in [0-9]/m);
  expect(shown.stdout).not.toContain("\u001b");
  const json = await run(agent.runDir, "containers", "--json");
  expect(ContainersReport.parse(JSON.parse(json.stdout)).containers).toHaveLength(2);
});

test("one that is stopped by an operator, disabled or not due is healthy", async () => {
  await using agent = await startLocalAgent();
  const idle = { ...web, state: "idle", health: undefined } as const;
  agent.provider.currentContainers = {
    schema: 1,
    engine: well,
    containers: [
      { ...idle, stoppedByHand: true },
      { ...idle, name: "off", enabled: false },
      { ...idle, name: "job", type: "recurring", nextRun: now + 7_200_000, lastExitCode: 3 },
    ],
  };
  const { code, stdout } = await run(agent.runDir, "containers");
  expect(code).toBe(0);
  expect(stdout).toMatch(/^web .*stopped by hand$/m);
  expect(stdout).toMatch(/^off .*disabled$/m);
  expect(stdout).toMatch(/^job .*next run in [0-9].*; ended with 3$/m);
  agent.provider.currentContainers = { schema: 1, engine: well, containers: [] };
  expect((await run(agent.runDir, "containers")).stdout).toBe("the applied configuration has no container\n");
});

test("start, stop and restart use the container's name, and print the result", async () => {
  await using agent = await startLocalAgent();
  const { provider } = agent;
  provider.triggerLines = [{ kind: "result", body: { message: "Successful stop" } }];
  expect(await run(agent.runDir, "containers", "stop", "Web_1.x")).toMatchObject({
    code: 0,
    stdout: "Web_1.x: stopped\n",
  });
  provider.triggerLines = [
    { kind: "progress", seq: 0, channel: "stdout", data: "out\u001b[5m\n" },
    { kind: "progress", seq: 1, channel: "stderr", data: "err\n" },
    { kind: "result", body: { exitCode: 7, truncated: false, durationMs: 1 } },
  ];
  const attached = await run(agent.runDir, "containers", "start", "job");
  expect(attached).toMatchObject({ code: 7, stderr: "err\n" });
  expect(attached.stdout).not.toContain("\u001b");
  provider.triggerLines = [{ kind: "error", code: "unknown-event", message: "no trigger event db" }];
  expect(await run(agent.runDir, "containers", "restart", "db")).toMatchObject({
    code: 1,
    stderr: "holdfast: no container is called db\n",
  });
});

test("reports an impossible argument as wrong usage", async () => {
  const { runDir, ...directories } = await someDirectories();
  for (const args of [
    ["start"],
    ["dance", "web"],
    ["list", "web"],
    ["stop", "web", "--detach"],
    ["start", "web", "--watch"],
    ["--lines", "3"],
    ["stop", "web", "--", "ls"],
  ]) {
    expect((await run(runDir, "containers", ...args)).code, args.join(" ")).toBe(2);
  }
  await directories[Symbol.asyncDispose]();
});

test("--watch repeats it until stopped", async () => {
  await using agent = await startLocalAgent();
  agent.provider.currentContainers = { schema: 1, engine: well, containers: [web] };
  const watching = startHoldfast(["containers", "--watch", "--run", agent.runDir]);
  await watching.until(/web(.|\n)*web/);
  watching.child.kill("SIGINT");
  expect((await watching.finished).code).toBe(0);
});

test("volumes, with their paths and users", async () => {
  await using agent = await startLocalAgent();
  expect((await run(agent.runDir, "volumes")).stdout).toBe("the applied configuration has no volume\n");
  const data = { name: "data", state: "ready", encrypted: false, path: "/store/data", usedBy: ["web", "db"] } as const;
  agent.provider.currentVolumes = {
    schema: 1,
    volumes: [{ ...data, usedBy: [...data.usedBy] }],
  };
  expect((await run(agent.runDir, "volumes")).stdout).toMatch(/^data +ready +no +web,db +\/store\/data$/m);
  agent.provider.currentVolumes.volumes.push({
    name: "key",
    state: "failed",
    reason: "locked",
    encrypted: true,
    usedBy: [],
  });
  const shown = await run(agent.runDir, "volumes", "--json");
  expect(shown.code).not.toBe(0);
  expect(VolumesReport.parse(JSON.parse(shown.stdout)).volumes).toHaveLength(2);
});

test("images", async () => {
  await using agent = await startLocalAgent();
  agent.provider.triggerLines = [{ kind: "result", body: { images: [{ name: "acme.example/web", tag: "1" }] } }];
  expect((await run(agent.runDir, "images")).stdout).toMatch(/^NAME +TAG\nacme\.example\/web +1\n$/);
  agent.provider.triggerLines = [{ kind: "result", body: { images: [] } }];
  expect((await run(agent.runDir, "images")).stdout).toBe("no image\n");
});
