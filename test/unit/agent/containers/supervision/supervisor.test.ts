import { describe, expect, test } from "vitest";
import { containersOf, restartByHand } from "../../../../../src/agent/containers/containers.ts";
import { nameOf } from "../../../../../src/agent/reconcile/section.ts";
import { HostError } from "../../../../../src/errors.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { idOf, itemOf, modelStage } from "../../../../support/reconcile/model-stage.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const other = { variables: [{ name: "A", value: "2" }] };
const third = { variables: [{ name: "A", value: "3" }] };
const count = (calls: readonly string[], name: string): number => calls.filter((call) => call === name).length;

describe("one bad container", () => {
  test("whose limits the engine refuses delays no other", async () => {
    const { model, stage, running } = modelStage();
    await stage.pass({ commands: [itemOf(1), itemOf(2)] });
    const refusal = new HostError("engine-refused", "below what is in use");
    Object.assign(model.engine, { updateContainer: () => Promise.reject(refusal) });
    const limited = itemOf(1, { limits: { memMax: 100 } });
    await stage.pass({ commands: [limited, itemOf(2)] });
    const { took, after } = await stage.pass({ commands: [limited, itemOf(2)] });
    expect([took, after.steps]).toEqual([[`update ${idOf(1)}`], []]);
    expect(after.waits).toMatchObject([
      { code: "limits-refused", message: expect.stringContaining("below what is in use") as unknown },
    ]);
    await stage.pass({ commands: [limited, itemOf(2, { enabled: false })] });
    await waitFor("the second is stopped", () => !running().includes(idOf(2)));
    expect(running()).toEqual([idOf(1)]);
  });

  test("that the ledger cannot record delays none that is to stop", async () => {
    const { stage, running } = modelStage();
    await stage.pass({ commands: [itemOf(2)] });
    const put = stage.ledger.putDefinition.bind(stage.ledger);
    stage.ledger.putDefinition = (row) => {
      if (row.id === idOf(1)) throw new Error("database or disk is full");
      put(row);
    };
    const pass = stage.pass({ commands: [itemOf(1), itemOf(2, { enabled: false })] });
    await expect(pass).rejects.toThrow("disk is full");
    await waitFor("the second is stopped", () => running().length === 0);
  });

  test("that does not exit keeps no other from starting, in any number", async () => {
    const { stage, running, hold } = modelStage();
    const numbers = [1, 2, 3, 4, 5, 6];
    await stage.pass({ commands: numbers.map((n) => itemOf(n)) });
    const free = hold("stop");
    const pass = stage.pass({ commands: [...numbers.map((n) => itemOf(n, other)), itemOf(9)] });
    await waitFor("the new one runs", () => running().includes(idOf(9)));
    free();
    await pass;
    expect(running()).toEqual([...numbers.map(idOf), idOf(9)]);
  });
});

test("messages name a container instead of its place in the section", async () => {
  const { stage } = modelStage();
  const wrong = itemOf(2, { hostname: "-", image: 7 });
  const { rejected } = stage.section.prepare({ commands: [itemOf(1), wrong], volumes: [{ name: "v", location: 7 }] });
  expect(rejected.map(({ path }) => path)).toEqual([
    "exec.commands.c2.image",
    "exec.commands.c2.hostname",
    "exec.volumes.v.location",
  ]);
  for (const { path, message } of rejected) expect(message.startsWith(`${path}: `)).toBe(true);
  const nameless = stage.section.prepare({ commands: [{ ...itemOf(1), name: "a b" }] });
  expect(nameless.rejected).toMatchObject([{ path: "exec.commands.0.name" }]);
  await stage.pass({ commands: [] });
  const { steps } = await stage.look({ commands: [itemOf(1)] });
  expect(steps.map(({ step }) => nameOf(step))).toEqual(["create c1"]);
});

test("a failed comparison of an image with its registry is a notice until it succeeds", async () => {
  const { model, stage, running } = modelStage();
  await stage.pass({ commands: [itemOf(1)] });
  model.registry.delete("team/app:1");
  const notices = async (item: object) => {
    await stage.pass({ commands: [item] });
    await waitFor("it is at rest", () => stage.supervisor.workers.get(idOf(1))?.standing.job === undefined);
    return (await stage.look({ commands: [item] })).notices ?? [];
  };
  const [notice, ...more] = await notices(itemOf(1, other));
  expect(notice).toMatchObject({ path: "exec.commands.c1", code: "image-not-compared" });
  expect(notice?.message).toMatch(/the local image .*team\/app:1 is used: no .*team\/app:1/);
  expect([more, running()]).toEqual([[], [idOf(1)]]);
  model.registry.set("team/app:1", "sha256:1");
  expect(await notices(itemOf(1, third))).toEqual([]);
});

test("does not start an image for other machines, and reports a reason of its own", async () => {
  const { model, stage, running } = modelStage();
  await stage.pass({ commands: [itemOf(1)] });
  model.registry.set("team/app:2", "sha256:2");
  model.platforms.set("sha256:2", "linux/arm64");
  const commands = [itemOf(1, { image: { repository: "team/app", tag: "2" } })];
  await stage.pass({ commands });
  await waitFor("it has been tried", () => stage.supervisor.workers.get(idOf(1))?.standing.retry !== undefined);
  const { waits } = await stage.look({ commands });
  expect(waits).toMatchObject([
    { code: "image-platform", message: expect.stringMatching(/c1: .*team\/app:2 is for linux\/arm64/) as unknown },
  ]);
  // The former keeps running.
  expect([running(), model.calls.filter((call) => call === "create")]).toEqual([[idOf(1)], ["create"]]);
});

test("a restart pulls a tag that has moved, and otherwise uses the present image", async () => {
  const { model, stage, running } = modelStage();
  await stage.pass({ commands: [itemOf(1)] });
  const { signal } = new AbortController();
  const worker = stage.supervisor.workers.get(idOf(1));
  if (worker === undefined) throw new Error("no worker");
  await restartByHand(worker, signal);
  expect([count(model.calls, "create"), count(model.calls, "start"), running()]).toEqual([1, 2, [idOf(1)]]);
  model.registry.set("team/app:1", "sha256:moved");
  await restartByHand(worker, signal);
  expect(running()).toEqual([idOf(1)]);
  expect([...model.containers.values()].map(({ imageId }) => imageId)).toEqual(["sha256:moved"]);
});

test("retries a successor that could not be started on a full disk once there is room", async () => {
  let freeBytes = 0;
  const clock = new FakeClock();
  const { model, stage, running } = modelStage({
    clock,
    supervisor: { space: () => ({ freeBytes, totalBytes: 1e9, usedBytes: 1e9 - freeBytes }) },
  });
  await stage.pass({ commands: [itemOf(1)] });
  const [before] = model.containers.keys();
  let fails = true;
  const start = model.engine.startContainer.bind(model.engine);
  Object.assign(model.engine, {
    startContainer: (id: string, signal: AbortSignal) =>
      fails && id !== before
        ? Promise.reject(new HostError("engine-refused", "mkdir /var/lib/x: no space left on device"))
        : start(id, signal),
  });
  const commands = [itemOf(1, other)];
  await stage.pass({ commands });
  const worker = stage.supervisor.workers.get(idOf(1));
  await waitFor("it has been tried", () => worker?.standing.retry !== undefined);
  const { waits } = await stage.look({ commands });
  expect(waits).toMatchObject([{ code: "disk-full" }]);
  expect(running()).toEqual([idOf(1)]);
  const stops = count(model.calls, "stop");
  // It is stopped once for the same reason.
  await clock.advance(600_000);
  await waitFor("it is at rest", () => worker?.standing.job === undefined);
  expect(count(model.calls, "stop")).toBe(stops);
  [fails, freeBytes] = [false, 1e9];
  await clock.advance(600_000);
  await waitFor("the successor runs", () => ![...model.containers.keys()].includes(before ?? ""));
  expect(running()).toEqual([idOf(1)]);
});

test("remembers a container that returns while it is being removed", async () => {
  const { model, stage, running, hold } = modelStage();
  await stage.pass({ commands: [itemOf(1)] });
  const free = hold("stop");
  const wanted = stage.supervisor.workers.get(idOf(1))?.wanted;
  if (wanted === undefined) throw new Error("not wanted");
  stage.supervisor.drop(idOf(1));
  await waitFor("it is being stopped", () => model.calls.includes("stop"));
  stage.supervisor.want(wanted);
  free();
  const isDone = () => stage.supervisor.workers.get(idOf(1))?.standing.job === undefined && running().includes(idOf(1));
  await waitFor("it runs again", isDone);
  expect(stage.ledger.definitions.get(idOf(1))?.address).toBe(wanted.blueprint?.address);
  expect(stage.ledger.containers.size).toBe(1);
});

test.each([0, -86_400_000])("a clock set by %i ms does not delay a recurring run", async (step) => {
  const clock = new FakeClock();
  const { model, stage } = modelStage({ clock });
  await stage.pass({ commands: [itemOf(1, { execType: "recurring", schedule: "rate(10 minutes)" })] });
  await waitFor("it is planned", () => stage.ledger.definitions.get(idOf(1))?.nextRun !== undefined);
  clock.setWall(clock.now() + step);
  for (let minute = 0; minute < 25; minute += 1) {
    await clock.advance(60_000);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await waitFor("a run", () => model.calls.includes("create"));
  expect(stage.ledger.definitions.get(idOf(1))?.nextRun).toBeLessThanOrEqual(clock.now() + 600_000);
});

test("a container whose requirement is missing waits for it, and starts as soon as a try finds it", async () => {
  const clock = new FakeClock();
  let reason: string | undefined = "volume secret: no key";
  const { stage, running } = modelStage({ clock, check: () => Promise.resolve(reason) });
  await stage.pass({ commands: [itemOf(1)] });
  const { waits } = await stage.look({ commands: [itemOf(1)] });
  expect(waits).toMatchObject([{ code: "waiting", message: expect.stringContaining("no key") as unknown }]);
  reason = undefined;
  await clock.advance(5000);
  await waitFor("it runs", () => running().length === 1);
});

test("stops what local policy now forbids, and starts it again when allowed", async () => {
  const forbidden = new Map<string, string>();
  const { stage, running, model } = modelStage({ forbidden });
  const commands = [itemOf(1), itemOf(2)];
  await stage.pass({ commands });
  forbidden.set(idOf(1), "mounts: bind of /srv is forbidden");
  expect((await stage.pass({ commands })).took).toEqual([`stop ${idOf(1)}`]);
  expect(running()).toEqual([idOf(2)]);
  expect((await stage.pass({ commands })).took).toEqual([]);
  const { waits } = await stage.look({ commands });
  expect(waits.map(({ message }) => message)).toEqual([expect.stringContaining("is forbidden")]);
  forbidden.clear();
  await stage.pass({ commands });
  await waitFor("it runs again", () => running().length === 2);
  expect(count(model.calls, "create")).toBe(2);
});

test("a definition that policy forbids leaves its predecessor running", async () => {
  const forbidden = new Map<string, string>();
  const { stage, running } = modelStage({ forbidden });
  await stage.pass({ commands: [itemOf(1)] });
  forbidden.set(idOf(1), "mounts: bind of /srv is forbidden");
  await stage.pass({ commands: [itemOf(1, other)] });
  expect(running()).toEqual([idOf(1)]);
});

test("a container whose attempt fails is in back-off", async () => {
  const failure = new HostError("volume-locked", "volume secret: no key");
  const { stage } = modelStage({ check: () => Promise.reject(failure) });
  await stage.pass({ commands: [itemOf(1)] });
  const { waits } = await stage.look({ commands: [itemOf(1)] });
  expect(waits).toMatchObject([{ code: "backoff", message: expect.stringContaining("no key") as unknown }]);
});

describe("a successor that cannot be started", () => {
  function refusing() {
    const clock = new FakeClock();
    const opened = modelStage({ clock });
    let isRefusing = false;
    opened.model.before = (call) => {
      // The former may start again: its successor is refused alternately.
      if (call === "stop") isRefusing = true;
      if (call !== "start" || !isRefusing) return Promise.resolve();
      isRefusing = false;
      return Promise.reject(new HostError("engine-refused", "no such program"));
    };
    const retries = async (times: number): Promise<void> => {
      for (let time = 0; time < times; time += 1) {
        const jobs = opened.stage.supervisor.workers.get(idOf(1))?.standing.jobs ?? 0;
        await clock.advance(600_000);
        await waitFor("another try", () => {
          const standing = opened.stage.supervisor.workers.get(idOf(1))?.standing;
          return standing !== undefined && standing.jobs > jobs && standing.job === undefined;
        });
      }
    };
    return { ...opened, retries };
  }

  test("interrupts what runs once", async () => {
    const { model, stage, running, retries } = refusing();
    await stage.pass({ commands: [itemOf(1)] });
    await stage.pass({ commands: [itemOf(1, other)] });
    expect(count(model.calls, "stop")).toBe(1);
    await retries(3);
    expect(count(model.calls, "stop")).toBe(1);
    expect(running()).toEqual([idOf(1)]);
    const { waits } = await stage.look({ commands: [itemOf(1, other)] });
    expect(waits.map(({ message }) => message)).toEqual([expect.stringContaining("no such program")]);
  });

  test("is not retried by the next agent either, which stops nothing for it until the definition changes", async () => {
    const { model, stage, killIn } = refusing();
    await stage.pass({ commands: [itemOf(1)] });
    const commands = [itemOf(1, other)];
    await stage.pass({ commands });
    const before = model.before;
    const left = await killIn("list", () => stage.pass({ commands: [...commands, itemOf(2)] }));
    const next = modelStage({ left });
    model.before = before;
    await next.stage.pass({ commands });
    const worker = next.stage.supervisor.workers.get(idOf(1));
    await waitFor("it reports why", () => worker?.standing.retry?.reason.includes("no such program"));
    expect(count(model.calls, "stop")).toBe(1);
    expect(next.running()).toContain(idOf(1));
    await next.stage.pass({ commands: [itemOf(1, third)] });
    await waitFor("another definition is tried", () => count(model.calls, "stop") === 2);
  });

  test("is retried with another image, another definition and on request", async () => {
    const { model, stage, retries } = refusing();
    await stage.pass({ commands: [itemOf(1)] });
    await stage.pass({ commands: [itemOf(1, other)] });
    model.registry.set("team/app:1", "sha256:2");
    await retries(2);
    expect(count(model.calls, "stop")).toBe(2);
    await stage.pass({ commands: [itemOf(1, third)] });
    expect(count(model.calls, "stop")).toBe(3);
    const worker = stage.supervisor.workers.get(idOf(1));
    worker?.take({ is: "asked", to: "start" });
    await waitFor("a try by hand", () => count(model.calls, "stop") === 4);
    await waitFor("it is over", () => worker?.standing.job === undefined);
  });
});

describe("a replacement that was interrupted between the stop of one and the start of the other", () => {
  async function cutShort() {
    const { model, stage, killIn } = modelStage();
    await stage.pass({ commands: [itemOf(1)] });
    const [former] = model.containers.keys();
    const left = await killIn("start", () => stage.pass({ commands: [itemOf(1, other)] }));
    expect([...model.containers.values()].map(({ state }) => state)).toEqual(["exited", "created"]);
    return { former, ...modelStage({ left }) };
  }

  test("restores the former when the image of a third definition is unavailable", async () => {
    const { model, stage, former, running } = await cutShort();
    await stage.pass({ commands: [itemOf(1, { image: { repository: "team/app", tag: "9" } })] });
    expect(running()).toEqual([idOf(1)]);
    expect(model.containers.get(former ?? "")?.state).toBe("running");
    await stage.pass({ commands: [itemOf(1, third)] });
    await waitFor("the third runs alone", () => model.containers.size === 1);
    expect(model.containers.has(former ?? "")).toBe(false);
    expect(running()).toEqual([idOf(1)]);
    expect(model.mostAtOnce).toBe(1);
  });

  test("is finished when the second is still wanted", async () => {
    const { model, stage, former, running } = await cutShort();
    await stage.pass({ commands: [itemOf(1, other)] });
    await waitFor("the second runs alone", () => model.containers.size === 1);
    expect(model.containers.has(former ?? "")).toBe(false);
    expect(running()).toEqual([idOf(1)]);
    expect(count(model.calls, "create")).toBe(2);
  });

  test("leaves the former stopped when nothing of it is to run", async () => {
    const { stage, running } = await cutShort();
    await stage.pass({ commands: [itemOf(1, { ...third, enabled: false })] });
    expect(running()).toEqual([]);
  });
});

test("retries refused limits after a minute, and clears the report when the engine accepts them", async () => {
  const clock = new FakeClock();
  const { model, stage } = modelStage({ clock });
  await stage.pass({ commands: [itemOf(1)] });
  const take = model.engine.updateContainer.bind(model.engine);
  const refusal = new HostError("engine-refused", "below what is in use");
  Object.assign(model.engine, { updateContainer: () => Promise.reject(refusal) });
  const commands = [itemOf(1, { limits: { memMax: 100 } })];
  await stage.pass({ commands });
  await stage.pass({ commands });
  expect((await stage.pass({ commands })).took).toEqual([]);
  Object.assign(model.engine, { updateContainer: take });
  const before = stage.polls;
  await clock.advance(60_000);
  expect(stage.polls).toBeGreaterThan(before);
  const { took, after } = await stage.pass({ commands });
  expect([took, after.waits]).toEqual([[`update ${idOf(1)}`], []]);
});

test("limits for all containers are checked with the engine without any container", async () => {
  const { model, stage } = modelStage();
  await stage.look({ commands: [] });
  expect(model.calls).toEqual([]);
  await stage.look({ commands: [], limits: { cpuMax: 50 } });
  expect(model.calls).toEqual(["info"]);
});

test("a container waits for an engine that has never answered, and a disabled one does not", async () => {
  const clock = new FakeClock();
  const known = modelStage({ clock });
  await known.stage.pass({ commands: [itemOf(1)] });
  const spec = known.stage.supervisor.workers.get(idOf(1))?.wanted?.spec;
  if (spec === undefined) throw new Error("no definition");
  const { model, stage } = modelStage({ clock });
  model.setStanding({ state: "unwell", since: 7, reason: "it has no socket" });
  await stage.look({ commands: [], limits: { cpuMax: 50 } });
  const compute = containersOf({
    supervisor: stage.supervisor,
    now: () => clock.now(),
    definitions: () => [spec, { ...spec, id: idOf(2), name: "off", enabled: false }],
    volumes: () => [],
    referenceOf: (repository) => repository,
    startedAt: 0,
  });
  expect(compute.containers()).toMatchObject([
    { name: spec.name, state: "waiting", since: 7, reason: "the container engine does not answer: it has no socket" },
    { name: "off", state: "idle" },
  ]);
});

describe("a service that is stopped at the engine", () => {
  async function stopped() {
    const clock = new FakeClock();
    const opened = modelStage({ clock });
    const passing = opened.stage.pass({ commands: [itemOf(1)] });
    await waitFor("it runs", () => opened.running().length === 1);
    await clock.advance(20_000);
    await passing;
    const [container] = opened.model.containers.values();
    if (container === undefined) throw new Error("no container");
    opened.model.stop(container.id);
    const byHand = () => opened.stage.ledger.definitions.get(idOf(1))?.byHand;
    const standing = () => opened.stage.supervisor.workers.get(idOf(1))?.standing;
    return { ...opened, clock, container, byHand, standing };
  }

  test("by an operator stays stopped", async () => {
    const { clock, running, byHand } = await stopped();
    expect(byHand()).toBeUndefined();
    await clock.advance(3000);
    await waitFor("it is noted", () => byHand() !== undefined);
    await clock.advance(60_000);
    expect(running()).toEqual([]);
  });

  test("by an engine that shuts down is restarted by the engine, and nothing is tried until it is back", async () => {
    const { clock, container, byHand, standing, model } = await stopped();
    const jobs = standing()?.jobs;
    const away = new HostError("engine-unwell", "connection refused");
    model.before = () => Promise.reject(away);
    model.setStanding({ state: "unwell", since: clock.now(), reason: away.message });
    await clock.advance(3000);
    await waitFor("it is judged", () => standing()?.retry?.after === "engine");
    container.state = "running";
    model.before = () => Promise.resolve();
    model.connections += 1;
    await model.cache.refresh(new AbortController().signal);
    await clock.advance(60_000);
    expect(standing()).toMatchObject({ found: { is: "running" }, retry: undefined, job: undefined, jobs });
    expect(byHand()).toBeUndefined();
  });

  test("by an engine that returns before this is known is not started if the engine has done so", async () => {
    const { clock, container, model, hold, standing } = await stopped();
    const free = hold("list");
    model.connections += 1;
    model.calls.splice(0);
    await clock.advance(3000);
    await waitFor("it is to be started", () => model.calls.includes("list"));
    container.state = "running";
    free();
    await waitFor("the start is done", () => standing()?.job === undefined);
    expect(standing()).toMatchObject({ found: { is: "running" }, retry: undefined });
    expect(model.calls).not.toContain("start");
  });

  test("by an engine that shuts down is started again, and unknown does not count as running", async () => {
    const { clock, running, byHand, model, stage } = await stopped();
    model.setStanding({ state: "unwell", since: clock.now(), reason: "connection refused" });
    await clock.advance(3000);
    model.connections += 1;
    model.setStanding({ state: "well", since: clock.now() });
    await waitFor("it runs again", () => running().length === 1);
    expect(byHand()).toBeUndefined();
    await waitFor("it is known", () => stage.supervisor.workers.get(idOf(1))?.standing.job === undefined);
    const compute = containersOf({
      supervisor: stage.supervisor,
      now: () => clock.now(),
      definitions: () => [],
      volumes: () => [],
      referenceOf: (repository) => repository,
      startedAt: 0,
    });
    expect(compute.containers()).toMatchObject([{ state: "running" }]);
    model.setStanding({ state: "unwell", since: clock.now(), reason: "connection refused" });
    expect(compute.containers()).toMatchObject([
      { state: "waiting", reason: expect.stringMatching(/unknown.*connection refused/) as unknown },
    ]);
  });
});
