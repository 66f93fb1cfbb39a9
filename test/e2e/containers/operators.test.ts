import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/host/clock.ts";
import { hostEngine } from "../../../src/host/engine/host-engine.ts";
import { startEngine, type TestEngine } from "../../support/containers/docker-engine.ts";
import { makeImage, UNTIL_STOPPED } from "../../support/containers/images.ts";
import { privateNetwork } from "../../support/network/private-stage.ts";
import {
  freePort,
  registerNode,
  startAgent,
  startController,
  type AgentProgram,
  type ControllerProgram,
} from "../../support/machine/programs.ts";
import { runVerb } from "../../support/run-verb.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const forever = new AbortController().signal;
const REPOSITORY = "127.0.0.1:1/test/box";
const IDS = {
  web: "3f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c11",
  job: "3f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c12",
  talker: "3f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c13",
} as const;
const CANARY = "canary-7b1e9d20c5";

let docker: TestEngine;
let stage: { readonly dir: string; readonly controller: ControllerProgram; readonly uid: string };
let agent: AgentProgram;
let more: string[];
let within: readonly string[];

async function start(): Promise<void> {
  docker = await startEngine();
  onTestFinished(() => docker.stop());
  await makeImage(docker, { tag: `${REPOSITORY}:1`, command: UNTIL_STOPPED });
  await makeImage(docker, { tag: `${REPOSITORY}:unused`, command: ["true"], env: ["UNUSED=1"] });
  const dir = tempDir();
  const settings = join(dir, "agent.json");
  writeFileSync(settings, JSON.stringify({ engineSocket: docker.socketPath, containers: { events: true } }));
  more = ["--config", settings];
  const port = await freePort();
  const controller = await startController(dir, port);
  // Of the agents of one network only one has the containers.
  within = (await privateNetwork(dir, port, "root")).within;
  agent = await startAgent(join(dir, "node"), { more, within });
  stage = { dir, controller, uid: await registerNode(controller, agent, "node") };
}

async function define(name: keyof typeof IDS, record: object, parts: object = {}): Promise<void> {
  const path = `/v2/node/${stage.uid}/exec/container`;
  const image = { repository: REPOSITORY, tag: "1" };
  const body = { id: IDS[name], name, execType: "service", stopTime: 1, image, ...record };
  const made = await stage.controller.call("POST", path, body);
  expect([made.status, made.body]).toEqual([expect.toSatisfy((status: number) => status < 300), expect.anything()]);
  const put = await stage.controller.call("PUT", `${path}/${IDS[name]}/config`, {
    variables: [{ name: "PASSWORD", value: CANARY }],
    ...parts,
  });
  expect(put.status).toBeLessThan(300);
}

async function trigger(event: string, body: object): Promise<{ status: number; body: unknown }> {
  return stage.controller.call("POST", `/node/${stage.uid}/trigger/${event}?wait=1`, body);
}

const statusOf = async (name: string): Promise<unknown> => {
  const { body } = await trigger("container-status", { container: name });
  return (body as Record<string, { status?: string }>)[name]?.status;
};
const untilStatus = (name: string, status: string) =>
  waitFor(`${name} is ${status}`, async () => (await statusOf(name)) === status);
const cli = (...args: string[]) => runVerb([...args, "--run", agent.runDir]);

/** Start, stop and restart by name: a stop holds, and the status says so everywhere. */
async function standsAndStops(): Promise<void> {
  await define("web", {}, { healthCheck: { command: "true", interval: 1, timeout: 1 } });
  await untilStatus("web", "RUNNING");
  const { body } = await trigger("container-status", {});
  expect(body).toMatchObject({ web: { status: "RUNNING", imageName: `${REPOSITORY}/1` } });
  expect((body as { web: { imageId: string } }).web.imageId).toMatch(/^[0-9a-f]{12}$/);

  expect(await trigger("web", { cmd_action: "stop" })).toEqual({ status: 200, body: { message: "Successful stop" } });
  expect(await statusOf("web")).toBe("STOPPED");
  // Neither another document nor another pass brings it back.
  await define("job", { execType: "onDemand", command: "sh -c 'echo run; sleep 1; echo oops >&2; exit 4'" });
  await untilStatus("job", "STOPPED");
  expect(await statusOf("web")).toBe("STOPPED");
  const listed = await cli("containers");
  expect(listed.stdout).toMatch(/^web +service +idle .*stopped by hand/m);

  expect((await trigger("web", { cmd_action: "start" })).body).toEqual({ message: "Successful start" });
  expect(await statusOf("web")).toBe("RUNNING");
  const engine = hostEngine({ socketPath: docker.socketPath, clock: systemClock() });
  const pidOf = async () => (await engine.inspectContainer(`holdfast-${IDS.web}`, forever))?.pid;
  const pid = await pidOf();
  expect((await cli("containers", "restart", "web")).stdout).toBe("web: restarted\n");
  expect(await pidOf()).not.toBe(pid);
  await waitFor("its health", async () => {
    const { web } = (await trigger("container-status", {})).body as { web: { health?: string } };
    return web.health === "healthy";
  });
  expect((await trigger("nobody", { cmd_action: "start" })).status).toBe(422);
  expect((await trigger("web", { cmd_action: "dance" })).status).toBe(422);
  const unknown = await trigger("container-status", { container: "nobody" });
  expect([unknown.status, unknown.body]).toMatchObject([404, { code: "not-found", details: { field: "container" } }]);
}

/** Images are listed, and deleted unless something uses them. */
async function images(): Promise<void> {
  const { body } = await trigger("container-image", { action: "list" });
  expect((body as { images: unknown[] }).images).toEqual(
    expect.arrayContaining([
      { name: REPOSITORY, tag: "1" },
      { name: REPOSITORY, tag: "unused" },
    ]),
  );
  const used = await trigger("container-image", { action: "delete", image: `${REPOSITORY}/1` });
  expect(used).toMatchObject({ status: 200, body: { error: expect.stringContaining("web") as string } });
  const unused = { action: "delete", image: `${REPOSITORY}/unused` };
  expect((await trigger("container-image", unused)).body).toEqual({ success: "Successful deletion" });
  expect((await trigger("container-image", unused)).body).toMatchObject({ error: expect.any(String) as string });
  expect((await cli("images")).stdout).not.toContain("unused");
}

/** A start on demand gives its output as a stream, and ends with it. */
async function onDemand(): Promise<void> {
  const url = `${stage.controller.url}/node/${stage.uid}/trigger/job?stream=1`;
  const headers = { authorization: stage.controller.key(), "content-type": "application/json" };
  const start = (signal: AbortSignal) =>
    fetch(url, { method: "POST", headers, body: JSON.stringify({ cmd_action: "start" }), signal });
  const answer = await start(forever);
  const lines = (await answer.text())
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { kind?: string; data?: string; result?: { exitCode: number } });
  expect(lines.filter(({ kind }) => kind === "stdout").map(({ data }) => data)).toContain("run\n");
  expect(lines.find(({ kind }) => kind === "stderr")?.data).toBe("oops\n");
  expect(lines.at(-1)?.result).toMatchObject({ exitCode: 4 });

  const run = await cli("containers", "start", "job");
  expect(run).toMatchObject({ code: 4, stdout: expect.stringContaining("run\n") as string });
  expect((await cli("containers", "start", "--detach", "job")).stdout).toBe("job: started\n");
  await untilStatus("job", "STOPPED");

  const path = `/v2/node/${stage.uid}/exec/container/${IDS.job}`;
  const endless = { execType: "onDemand", command: "sh -c 'echo run; exec sleep 600'", name: "job", stopTime: 1 };
  const image = { repository: REPOSITORY, tag: "1" };
  expect((await stage.controller.call("PUT", path, { ...endless, image })).status).toBe(200);
  await waitFor("the new definition", async () => {
    const { stdout } = await cli("config", "show", "--json");
    return stdout.includes("exec sleep 600");
  });
  const watching = new AbortController();
  const watched = await start(watching.signal);
  const reader = watched.body?.getReader();
  await reader?.read();
  await untilStatus("job", "RUNNING");
  watching.abort();
  await untilStatus("job", "STOPPED");
}

/** Saved output survives the death of the agent, each line once. */
async function savedOutput(): Promise<void> {
  await define("talker", {
    saveOutput: true,
    command: "sh -c 'n=0; while true; do n=$((n+1)); echo line $n; sleep 0.2; done'",
  });
  const path = `/v2/node/${stage.uid}/plugin-logs/container-output?container=talker&limit=2000`;
  const lines = async (): Promise<string[]> => {
    const { body } = await stage.controller.call("GET", path);
    return (body as { text: string; stream: string }[])
      .map(({ text }) => text)
      .join("")
      .trim()
      .split("\n");
  };
  await waitFor("some output", async () => (await lines()).length > 5);
  await agent.end("SIGKILL");
  const before = (await lines()).length;
  // It goes on writing while the agent starts.
  agent = await startAgent(join(stage.dir, "node"), { more, within });
  await waitFor("more output", async () => (await lines()).length > before + 10);
  const all = await lines();
  const numbers = new Set(all.map((line) => Number(line.replace("line ", ""))));
  expect(Math.max(...numbers)).toBe(numbers.size);
  // What was told and not noted when the agent died comes again, and no more than that.
  expect(all.length - numbers.size).toBeLessThan(10);
}

/** Expects the secrets of a definition nowhere but in the engine and in answers to requests for them. */
async function secrets(): Promise<void> {
  const { controller, uid } = stage;
  const get = async (path: string): Promise<string> => JSON.stringify((await controller.call("GET", path)).body);
  expect(await get(`/v2/node/${uid}/exec/container/${IDS.web}/variable`)).toContain(CANARY);
  const engine = await docker.call("GET", `/containers/holdfast-${IDS.web}/json`);
  const { Env } = (engine.body as { Config: { Env: string[] } }).Config;
  expect(Env).toContain(`PASSWORD=${CANARY}`);

  await trigger("web", { cmd_action: "restart" });
  const shown = await Promise.all([
    ...[["plan"], ["why"], ["status"], ["health"], ["logs", "-n", "10000"], ["containers"], ["volumes"]].map((args) =>
      cli(...args, "--json").then(({ stdout, stderr }) => [args.join(" "), stdout + stderr] as const),
    ),
    ...[`/v2/event/${uid}`, `/v2/audit/${uid}?limit=1000`, "/node", `/node/${uid}`, `/v2/node/${uid}`].map((path) =>
      get(path).then((text) => [path, text] as const),
    ),
    ...(["plan", "why", "config-show", "container-status"] as const).map((event) =>
      trigger(event, {}).then(({ body }) => [`trigger ${event}`, JSON.stringify(body)] as const),
    ),
  ]);
  const labels = (engine.body as { Config: { Labels: object } }).Config.Labels;
  const texts = new Map<string, string>([
    ...shown,
    ["labels", JSON.stringify(labels)],
    ["log of the agent", agent.log()],
    ["log of the controller", controller.log()],
  ]);
  const journal = readdirSync(agent.stateDir)
    .filter((name) => name.startsWith("state.db"))
    .map((name) => readFileSync(join(agent.stateDir, name), "latin1"))
    .join("");
  texts.set("journal, spool and ledger", journal);
  expect([...texts].filter(([, text]) => text.includes(CANARY)).map(([name]) => name)).toEqual([]);
  expect([...texts].filter(([, text]) => text.length < 3).map(([name]) => name)).toEqual([]);

  // Who did what is told by name.
  const audits = texts.get(`/v2/audit/${uid}?limit=1000`) ?? "";
  for (const printed of [
    "started container web",
    "stopped container web",
    "invoked web",
    `deleted image ${REPOSITORY}:unused`,
  ]) {
    expect(audits.includes(printed) || printed).toBe(true);
  }
  const printed = await waitFor("the shadow", async () => {
    const text = await get(`/node/${uid}`);
    return text.includes(`"container.web.state":"RUNNING"`) && text;
  });
  expect(printed).toContain(`"exec":true`);
}

test("people see and move the containers of a node", async () => {
  await start();
  await standsAndStops();
  await images();
  await onDemand();
  await savedOutput();
  await secrets();
});
