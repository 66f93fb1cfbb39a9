import { expect, test } from "vitest";
import { HostError } from "../../../../../src/errors.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { idOf, itemOf, modelStage } from "../../../../support/reconcile/model-stage.ts";

const NETWORK = "holdfast-7d1c2f0e";
const commands = [itemOf(1), itemOf(2)];

/** Two running containers, the first of which another program changes. */
async function running(more: { readonly ignored?: string } = {}) {
  const clock = new FakeClock();
  const opened = modelStage({ clock });
  if (more.ignored !== undefined) opened.model.ignored.add(more.ignored);
  const { stage, model } = opened;
  await stage.pass({ commands });
  const { after } = await stage.pass({ commands });
  const one = [...model.containers.values()].find(({ labels }) => labels["io.holdfast.container"] === idOf(1));
  if (one === undefined) throw new Error("there is no container");
  const made = structuredClone(one.settings);
  /** Runs a periodic pass one minute later. */
  const later = async () => {
    await clock.advance(60_000);
    return stage.pass({ commands });
  };
  return { ...opened, clock, after, one, made, later };
}

test("reverts a change of `docker update` at once, and the container keeps running", async () => {
  const { model, stage, one, made, after } = await running();
  expect(after.steps).toEqual([]);
  model.calls.length = 0;
  model.update(one.id, { Memory: 6_291_456, MemorySwap: -1, CpuShares: 2, RestartPolicy: { Name: "no" } });
  const looked = await stage.look({ commands });
  expect(looked.steps.map(({ describe }) => describe())).toEqual([
    "c1: restores Memory, MemorySwap, CpuShares, RestartPolicy, changed at the container engine",
  ]);
  const { took, after: end } = await stage.pass({ commands });
  expect([took, end.steps]).toEqual([[`restore settings ${idOf(1)}`], []]);
  expect(one.settings).toEqual({ ...made, resources: { ...made.resources, CpuShares: 1024 } });
  expect(model.calls.filter((call) => ["create", "stop", "start", "remove"].includes(call))).toEqual([]);
  expect((await stage.pass({ commands })).took).toEqual([]);
});

test("reconnects a container that was taken off its network, with its name and address", async () => {
  const { model, one, made, later } = await running();
  model.disconnect(NETWORK, one.id);
  const { took, after } = await later();
  expect([took, after.steps, one.settings]).toEqual([[`restore network ${idOf(1)}`], [], made]);
  model.connect("bridge", one.id, { aliases: [], address: "172.17.0.2" });
  expect((await later()).took).toEqual([`restore network ${idOf(1)}`]);
  expect(one.settings).toEqual(made);
  model.disconnect(NETWORK, one.id);
  model.connect(NETWORK, one.id, { aliases: [], address: "172.31.0.77" });
  expect((await later()).took).toEqual([`restore network ${idOf(1)}`]);
  expect([one.settings, (await later()).took]).toEqual([made, []]);
});

test("creates the network again if it went with the last container on it", async () => {
  const { model, one, later } = await running();
  model.disconnect(NETWORK, one.id);
  model.networks.splice(0);
  expect((await later()).took).toEqual([`restore network ${idOf(1)}`]);
  expect(model.networks.map(({ name }) => name)).toEqual([NETWORK]);
});

test("reports what an engine refuses to revert, and retries after a minute", async () => {
  const { model, clock, stage, one, made } = await running();
  const update = model.engine.updateContainer.bind(model.engine);
  model.update(one.id, { Memory: 6_291_456 });
  const refusal = new HostError("engine-refused", "below what is in use");
  Object.assign(model.engine, { updateContainer: () => Promise.reject(refusal) });
  const { after } = await stage.pass({ commands });
  expect([after.steps, after.waits]).toMatchObject([[], [{ code: "limits-refused" }]]);
  Object.assign(model.engine, { updateContainer: update });
  await clock.advance(60_000);
  await stage.pass({ commands });
  expect(one.settings).toEqual(made);
});

test("reports what an engine never sets as requested, and does not count it as a change", async () => {
  const { model, stage, one, later } = await running({ ignored: "MemorySwap" });
  // It was discarded from the start, which the first start shows.
  expect(model.calls).not.toContain("update");
  expect((await later()).took).toEqual([]);
  model.update(one.id, { CpuRealtimeRuntime: 5 });
  await stage.pass({ commands });
  const { steps, notices } = await stage.look({ commands });
  expect(steps).toEqual([]);
  expect(notices?.map(({ code, message }) => `${code} ${message}`)).toEqual([
    expect.stringMatching(
      /^limits-unsupported .*c1: the container engine does not set MemorySwap, CpuRealtimeRuntime /,
    ),
    expect.stringMatching(/^limits-unsupported .*c2: the container engine does not set MemorySwap /),
  ]);
});

test("compares a container whose successor is unavailable with its own definition", async () => {
  const { model, clock, stage, one, made } = await running();
  const changed = [itemOf(1, { name: "other", image: { repository: "team/app", tag: "absent" } }), itemOf(2)];
  await stage.pass({ commands: changed });
  await clock.advance(1000);
  model.calls.length = 0;
  const { took } = await stage.pass({ commands: changed });
  expect([took, one.settings]).toEqual([[], made]);
  expect(model.calls).not.toContain("disconnect");
});
