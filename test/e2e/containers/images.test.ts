import { randomBytes } from "node:crypto";
import { statfsSync } from "node:fs";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { startContainerStage, type ContainerStage, type Inspected } from "../../support/containers/container-stage.ts";
import type { ProxiedRequest } from "../../support/containers/engine-proxy.ts";
import { isDue, sampleOf } from "../../support/sample.ts";
import { waitFor } from "../../support/wait-for.ts";

const DISK_MB = 192;
const PULL = /^\/images\/create\b/;

let stage: ContainerStage;

beforeAll(async () => {
  stage = await startContainerStage({ diskMb: DISK_MB, haste: 2 });
  for (const tag of ["1", "next"]) await stage.publish("team/app", tag, { env: [`RELEASE=${tag}`] });
});

afterEach(() => stage.proxy.heal());

afterAll(() => stage.close());

const image = (tag: string, path = "team/app") => ({ repository: `${stage.namespace}/${path}`, tag });
const referenceOf = (tag: string, path = "team/app"): string =>
  `${stage.registryHost}/${stage.namespace}/${path}:${tag}`;

/** A running container of the first image. */
async function running(name: string): Promise<Inspected> {
  await stage.put(name, { image: image("1") });
  const { Id } = await stage.untilRuns(name, referenceOf("1"));
  onTestFinished(async () => {
    await stage.remove(name);
    await stage.untilGone(name);
  });
  return stage.inspect(Id);
}

/** Expects that it runs without an interruption, as the only one. */
async function expectUntouched(name: string, before: Inspected): Promise<void> {
  expect(await stage.containers(name)).toHaveLength(1);
  const { State, RestartCount } = await stage.inspect(before.Id);
  expect({ State, RestartCount }).toMatchObject({
    State: { Status: "running", StartedAt: before.State.StartedAt, Pid: before.State.Pid },
    RestartCount: 0,
  });
}

/** One incompressible layer of this size. */
const noise = (bytes: number) => [[{ path: "noise", data: randomBytes(bytes) }]];

test("an unavailable new image leaves the old container running without a pause, until it is available", async () => {
  const before = await running("rolling");
  await stage.put("rolling", { image: image("2") });
  await stage.untilWhy(/rolling: .*(?:manifest unknown|not found)/);
  await expectUntouched("rolling", before);
  await stage.publish("team/app", "2", { env: ["RELEASE=2"] });
  const { Id } = await stage.untilRuns("rolling", referenceOf("2"));
  expect(Id).not.toBe(before.Id);
});

test.runIf(isDue("failing new container"))(
  "a new container that cannot be created or started leaves the old one running",
  async () => {
    const before = await running("created");
    stage.proxy.set({ kind: "answer", status: 500, body: '{"message":"no such device"}' }, ({ method, path }) => {
      return method === "POST" && path.startsWith("/containers/create");
    });
    await stage.put("created", { image: image("1"), variables: [{ name: "A", value: "1" }] });
    await stage.untilWhy(/created: .*no such device/);
    await expectUntouched("created", before);
    stage.proxy.heal();
    // A failed start is known only once the old one has stopped, which then runs again.
    await stage.put("created", { image: image("1"), command: "/no/such/program", variables: [] });
    await stage.untilWhy(/created: .*no such file/);
    const all = await stage.containers("created");
    expect(all.map(({ Id, State }) => ({ Id, State }))).toEqual([{ Id: before.Id, State: "running" }]);
  },
);

test.runIf(isDue("interrupted pull"))(
  "an interrupted pull is retried, and the old container runs meanwhile",
  async () => {
    const before = await running("cut");
    await stage.publish("team/app", "large", { layers: noise(4_000_000) });
    stage.proxy.set({ kind: "cut", afterBytes: 200 }, ({ path }) => PULL.test(path));
    await stage.put("cut", { image: image("large") });
    await stage.untilWhy(/cut: .*cannot pull .* broke the connection/);
    await expectUntouched("cut", before);
    stage.proxy.heal();
    await stage.untilRuns("cut", referenceOf("large"));
  },
);

test("an unreachable registry is distinguished from one that refuses the credential", async () => {
  const before = await running("refused");
  const digest = await stage.publish("team/app", "there", { env: ["RELEASE=there"] });
  await stage.stopRegistry();
  await stage.put("refused", { image: image("away") });
  await stage.untilWhy(/refused: .*(?:EOF|connection re(?:fused|set))/);
  await expectUntouched("refused", before);
  await stage.startRegistry();
  // Under another name it is not the organization's registry, so it gets no credential.
  const elsewhere = stage.registryHost.replace("127.0.0.1", "localhost");
  await stage.put("refused", { image: { repository: `${elsewhere}/other/app`, tag: "1" } });
  await stage.untilWhy(/refused: .*(?:unauthorized|denied|authentication required)/);
  await expectUntouched("refused", before);
  await stage.put("refused", { image: image(digest) });
  await stage.untilRuns("refused", `${stage.registryHost}/${stage.namespace}/team/app@${digest}`);
});

test("an image for other machines is reported as such and not started, and a restart uses what its tag has become", async () => {
  const before = await running("foreign");
  const other = process.arch === "arm64" ? "amd64" : "arm64";
  await stage.publish("team/app", "foreign", { architecture: other });
  await stage.put("foreign", { image: image("foreign") });
  await stage.untilWhy(new RegExp(`^image-platform .*foreign: .*is for linux/${other}`));
  await expectUntouched("foreign", before);
  await stage.publish("team/app", "foreign", { env: ["RELEASE=own"] });
  const { Id } = await stage.untilRuns("foreign", referenceOf("foreign"));
  const digest = (await stage.inspect(Id)).Image;
  await stage.publish("team/app", "foreign", { env: ["RELEASE=moved"] });
  const restarted = await stage.call("POST", `/node/${stage.uid}/trigger/foreign?wait=1`, {
    cmd_action: "restart",
  });
  expect(restarted.status).toBe(200);
  const moved = await stage.untilRuns("foreign", referenceOf("foreign"));
  expect((await stage.inspect(moved.Id)).Image).not.toBe(digest);
});

test("an image present by its digest starts without a request to its registry", async () => {
  const digest = await stage.publish("team/app", "pinned", { env: ["RELEASE=pinned"] });
  await stage.put("first", { image: image(digest) });
  await stage.untilRuns("first");
  await stage.stopRegistry();
  onTestFinished(() => stage.startRegistry());
  stage.proxy.forget();
  await stage.put("second", { image: image(digest) });
  await stage.untilRuns("second");
  expect(stage.proxy.count("POST", PULL)).toBe(0);
  for (const name of ["first", "second"]) {
    await stage.remove(name);
    await stage.untilGone(name);
  }
});

test.runIf(isDue("large images"))(
  "an image too large for the disk is refused with this reason, and the old container keeps running",
  async () => {
    const before = await running("full");
    // During a pull it exists twice: packed and unpacked.
    await stage.publish("team/app", "huge", { layers: noise(50_000_000) });
    const hog = await stage.engine.call("POST", "/containers/create?name=hog", {
      Image: "local/app:1",
      Cmd: ["sh", "-c", "head -c 110000000 /dev/zero > /hog; sleep 100000"],
      HostConfig: { NetworkMode: "none" },
    });
    const { Id } = hog.body as { Id: string };
    await stage.engine.call("POST", `/containers/${Id}/start`);
    const freeBytes = (): number => {
      const { bavail, bsize } = statfsSync(stage.engine.dataRoot);
      return bavail * bsize;
    };
    await waitFor("hardly any room is left", () => freeBytes() < 90_000_000);
    await stage.put("full", { image: image("huge") });
    await stage.untilWhy(/^disk-full .*full: .*(?:no space left on device|no room for an image)/);
    await expectUntouched("full", before);
    // On a full disk the engine may fail to store its state.
    await waitFor("the hog is removed", async () => {
      const { status } = await stage.engine.call("DELETE", `/containers/${Id}?force=1`);
      return status === 404;
    });
    await waitFor("there is room again", () => freeBytes() > 100_000_000);
    await stage.untilRuns("full", referenceOf("huge"));
  },
);

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

test.each(sampleOf(points, 1, "replacement"))(
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
    await stage.put(name, { image: image("next") });
    await waitFor(`it asks to ${call}`, () =>
      kind === "hang" ? stage.proxy.requests.some(matches) : stage.proxy.withheld > withheld,
    );
    await stage.endAgent("SIGKILL");
    stage.proxy.heal();
    const left = await stage.containers(name);
    expect(left.filter(({ State }) => State === "running").length).toBeLessThan(2);
    await stage.startAgent();
    const { Id } = await stage.untilRuns(name, referenceOf("next"));
    expect((await stage.containers(name)).map((one) => one.Id)).toEqual([Id]);
  },
);

test.runIf(isDue("killed repeatedly"))(
  "an agent that is killed repeatedly at one replacement finishes it",
  async () => {
    const name = "again";
    await stage.put(name, { image: image("1") });
    await stage.untilRuns(name, referenceOf("1"));
    onTestFinished(async () => {
      await stage.remove(name);
      await stage.untilGone(name);
    });
    const matches = ({ method, path }: ProxiedRequest): boolean => method === "POST" && CALLS.create[1].test(path);
    stage.proxy.set({ kind: "withhold" }, matches);
    await stage.put(name, { image: image("next") });
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
    await stage.untilRuns(name, referenceOf("next"));
  },
);
