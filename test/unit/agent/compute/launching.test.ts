import { expect, test } from "vitest";
import { engineNameOf } from "../../../../src/agent/compute/own-containers.ts";
import { idOf, itemOf, modelStage } from "../../../support/model-stage.ts";
import { waitFor } from "../../../support/wait-for.ts";

const commands = [itemOf(1)];

test("a first container has its proper name from the beginning, and nothing is renamed", async () => {
  const { model, stage, running } = modelStage();
  await stage.pass({ commands });
  expect(running()).toEqual([idOf(1)]);
  expect([...model.containers.values()].map(({ name }) => name)).toEqual([engineNameOf(idOf(1))]);
  expect(model.calls).not.toContain("rename");
});

test("a name that is somebody else's keeps a container from it, and not from running", async () => {
  const { model, stage, running } = modelStage();
  const signal = new AbortController().signal;
  await model.engine.createContainer(engineNameOf(idOf(1)), { Image: "team/app:1" }, signal);
  await stage.pass({ commands });
  expect(running()).toEqual([idOf(1)]);
  expect([...model.containers.values()].filter(({ name }) => name === engineNameOf(idOf(1)))).toHaveLength(1);
});

test("image, containers and network are asked for at once, and nothing is changed before all of them are known", async () => {
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

test("what was known before an image was fetched is asked for again", async () => {
  const { model, stage, running } = modelStage();
  model.images.clear();
  await stage.pass({ commands });
  await waitFor("it runs", () => running().length === 1);
  expect(model.calls.slice(model.calls.indexOf("pull"), model.calls.indexOf("create"))).toContain("list");
});
