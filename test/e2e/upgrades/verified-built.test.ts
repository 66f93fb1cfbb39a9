import { cpSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Status } from "../../../src/protocol/local/answers.ts";
import { aControlPlane } from "../../support/control-plane/answering-control-plane.ts";
import { changeLocal, readLocal } from "../../support/control-plane/exchange.ts";
import { FaultProxy } from "../../support/network/fault-proxy.ts";
import { freePort, holdfast, startController, type ControllerProgram } from "../../support/machine/programs.ts";
import { isDue } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { ends, NEW, OLD, UpgradeStage } from "../../support/upgrades/upgrade-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const LIMIT_MS = 120_000;

/** The built agent, registered and online, as the old version. */
async function registeredAt(controller: Pick<ControllerProgram, "url" | "license">) {
  const stage = new UpgradeStage(controller.url);
  stage.makeReal(join(stage.lib, "base"), OLD);
  stage.boot();
  await waitFor("the old version answers", async () => (await stage.answers()) === OLD);
  const registered = await changeLocal(stage.run, "/v1/register", { license: await controller.license("edge") });
  expect(registered).toMatchObject({ status: 200 });
  const session = async (): Promise<Status["session"]> =>
    Status.parse(await readLocal(stage.run, "/v1/status")).session;
  await waitFor("it is online", async () => (await session()).state === "online");
  return { stage, session };
}

test(
  "the built agent is upgraded once the control plane took a heartbeat of it",
  async () => {
    const { stage, session } = await registeredAt(await startController(tempDir(), await freePort()));
    // Started again, so that the heartbeat that counts is not one of before.
    const begun = Date.now();
    stage.request(NEW, "real");
    const good = stage.begin({ windowMs: 60_000, backMs: 30_000 });
    await waitFor("the new version is online", async () => {
      return (await stage.answers()) === NEW && (await session()).state === "online";
    });
    const { state } = stage.standing() ?? {};
    const { heartbeatAt } = await session();
    expect({ state, heartbeatAt }).not.toEqual({ state: "COMPLETED", heartbeatAt: undefined });
    await waitFor("it has proven itself", () => stage.standing()?.state === "COMPLETED");
    expect((await session()).heartbeatAt).toBeGreaterThan(begun);
    await ends(0, good.ended);
    await stage.halt();
  },
  LIMIT_MS,
);

test(
  "a built agent with an invalid proof is rolled back",
  async () => {
    const controller = await startController(tempDir(), await freePort());
    const from = performance.now();
    const { stage, session } = await registeredAt(controller);
    // An agent that is being started does not answer, for as long as the machine needs: that alone must not be what is held against it.
    const startMs = 2 * (performance.now() - from);
    await waitFor("a heartbeat is taken", async () => (await session()).heartbeatAt !== undefined);
    // The control plane refuses its node with the code that it has for a node that it does not know.
    stage.request(NEW, "proves badly");
    const bad = stage.begin({ windowMs: 8000 + 2 * startMs, againMs: 1500 + startMs });
    await waitFor("it is refused", async () => {
      return (await stage.answers()) === NEW && (await session()).reason?.code === "not-authentic";
    });
    await ends(3, bad.ended);
    expect(stage.standing()).toMatchObject({ state: "FAILED", to: NEW, reason: { code: "no-session" } });
    expect(bad.said()).toContain("the old version had a session in its place");
    await waitFor("the old version is online again", async () => {
      return (await stage.answers()) === OLD && (await session()).state === "online";
    });
    await stage.halt();
  },
  3 * LIMIT_MS,
);

test.runIf(isDue("a restored control plane"))(
  "a control plane restored from before the node was registered refuses old and new alike, and the new one is not blamed",
  async () => {
    const [dir, older, newer] = [tempDir(), tempDir(), tempDir()];
    const port = await freePort();
    const begin = () => startController(dir, port);
    await (await begin()).end();
    const data = join(dir, "controller");
    const restore = (from: string): void => {
      rmSync(data, { recursive: true });
      cpSync(from, data, { recursive: true });
    };
    cpSync(data, older, { recursive: true });
    const first = await begin();
    const { stage, session } = await registeredAt(first);
    stage.request(NEW, "real");
    // What is good has to last, so that there is time to take the control plane away.
    const judging = stage.begin({ windowMs: LIMIT_MS, settleMs: LIMIT_MS });
    await waitFor("the new version works", () => judging.said().endsWith("everything works\n"));
    await first.end();
    cpSync(data, newer, { recursive: true });
    restore(older);
    const second = await begin();
    writeFileSync(join(stage.run, "restart"), "");
    await waitFor("it is refused", async () => (await session()).reason?.code === "not-authentic");
    await waitFor("it is not blamed", () =>
      judging.said().endsWith("waits for the control plane, which refuses the node\n"),
    );
    expect(await stage.answers()).toBe(NEW);
    await second.end();
    restore(newer);
    await begin();
    await judging.stop();
    writeFileSync(join(stage.run, "restart"), "");
    await ends(0, stage.upgrade({ windowMs: LIMIT_MS }));
    expect(stage.standing()).toMatchObject({ state: "COMPLETED", to: NEW });
    await stage.halt();
  },
  3 * LIMIT_MS,
);

test.runIf(isDue("dropped sessions"))(
  "a control plane that takes every hello and drops every session without a word costs the new version nothing but time",
  async () => {
    const [port, behind] = [await freePort(), await freePort()];
    const between = await FaultProxy.start(port, behind);
    const controller = await startController(tempDir(), behind, ["--url", `http://127.0.0.1:${port}`]);
    const from = performance.now();
    const { stage } = await registeredAt({ ...controller, url: `http://127.0.0.1:${port}` });
    const startMs = 2 * (performance.now() - from);
    stage.request(NEW, "real");
    const judging = stage.begin({ windowMs: 5000 + startMs, settleMs: LIMIT_MS, backMs: 5000 + startMs });
    await waitFor("the new version works", () => judging.said().endsWith("everything works\n"));
    // Long enough for a question, and for the beginning of a session.
    const dropping = setInterval(() => between.reset(), 300);
    onTestFinished(() => clearInterval(dropping));
    await waitFor("it lacks its session", () => judging.said().includes("accepts this node, but there is no session"));
    await waitFor("the old version has its turn", async () => (await stage.answers()) === OLD);
    expect(stage.standing()).toMatchObject({ state: "IN_PROGRESS", step: "comparing", to: NEW });
    await waitFor("it did no better", () => judging.said().includes("the old version had no session in its place"));
    await waitFor("the new version is back", async () => (await stage.answers()) === NEW);
    expect(stage.standing()).toMatchObject({ state: "IN_PROGRESS", step: "judging", to: NEW });
    expect(readdirSync(stage.versions).filter((name) => /[.](failed|aside)$/.test(name))).toEqual([]);
    clearInterval(dropping);
    await judging.stop();
    await ends(0, stage.upgrade({ windowMs: LIMIT_MS }));
    expect(stage.standing()).toMatchObject({ state: "COMPLETED", to: NEW });
    await stage.halt();
  },
  3 * LIMIT_MS,
);

test("the built program has nothing to do where nothing was asked for", async () => {
  const stage = new UpgradeStage(`ws://127.0.0.1:${(await aControlPlane("greets")).port}`);
  const where = ["--run", stage.run, "--versions", stage.versions, "--package", stage.lib, "--state", stage.state];
  const args = ["upgrade-run", ...where, "--request", join(stage.run, "upgrade-request.json")];
  expect(await holdfast(args)).toEqual({ code: 0, stdout: "", stderr: "" });
  expect(await holdfast([...args, "--what"])).toMatchObject({ code: 2 });
  // And what it cannot fetch it says, and leaves everything as it was.
  const request = { from: join(stage.root, "no-manifest"), by: "operator", skipUnattended: true };
  writeFileSync(join(stage.run, "upgrade-request.json"), JSON.stringify(request));
  const { code, stdout } = await holdfast(args);
  expect(code).toBe(3);
  expect(stdout).toMatch(/^not upgraded: /);
  expect(stage.standing()).toMatchObject({ state: "FAILED" });
  expect(readdirSync(stage.versions).filter((name) => /\d/.test(name))).toEqual([]);
});
