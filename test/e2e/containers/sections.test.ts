import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { systemClock, type Clock } from "../../../src/host/clock.ts";
import type { ContainerSummary, Engine } from "../../../src/host/engine/engine.ts";
import { hostEngine } from "../../../src/host/engine/host-engine.ts";
import { openEngineCache } from "../../../src/host/engine/open-cache.ts";
import { startEngine, type TestEngine } from "../../support/containers/docker-engine.ts";
import { cuttableEngine } from "../../support/containers/cuttable-engine.ts";
import { execStage, OWNER } from "../../support/containers/exec-stage.ts";
import { makeImage, UNTIL_STOPPED } from "../../support/containers/images.ts";
import { sampleOf } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const clock = systemClock();
const forever = new AbortController().signal;
/** Nobody listens there, so every pull fails at once. */
const REPOSITORY = "127.0.0.1:1/test/box";
const ID = "3f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c11";

let docker: TestEngine;
let plain: Engine;
type Stage = ReturnType<typeof execStage>;
const stages: Stage[] = [];

beforeAll(async () => {
  docker = await startEngine();
  plain = hostEngine({ socketPath: docker.socketPath, clock });
  for (const tag of ["1", "2"])
    await makeImage(docker, { tag: `${REPOSITORY}:${tag}`, command: UNTIL_STOPPED, env: [`V=${tag}`] });
  await makeImage(docker, { tag: `${REPOSITORY}:ends`, command: ["false"] });
  await makeImage(docker, { tag: `${REPOSITORY}:broken`, entrypoint: ["/absent"] });
});

afterEach(async () => {
  for (const stage of stages.splice(0)) await stage.close();
  for (const { id } of await plain.listContainers([], forever))
    await plain.removeContainer(id, { force: true }, forever);
});

afterAll(() => docker.stop());

function stageOn(engine: Engine = plain, dir?: string, time: Clock = clock): Stage {
  const open = () => ({ engine, cache: openEngineCache({ engine, clock, owner: `io.holdfast.owner=${OWNER}` }) });
  const stage = execStage({ open, clock: time, ...(dir === undefined ? {} : { dir }) });
  stages.push(stage);
  return stage;
}

const box = (fields: Record<string, unknown> = {}) => ({
  id: ID,
  name: "box",
  execType: "service",
  stopTime: 1,
  image: { repository: REPOSITORY, tag: "1" },
  variables: [{ name: "A", value: "1" }],
  ...fields,
});
const tagged = (tag: string) => box({ image: { repository: REPOSITORY, tag } });
const commands = (...list: readonly unknown[]) => ({ commands: list });
const all = (): Promise<readonly ContainerSummary[]> => plain.listContainers([], forever);
const workOf = (stage: Stage) => stage.supervisor.workers.get(ID);
const idle = (stage: Stage) => waitFor("nothing is being done", () => workOf(stage)?.standing.job === undefined);
const states = async () => (await all()).map(({ name, state }) => `${name} ${state}`);
const NAME = `holdfast-${ID}`;
const RUNS = [`${NAME} running`];

describe("a service", () => {
  test("is created, left unchanged, changed, and removed", async () => {
    const stage = stageOn();
    expect((await stage.pass(commands(box()))).took).toEqual([`create ${ID}`]);
    await idle(stage);
    const [first] = await all();
    expect(first?.state).toBe("running");
    expect((await stage.pass(commands(box()))).took).toEqual([]);
    expect((await stage.pass(commands(tagged("2")))).took).toEqual([`replace ${ID}`]);
    await idle(stage);
    const [second, ...others] = await all();
    expect(others).toEqual([]);
    expect(second).toMatchObject({ state: "running", name: `holdfast-${ID}`, image: `${REPOSITORY}:2` });
    expect(second?.addresses).toEqual(first?.addresses);
    expect((await stage.pass(commands())).took).toEqual([`remove ${ID}`]);
    expect(await all()).toEqual([]);
    expect(stage.ledger.isEmpty).toBe(true);
  });

  test("is restored after a change at the engine, and keeps running meanwhile", async () => {
    const ticking = { ...clock, elapsed: () => clock.elapsed() + skipped };
    let skipped = 0;
    const stage = stageOn(plain, undefined, ticking);
    await stage.pass(commands(box()));
    await idle(stage);
    expect((await stage.pass(commands(box()))).after.steps).toEqual([]);
    const [one] = await all();
    const id = one?.id ?? "";
    const made = await plain.inspectContainer(id, forever);
    const wanted = { Memory: made?.settings.resources["Memory"], restartPolicy: made?.settings.restartPolicy };
    const [network = ""] = Object.keys(made?.settings.networks ?? {});
    const later = async () => {
      skipped += 60_000;
      return stage.pass(commands(box()));
    };

    const changed = await docker.call("POST", `/containers/${id}/update`, {
      Memory: 16e6,
      MemorySwap: 16e6,
      CpuShares: 2,
      CpusetCpus: "0",
      RestartPolicy: { Name: "no" },
    });
    expect(changed.status).toBe(200);
    expect((await later()).took).toEqual([`restore settings ${ID}`]);
    const back = await plain.inspectContainer(id, forever);
    expect({ Memory: back?.settings.resources["Memory"], restartPolicy: back?.settings.restartPolicy }).toEqual(wanted);
    expect(back?.settings.resources["CpuShares"]).toBe(1024);
    expect((await later()).took).toEqual([]);

    await docker.call("POST", `/networks/${network}/disconnect`, { Container: id });
    expect((await later()).took).toEqual([`restore network ${ID}`]);
    const attached = await plain.inspectContainer(id, forever);
    expect(attached?.settings.networks[network]?.address).toBe(made?.settings.networks[network]?.address);
    expect(attached?.settings.networks[network]?.aliases).toContain("box");
    expect((await later()).took).toEqual([]);
    await docker.call("POST", "/networks/bridge/connect", { Container: id });
    expect((await later()).took).toEqual([`restore network ${ID}`]);
    expect((await later()).took).toEqual([]);
    expect(attached).toMatchObject({ pid: made?.pid, startedAt: made?.startedAt });
  });

  test("is adopted while running by the next agent", async () => {
    const dir = tempDir();
    const first = stageOn(plain, dir);
    await first.pass(commands(box()));
    await idle(first);
    const [before] = await all();
    stages.splice(0);
    await first.close();
    const next = stageOn(plain, dir);
    const { took, after } = await next.pass(commands(box()));
    expect(took).toEqual([`adopt ${ID}`]);
    expect(after.steps).toEqual([]);
    expect((await all()).map(({ id }) => id)).toEqual([before?.id]);
    expect((await plain.inspectContainer(before?.id ?? "", forever))?.restartCount).toBe(0);
  });

  test("keeps the old container when the new image is unavailable", async () => {
    const stage = stageOn();
    await stage.pass(commands(box()));
    await idle(stage);
    const [before] = await all();
    await stage.pass(commands(tagged("absent")));
    await waitFor("the pull has failed", () => workOf(stage)?.standing.lastFailure);
    const { after } = await stage.pass(commands(tagged("absent")));
    expect(after.waits[0]?.message).toContain("pull of");
    expect((await all()).map(({ id, state }) => [id, state])).toEqual([[before?.id, "running"]]);
    // And the moment something is wanted that can be had, it is had.
    await stage.pass(commands(tagged("2")));
    await idle(stage);
    expect((await all()).map(({ image }) => image)).toEqual([`${REPOSITORY}:2`]);
  });

  test("runs the old one again when the new one cannot be started", async () => {
    const stage = stageOn();
    await stage.pass(commands(box()));
    await idle(stage);
    const [before] = await all();
    await stage.pass(commands(tagged("broken")));
    await waitFor("the start has failed", () => workOf(stage)?.standing.lastFailure);
    await idle(stage);
    expect((await all()).map(({ id, state }) => [id, state])).toEqual([[before?.id, "running"]]);
    expect(stage.ledger.containers.size).toBe(1);
  });

  test("that keeps exiting is left to the engine, counted, and stopped at once when disabled", async () => {
    const stage = stageOn();
    await stage.pass(commands(tagged("ends")));
    await waitFor("it has ended some times", () => (workOf(stage)?.standing.exits ?? 0) >= 3);
    const { took } = await stage.pass(commands({ ...tagged("ends"), enabled: false }));
    expect(took).toEqual([`stop ${ID}`]);
    await idle(stage);
    const [one] = await all();
    expect(one?.state).toBe("exited");
    const { restartCount } = (await plain.inspectContainer(one?.id ?? "", forever)) ?? {};
    await new Promise((resolve) => setTimeout(resolve, 1500));
    expect((await plain.inspectContainer(one?.id ?? "", forever))?.restartCount).toBe(restartCount);
  });

  test("that cannot be started is given up at once when disabled", async () => {
    const stage = stageOn();
    await stage.pass(commands(tagged("broken")));
    await waitFor("it waits for the next attempt", () => workOf(stage)?.standing.retry?.at);
    await stage.pass(commands({ ...tagged("broken"), enabled: false }));
    expect(workOf(stage)?.standing.retry).toBe(undefined);
    expect((await states()).filter((state) => state.endsWith("running"))).toEqual([]);
  });

  test("that somebody removes is created again by the next pass, as drift", async () => {
    const stage = stageOn();
    await stage.pass(commands(box()));
    await idle(stage);
    const [before] = await all();
    await plain.removeContainer(before?.id ?? "", { force: true }, forever);
    await waitFor("the supervisor has heard", () => workOf(stage)?.standing.isLost);
    expect((await stage.pass(commands(box()))).took).toEqual([`create ${ID}`]);
    await idle(stage);
    expect(await states()).toEqual(RUNS);
  });

  test("that is new and incomplete waits for the rest of its definition", async () => {
    const stage = stageOn();
    const { variables: _variables, ...bare } = box();
    const { after } = await stage.pass(commands(bare));
    expect(after.waits[0]?.message).toContain("half written");
    expect(await all()).toEqual([]);
    stage.nextVersion();
    expect((await stage.pass(commands(bare))).took).toEqual([`create ${ID}`]);
    await idle(stage);
    expect(await states()).toEqual(RUNS);
  });

  test("stays stopped by hand over a restart of the agent, until its definition changes", async () => {
    const dir = tempDir();
    const first = stageOn(plain, dir);
    await first.pass(commands(box()));
    await idle(first);
    workOf(first)?.take({ is: "asked", to: "stop" });
    await idle(first);
    stages.splice(0);
    await first.close();
    const next = stageOn(plain, dir);
    await next.pass(commands(box()));
    expect((await all())[0]?.state).toBe("exited");
    await next.pass(commands(box({ variables: [{ name: "A", value: "2" }] })));
    await idle(next);
    expect(await states()).toEqual(RUNS);
  });
});

test("a container that only claims to be ours is left alone, and counted", async () => {
  const stage = stageOn();
  const labels = { "io.holdfast.owner": OWNER, "io.holdfast.container": ID, "io.holdfast.nonce": "made-up" };
  const { id } = await plain.createContainer("stranger", { Image: `${REPOSITORY}:1`, Labels: labels }, forever);
  await plain.startContainer(id, forever);
  const { after } = await stage.pass(commands(box()));
  await idle(stage);
  expect(after.reported()).toMatchObject({ foreign: 1 });
  expect((await states()).toSorted()).toEqual([...RUNS, "stranger running"]);
  await stage.pass(commands());
  expect(await states()).toEqual(["stranger running"]);
});

describe("an agent that is killed while it replaces a container", () => {
  const CHANGES = 7;
  const moments = Array.from(
    { length: CHANGES * 2 },
    (_, at) => [Math.floor(at / 2), at % 2 === 0 ? "before" : "after"] as const,
  );
  test.each(sampleOf(moments, 3, "container replacement"))(
    "at change %i, %s it takes effect, leaves one, and the next finishes",
    async (at, when) => {
      const dir = tempDir();
      const setup = stageOn(plain, dir);
      await setup.pass(commands(box()));
      await idle(setup);
      stages.splice(0);
      await setup.close();
      const { engine, cut, isCut } = cuttableEngine(plain, at, when);
      const dying = stageOn(engine, dir);
      const pass = dying.pass(commands(tagged("2"))).catch(() => undefined);
      await waitFor(
        "it is killed, or through",
        () =>
          isCut() ||
          (workOf(dying)?.standing.found?.hash !== undefined &&
            workOf(dying)?.standing.job === undefined &&
            dying.ledger.containers.size === 1 &&
            (workOf(dying)?.standing.jobs ?? 0) > 0),
      );
      cut();
      stages.splice(0);
      await dying.crash();
      await pass;
      expect((await states()).filter((state) => state.endsWith("running")).length).toBeLessThan(2);
      const next = stageOn(plain, dir);
      await next.pass(commands(tagged("2")));
      await waitFor("the next agent has finished", async () => {
        const list = await all();
        return list.length === 1 && list[0]?.name === NAME && list[0].image === `${REPOSITORY}:2`;
      });
      await idle(next);
      expect(await states()).toEqual(RUNS);
      // One that was noted and never came is waited for a while.
      const known = [...next.ledger.containers.values()].filter(({ engineId }) => engineId !== undefined);
      expect(known.length).toBe(1);
    },
  );
});
