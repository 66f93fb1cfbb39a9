import { expect, test } from "vitest";
import { containerRun } from "../../../../../src/agent/triggers/containers/container-run.ts";
import { Dispatcher } from "../../../../../src/agent/triggers/execution/dispatch.ts";
import { HostError, InputError } from "../../../../../src/errors.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { pino } from "pino";
import { containerState, FakeCompute } from "../../../../support/containers/fake-compute.ts";
import { waitFor } from "../../../../support/wait-for.ts";
import { claims, memoryJournal, NOW, oneShot, TestChannel } from "../rig.ts";

function stage(node: { type?: "Node" | "Agent"; state?: "ACTIVE" | "INACTIVE" } = {}) {
  const compute = new FakeCompute();
  compute.list = [containerState(), containerState({ name: "Job_1.x", execType: "onDemand", state: "idle" })];
  const audits: string[] = [];
  const channel = new TestChannel();
  const { sql, journal } = memoryJournal();
  const dispatcher = new Dispatcher({
    node: () => ({ type: node.type ?? "Node", state: node.state ?? "ACTIVE" }),
    journal,
    clock: systemClock(),
    log: pino({ level: "silent" }),
  });
  dispatcher.serve(
    [oneShot("tg-ping", () => Promise.resolve("built in"))],
    containerRun({ compute: () => compute, audit: (what) => audits.push(what) }),
  );
  dispatcher.attach(channel);
  const ask = (event: string, body: unknown, more: object = {}) =>
    dispatcher.run(claims(event, { body, ...more }), channel, NOW);
  const watch = (event: string, body: unknown) => ask(event, body, { wait: false, watched: true });
  return { compute, audits, channel, ask, watch, dispatcher, sql };
}

test.each(["start", "stop", "restart"] as const)("%s of a container by its name", async (action) => {
  const { compute, audits, ask } = stage();
  expect(await ask("web", { cmd_action: action, name: "web" })).toEqual({ body: { message: `Successful ${action}` } });
  expect(compute.requested).toEqual([[action, "web"]]);
  expect(audits).toHaveLength(1);
  expect(audits[0]).toMatch(/^jane@example.net \w+ container web$/);
});

test.each([
  [{}, "cmd_action"],
  [{ cmd_action: "kill" }, "cmd_action"],
  [{ cmd_action: "start", force: true }, "force"],
  [{ cmd_action: "start", name: 7 }, "name"],
])("refuses the body %j for its %s, and does nothing", async (body, field) => {
  const { compute, audits, ask } = stage();
  expect(await ask("web", body)).toMatchObject({ error: { code: "invalid-body", details: { field } } });
  expect([compute.requested, audits]).toEqual([[], []]);
});

test("resolves names at the time of the request, after the events of every node", async () => {
  const { compute, ask } = stage();
  compute.list = [containerState({ name: "tg-ping" })];
  expect(await ask("tg-ping", {})).toEqual({ body: "built in" });
  expect(await ask("web", { cmd_action: "start" })).toMatchObject({ error: { code: "unknown-event" } });
  compute.list = [containerState()];
  expect(await ask("web", { cmd_action: "start" })).toMatchObject({ body: {} });
});

test("reports why a request fails, and audits nothing", async () => {
  const { compute, ask, audits } = stage();
  compute.refusal = new InputError("not-configured", "web is disabled");
  expect(await ask("web", { cmd_action: "start" })).toMatchObject({
    error: { code: "not-configured", message: "web is disabled" },
  });
  compute.refusal = new HostError("not-started", "pull failed: unauthorized");
  expect(await ask("web", { cmd_action: "start" })).toMatchObject({ error: { message: "pull failed: unauthorized" } });
  expect(audits).toEqual([]);
});

test("an agent has no containers, and an INACTIVE node only stops them", async () => {
  expect(await stage({ type: "Agent" }).ask("web", { cmd_action: "start" })).toMatchObject({
    error: { code: "not-supported" },
  });
  const { ask } = stage({ state: "INACTIVE" });
  expect(await ask("web", { cmd_action: "start" })).toMatchObject({ error: { code: "inactive" } });
  expect(await ask("web", { cmd_action: "stop" })).toMatchObject({ body: {} });
});

const text = (data: string) => ({ stream: "stdout" as const, data: Buffer.from(data) });

test("a watched start on demand gives the pull, a separator, the output, and the exit code", async () => {
  const { compute, channel, watch, audits } = stage();
  const pull = { current: undefined, total: undefined };
  compute.run = async ({ onPull, onOutput }) => {
    onPull?.({ ...pull, layer: undefined, status: "Pulling from team/web" });
    onPull?.({ ...pull, layer: "aaa", status: "Pulling fs layer" });
    onPull?.({ layer: "aaa", status: "Downloading", current: 1, total: 2048 });
    onPull?.({ layer: "aaa", status: "Downloading", current: 2000, total: 2048 });
    onPull?.({ ...pull, layer: "bbb", status: "Already exists" });
    onPull?.({ ...pull, layer: "aaa", status: "Pull complete" });
    const whole = Buffer.from("grün\n");
    await onOutput?.({ stream: "stdout", data: whole.subarray(0, 3) });
    await onOutput?.({ stream: "stdout", data: whole.subarray(3) });
    await onOutput?.({ stream: "stderr", data: Buffer.from("oh\n") });
    return 3;
  };
  expect(await watch("Job_1.x", { cmd_action: "start" })).toEqual({ body: true });
  await waitFor("its end", () => channel.results.length === 1);
  expect(channel.results[0]?.reply).toMatchObject({ body: { exitCode: 3 } });
  expect(channel.text).toBe("aaa: pulling 2.0 kB\nbbb: already there\naaa: complete\n----------\ngrün\noh\n");
  expect(channel.parts.at(-1)).toMatchObject({ kind: "stderr", data: "oh\n" });
  expect(audits).toEqual(["jane@example.net started container Job_1.x"]);
});

test("output without a pull has no separator", async () => {
  const { compute, channel, watch } = stage();
  compute.run = async ({ onOutput }) => {
    await onOutput?.(text("hello\n"));
    return 0;
  };
  await watch("Job_1.x", { cmd_action: "start" });
  await waitFor("its end", () => channel.results.length === 1);
  expect(channel.text).toBe("hello\n");
});

test("the run ends with the stream", async () => {
  const { compute, channel, watch } = stage();
  let isEnded = false;
  compute.run = (_, signal) =>
    new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => {
        isEnded = true;
        reject(signal.reason as Error);
      });
    });
  await watch("Job_1.x", { cmd_action: "start" });
  await waitFor("the run", () => compute.requested.length === 1);
  channel.end();
  await waitFor("its end", () => isEnded);
});

test("only starts a service that is watched, and a run on demand that is not", async () => {
  const { compute, channel, watch, ask } = stage();
  let attached = 0;
  compute.run = () => Promise.resolve((attached += 1));
  expect(await watch("web", { cmd_action: "start" })).toEqual({ body: true });
  await waitFor("its end", () => channel.results.length === 1);
  expect(channel.results[0]?.reply).toEqual({ body: { message: "Successful start" } });
  expect(await ask("Job_1.x", { cmd_action: "start" })).toEqual({ body: { message: "Successful start" } });
  expect(await ask("Job_1.x", { cmd_action: "start" }, { wait: false })).toEqual({ body: true });
  await waitFor("all", () => compute.requested.length === 3);
  expect(attached).toBe(0);
});

test("watched runs delay no other trigger", async () => {
  const { compute, watch, ask, dispatcher } = stage();
  compute.list = Array.from({ length: 10 }, (_, at) => containerState({ name: `job${at}`, execType: "onDemand" }));
  compute.run = (_, signal) =>
    new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
  const started = await Promise.all(compute.list.map(({ name }) => watch(name, { cmd_action: "start" })));
  expect(started.filter((reply) => "body" in reply)).toHaveLength(8);
  expect(started.at(-1)).toMatchObject({ error: { code: "busy" } });
  expect(await ask("tg-ping", {})).toEqual({ body: "built in" });
  expect(await ask("job0", { cmd_action: "stop" })).toMatchObject({ body: {} });
  await dispatcher.close();
});
