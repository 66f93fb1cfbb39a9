import { expect, test } from "vitest";
import { engineNameOf } from "../../../../../src/agent/containers/model/own-containers.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { idOf, itemOf, modelStage } from "../../../../support/reconcile/model-stage.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const commands = [itemOf(1)];

test("a first container has its proper name from the beginning, without a rename", async () => {
  const { model, stage, running } = modelStage();
  await stage.pass({ commands });
  expect(running()).toEqual([idOf(1)]);
  expect([...model.containers.values()].map(({ name }) => name)).toEqual([engineNameOf(idOf(1))]);
  expect(model.calls).not.toContain("rename");
});

test("a foreign container with its name keeps a container from the name, and not from running", async () => {
  const { model, stage, running } = modelStage();
  const signal = new AbortController().signal;
  await model.engine.createContainer(engineNameOf(idOf(1)), { Image: "team/app:1" }, signal);
  await stage.pass({ commands });
  expect(running()).toEqual([idOf(1)]);
  expect([...model.containers.values()].filter(({ name }) => name === engineNameOf(idOf(1)))).toHaveLength(1);
});

test("requests image, containers and network concurrently, and changes nothing before it has all of them", async () => {
  const { model, stage, running, hold } = modelStage();
  const free = hold("inspect image");
  const pass = stage.pass({ commands });
  await waitFor("all is asked", () =>
    ["inspect image", "list", "list networks"].every((one) => model.calls.includes(one)),
  );
  expect(model.calls.filter((call) => /^(create|start)/.test(call))).toEqual([]);
  free();
  await pass;
  expect(running()).toEqual([idOf(1)]);
});

test("requests again what it knew before an image was fetched", async () => {
  const { model, stage, running } = modelStage();
  model.images.clear();
  await stage.pass({ commands });
  await waitFor("it runs", () => running().length === 1);
  expect(model.calls.slice(model.calls.indexOf("pull"), model.calls.indexOf("create"))).toContain("list");
});

test("a successor forbidden during a replacement does not start, and the former runs again", async () => {
  let refusal: string | undefined;
  const clock = new FakeClock();
  const { model, stage, running } = modelStage({ clock, check: () => Promise.resolve(refusal) });
  await stage.pass({ commands });
  const [former] = model.containers.keys();
  // A container that shares the directory creates a link while the former ends.
  model.before = (call) => {
    if (call === "stop") refusal = "mounts: bind of /srv/a (which is /etc) is forbidden";
    return Promise.resolve();
  };
  const other = [itemOf(1, { variables: [{ name: "A", value: "2" }] })];
  const { after } = await stage.pass({ commands: other });
  await waitFor("the former runs", () => running().length === 1);
  expect([...model.containers.keys()]).toEqual([former]);
  expect(after.waits.map(({ message }) => message)).toEqual([expect.stringContaining("which is /etc") as unknown]);
  // The definition is not at fault: it is retried as soon as the link is removed.
  refusal = undefined;
  model.before = () => Promise.resolve();
  await clock.advance(600_000);
  await waitFor("the successor runs", () => !model.containers.has(former ?? "") && running().length === 1);
});

test("what the engine restarts gets the limits that the engine cannot set", async () => {
  const limited: string[] = [];
  const afterStart = ({ id }: { readonly id: string }) => Promise.resolve(void limited.push(id));
  const { model, stage } = modelStage({ supervisor: { afterStart } });
  await stage.pass({ commands });
  const [id = ""] = model.containers.keys();
  expect(limited).toEqual([id]);
  model.exit(id, 1);
  await model.engine.startContainer(id, new AbortController().signal);
  await waitFor("its limits are set again", () => limited.length === 2);
});
