import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../src/host/clock.ts";
import { hostEngine } from "../../src/host/engine/host-engine.ts";
import { startEngine } from "../support/docker-engine.ts";
import { makeImage } from "../support/images.ts";
import { startAgent } from "../support/programs.ts";
import { startStage } from "../support/stage.ts";
import { tempDir } from "../support/temp-dir.ts";
import { waitFor } from "../support/wait-for.ts";

const forever = new AbortController().signal;
const REPOSITORY = "127.0.0.1:1/test/box";
const ID = "3f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c11";

test("an agent carries out what the API is told, is killed, and goes on with what runs", async () => {
  const docker = await startEngine();
  onTestFinished(() => docker.stop());
  const engine = hostEngine({ socketPath: docker.socketPath, clock: systemClock() });
  for (const tag of ["1", "2"]) await makeImage(docker, { tag: `${REPOSITORY}:${tag}`, command: ["sleep", "1000"] });
  const dir = tempDir();
  const settings = join(dir, "agent.json");
  writeFileSync(settings, JSON.stringify({ engineSocket: docker.socketPath }));
  const more = ["--config", settings];
  const stage = await startStage(dir, { agent: { more } });
  const { controller, uid, agent } = stage;
  const record = (tag: string) => ({
    id: ID,
    name: "box",
    execType: "service",
    stopTime: 1,
    image: { repository: REPOSITORY, tag },
  });
  const path = `/v2/node/${uid}/exec/container`;
  expect((await controller.call("POST", path, record("1"))).status).toBeLessThan(300);
  // Bare as it is, it waits for its second half.
  expect(
    (await controller.call("PUT", `${path}/${ID}/config`, { variables: [{ name: "A", value: "1" }] })).status,
  ).toBeLessThan(300);
  const running = (tag: string) =>
    waitFor(
      `tag ${tag} runs`,
      async () => {
        const list = await engine.listContainers([], forever);
        const [one] = list;
        return list.length === 1 && one?.state === "running" && one.image === `${REPOSITORY}:${tag}` && one;
      },
      60_000,
    );
  const first = await running("1");

  await agent.end("SIGKILL");
  const next = await startAgent(join(dir, "node"), { more });
  await waitFor("the next agent has looked", async () => (await next.status()).sections["exec"]?.state === "converged");
  expect((await running("1")).id).toBe(first.id);
  expect((await controller.call("PUT", `${path}/${ID}`, record("2"))).status).toBeLessThan(300);
  expect((await running("2")).id).not.toBe(first.id);
  expect((await controller.call("DELETE", `${path}/${ID}`)).status).toBeLessThan(300);
  await waitFor("nothing is left", async () => (await engine.listContainers([], forever)).length === 0, 60_000);
});
