import { expect, test } from "vitest";
import { containerStatus } from "../../../../../src/agent/triggers/containers/container-status.ts";
import { containerState, FakeCompute } from "../../../../support/containers/fake-compute.ts";
import { rig } from "../rig.ts";

function stage() {
  const compute = new FakeCompute();
  const { run } = rig([containerStatus(() => compute)]);
  return { compute, ask: (body: unknown) => run("container-status", { body }) };
}

test.each([
  ["idle", "STOPPED"],
  ["waiting", "STOPPED"],
  ["pulling", "INITIALIZING"],
  ["creating", "INITIALIZING"],
  ["running", "RUNNING"],
  ["stopping", "RUNNING"],
  ["backoff", "STOPPED"],
] as const)("%s is %s on the wire", async (state, status) => {
  const { compute, ask } = stage();
  compute.list = [containerState({ state })];
  expect(await ask({})).toEqual({
    body: { web: { status, imageName: "acme.example/team/web/1.2", imageId: "0123456789ab" } },
  });
});

test("health with a check, no id without a container, and one by its name", async () => {
  const { compute, ask } = stage();
  compute.list = [
    containerState({ health: "unhealthy" }),
    containerState({ name: "db", imageId: undefined, state: "idle" }),
  ];
  expect(await ask({ container: "web", name: "container-status" })).toMatchObject({
    body: { web: { status: "RUNNING", health: "unhealthy" } },
  });
  expect(await ask({ container: "db" })).toEqual({
    body: { db: { status: "STOPPED", imageName: "acme.example/team/web/1.2", imageId: "" } },
  });
  expect(await ask({ container: "nobody" })).toEqual({
    error: { code: "not-found", message: "no container is called nobody", details: { field: "container" } },
  });
});

test.each([{ container: 7 }, { container: "" }, { what: "all" }])("refuses %j", async (body) => {
  expect(await stage().ask(body)).toMatchObject({ error: { code: "invalid-body" } });
});
