import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { ContainersReport } from "../../../src/protocol/local/containers.ts";
import {
  idOf,
  startContainerStage,
  type ContainerStage,
  type Inspected,
} from "../../support/containers/container-stage.ts";
import { readLocal } from "../../support/control-plane/exchange.ts";
import { isDue, sampleOf } from "../../support/sample.ts";
import { waitFor } from "../../support/wait-for.ts";

/** Calls that restart a container. */
const RESTARTING = /^\/containers\/(?:create|[^/]+\/(?:stop|restart|kill))\b/;
const STARTING = /^\/containers\/[^/]+\/start\b/;

let stage: ContainerStage;

beforeAll(async () => {
  stage = await startContainerStage({ hasEngine: false });
});

afterEach(() => stage.proxy.heal());

afterAll(() => stage.close());

/** A container that runs, for the engine and for the node, with the engine's inspection. */
async function running(name: string): Promise<Inspected> {
  await stage.put(name);
  const { Id } = await stage.untilRuns(name);
  // The engine finishes a start a moment before the node; one interrupted in between is repeated.
  await waitFor("the node has it running", async () => (await stateOf(name)) === "running");
  onTestFinished(async () => {
    await stage.remove(name);
    await stage.untilGone(name);
  });
  return stage.inspect(Id);
}

/** Returns the node's state of a container. */
async function stateOf(name: string): Promise<string | undefined> {
  const { containers } = ContainersReport.parse(await readLocal(stage.runDir, "/v1/containers"));
  return containers.find(({ id }) => id === idOf(name))?.state;
}

/** Waits until the node reports no issue. */
const untilWell = (): Promise<unknown> =>
  waitFor("the node is well", async () => (await stage.why()).every(({ notice }) => notice === true));

test("without an engine the node continues and reports it, and starts containers once there is one", async () => {
  expect(await stage.put("early")).toMatchObject({ status: 200 });
  expect(await stage.untilWhy(/^engine-unwell /)).toMatch(/exec: the container engine/);
  const path = `/node/${stage.uid}/trigger/tg-nc?wait=1`;
  const answer = await stage.call("POST", path, { host: "127.0.0.1", port: 1 });
  expect(answer.status).toBe(200);
  await stage.proxy.listen();
  const { Labels } = await stage.untilRuns("early", undefined);
  expect(Labels).toMatchObject({ "io.holdfast.owner": stage.uid, "io.holdfast.type": "service" });
  await untilWell();
  await stage.remove("early");
  await stage.untilGone("early");
});

test("containers that a stopped or killed engine runs again are the node's as before", async () => {
  const before = await running("kept");
  for (const signal of sampleOf(["SIGTERM", "SIGKILL"] as const, 1, "end of the engine")) {
    stage.proxy.forget();
    await stage.engine.end(signal);
    await stage.untilWhy(/^engine-unwell /);
    await stage.engine.start();
    expect(await stage.untilRuns("kept", undefined)).toMatchObject({ Id: before.Id });
    await untilWell();
    expect(stage.proxy.count("POST", RESTARTING)).toBe(0);
    // After a crash it reports briefly that they have exited.
    if (signal === "SIGTERM") expect(stage.proxy.count("POST", STARTING)).toBe(0);
  }
});

test.runIf(isDue("hanging engine"))(
  "a hanging engine is distinguished from an empty one, and later changes are applied afterwards",
  async () => {
    const before = await running("still");
    stage.engine.freeze();
    onTestFinished(() => stage.engine.thaw());
    await stage.put("late");
    await stage.untilWhy(/^engine-unwell .*did not respond|late: .*did not respond/);
    // The rest of the node does not wait for it.
    const path = `/node/${stage.uid}/trigger/tg-nc?wait=1`;
    expect((await stage.call("POST", path, { host: "127.0.0.1", port: 1 })).status).toBe(200);
    stage.engine.thaw();
    await stage.untilRuns("late", undefined);
    expect(await stage.inspect(before.Id)).toMatchObject({ State: { StartedAt: before.State.StartedAt } });
    await untilWell();
    await stage.remove("late");
    await stage.untilGone("late");
  },
);

test.runIf(isDue("engine errors"))(
  "an engine that answers 500 to everything is unhealthy, and its answers are ignored",
  async () => {
    const before = await running("calm");
    stage.proxy.set({ kind: "answer", status: 500, body: '{"message":"disk is on fire"}' });
    stage.proxy.cut();
    await stage.put("asked");
    await stage.untilWhy(/disk is on fire/);
    expect(await stage.containers("asked")).toEqual([]);
    stage.proxy.heal();
    await stage.untilRuns("asked", undefined);
    expect(await stage.inspect(before.Id)).toMatchObject({ State: { StartedAt: before.State.StartedAt } });
    await untilWell();
    await stage.remove("asked");
    await stage.untilGone("asked");
  },
);

test.runIf(isDue("silent events"))(
  "applies definitions while the event stream is silent, and sees missed events once it recovers",
  async () => {
    await running("hushed");
    stage.proxy.set({ kind: "silence" }, ({ path }) => path.startsWith("/events"));
    await stage.put("unheard");
    const { Id } = await stage.untilRuns("unheard");
    await stage.engine.call("DELETE", `/containers/${Id}?force=1`);
    stage.proxy.heal();
    stage.proxy.cut();
    const again = await stage.untilRuns("unheard", undefined);
    expect(again.Id).not.toBe(Id);
    await stage.remove("unheard");
    await stage.untilGone("unheard");
  },
);

test.runIf(isDue("foreign container"))(
  "a container that only claims to be ours is left alone, and reported",
  async () => {
    const own = await running("real");
    const claims: Readonly<Record<string, string>> = { ...own.Config.Labels, "io.holdfast.nonce": "made-up" };
    const made = await stage.engine.call("POST", "/containers/create?name=stranger", {
      Image: "local/app:1",
      Labels: claims,
      HostConfig: { NetworkMode: "none" },
    });
    const { Id } = made.body as { Id: string };
    onTestFinished(() => void stage.engine.call("DELETE", `/containers/${Id}?force=1`));
    await stage.engine.call("POST", `/containers/${Id}/start`);
    const { State } = await stage.inspect(Id);
    await waitFor("it is reported", async () => (await stage.reported())["config.exec.reported.foreign"] === 1);
    expect(claims["io.holdfast.container"]).toBe(idOf("real"));
    await stage.endAgent("SIGKILL");
    await stage.startAgent();
    await untilWell();
    expect(await stage.inspect(Id)).toMatchObject({ State: { Status: "running", StartedAt: State.StartedAt } });
    expect(await stage.inspect(own.Id)).toMatchObject({ State: { StartedAt: own.State.StartedAt } });
  },
);

test("an agent that is killed and restarted, or loses its controller, restarts nothing", async () => {
  const before = await running("adopted");
  stage.proxy.forget();
  for (const signal of sampleOf(["SIGKILL", "SIGTERM"] as const, 1, "end of the agent")) {
    await stage.endAgent(signal);
    expect(await stage.inspect(before.Id)).toMatchObject({ State: { Status: "running" } });
    await stage.startAgent();
    await waitFor("it has looked", () => stage.proxy.count("GET", /^\/info/) > 0);
    await untilWell();
    stage.proxy.requests.forEach(({ method, path }) => expect(`${method} ${path}`).not.toMatch(/^(?:POST|DELETE) /));
    stage.proxy.forget();
  }
  await stage.endController();
  await stage.startController();
  const isOnline = async (): Promise<boolean> => {
    const { body } = await stage.call("GET", "/node");
    return (body as { online: boolean }[])[0]?.online === true;
  };
  await waitFor("the node is online again", isOnline);
  expect(stage.proxy.count("POST", RESTARTING)).toBe(0);
  expect(await stage.inspect(before.Id)).toMatchObject({ State: { StartedAt: before.State.StartedAt } });
});
