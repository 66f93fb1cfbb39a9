import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { startContainerStage, type ContainerStage } from "../../support/containers/container-stage.ts";
import type { ProxiedRequest } from "../../support/containers/engine-proxy.ts";
import { sampleOf } from "../../support/sample.ts";
import { waitFor } from "../../support/wait-for.ts";

let stage: ContainerStage;

beforeAll(async () => {
  stage = await startContainerStage();
  for (const tag of ["1", "2"]) await stage.publish("team/app", tag, { env: [`RELEASE=${tag}`] });
});

afterEach(() => stage.proxy.heal());

afterAll(() => stage.close());

/** The calls of a replacement, in order. */
const CALLS = {
  pull: ["POST", /^\/images\/create/],
  create: ["POST", /^\/containers\/create/],
  stop: ["POST", /^\/containers\/[^/]+\/stop/],
  start: ["POST", /^\/containers\/[^/]+\/start/],
  remove: ["DELETE", /^\/containers\//],
  rename: ["POST", /^\/containers\/[^/]+\/rename/],
} as const;

const points = Object.entries(CALLS).flatMap(([call, [method, path]]) =>
  (["hang", "withhold"] as const).map((kind) => ({ call, method, path, kind })),
);

const image = (tag: string) => ({ repository: `${stage.namespace}/team/app`, tag });
const referenceOf = (tag: string): string => `${stage.registryHost}/${stage.namespace}/team/app:${tag}`;

test.each(sampleOf(points, 3, "replacement"))(
  "an agent that is killed during $call ($kind) leaves at most one running, and the next has the new one",
  async ({ call, method, path, kind }) => {
    const name = `${call}-${kind}`;
    await stage.put(name, { image: image("1") });
    await stage.untilRuns(name, referenceOf("1"));
    onTestFinished(async () => {
      await stage.remove(name);
      await stage.untilGone(name);
    });
    const matches = (one: ProxiedRequest): boolean => one.method === method && path.test(one.path);
    const { withheld } = stage.proxy;
    stage.proxy.forget();
    stage.proxy.set({ kind }, matches);
    await stage.put(name, { image: image("2") });
    await waitFor(`it asks to ${call}`, () =>
      kind === "hang" ? stage.proxy.requests.some(matches) : stage.proxy.withheld > withheld,
    );
    await stage.endAgent("SIGKILL");
    stage.proxy.heal();
    const left = await stage.containers(name);
    expect(left.filter(({ State }) => State === "running").length).toBeLessThan(2);
    await stage.startAgent();
    const { Id } = await stage.untilRuns(name, referenceOf("2"));
    expect((await stage.containers(name)).map((one) => one.Id)).toEqual([Id]);
  },
);

test("an agent that is killed repeatedly at one replacement finishes it", async () => {
  const name = "again";
  await stage.put(name, { image: image("1") });
  await stage.untilRuns(name, referenceOf("1"));
  onTestFinished(async () => {
    await stage.remove(name);
    await stage.untilGone(name);
  });
  const matches = ({ method, path }: ProxiedRequest): boolean => method === "POST" && CALLS.create[1].test(path);
  stage.proxy.set({ kind: "withhold" }, matches);
  await stage.put(name, { image: image("2") });
  for (let round = 0; round < 2; round += 1) {
    stage.proxy.forget();
    if (round > 0) {
      stage.proxy.heal();
      stage.proxy.set({ kind: "hang" }, ({ path }) => CALLS.stop[1].test(path));
      await stage.startAgent();
    }
    await waitFor("it is at it", () =>
      stage.proxy.requests.some((one) => (round === 0 ? matches(one) : CALLS.stop[1].test(one.path))),
    );
    await stage.endAgent("SIGKILL");
    // Each attempt finds the remains of the previous one.
    expect((await stage.containers(name)).length).toBeLessThanOrEqual(2);
  }
  stage.proxy.heal();
  await stage.startAgent();
  await stage.untilRuns(name, referenceOf("2"));
});
