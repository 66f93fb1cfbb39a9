import { once } from "node:events";
import { existsSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { aControlPlane, type Greeting } from "../../support/control-plane/answering-control-plane.ts";
import { sampleOf } from "../../support/sample.ts";
import { ends, NEW, NEWER, OLD, UpgradeStage, type Behaviour } from "../../support/upgrades/upgrade-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const LIMIT_MS = 120_000;

const urlOf = ({ port }: { readonly port: number }): string => `ws://127.0.0.1:${port}`;

/** A stage whose old version runs, below a control plane that answers. */
async function stageAt(greeting: Greeting = "greets"): Promise<UpgradeStage> {
  const stage = new UpgradeStage(urlOf(await aControlPlane(greeting)));
  stage.boot();
  await waitFor("the old version answers", async () => (await stage.answers()) === OLD);
  return stage;
}

test("a good version is upgraded to, with one start, and what is asked for beside it", async () => {
  const stage = await stageAt();
  stage.request(NEW, "good", { skipUnattended: false });
  const { code, output } = await stage.upgrade();
  expect({ code, output }).toMatchObject({ code: 0 });
  expect(stage.standing()).toMatchObject({ state: "COMPLETED", from: OLD, to: NEW });
  expect(await stage.answers()).toBe(NEW);
  expect(stage.starts(NEW)).toBe(1);
  const left = readdirSync(stage.versions).filter((name) => name.startsWith(NEW));
  expect(left.toSorted()).toEqual([NEW, `${NEW}.probation`, `${NEW}.starts`]);
  for (const name of ["system-updated", "overlay-succeeded", "pokes"]) {
    expect([name, existsSync(join(stage.run, name))]).toEqual([name, true]);
  }
  expect(existsSync(join(stage.run, "upgrade-request.json"))).toBe(false);
});

/** Tests of other files that run on some days only rely on this one. */
const LACKS_SESSION = ["never reaches", "no-session"] as const;
const bad: readonly (readonly [Behaviour, string])[] = [
  ["exits", "given-up"],
  ["exits well", "given-up"],
  ["hangs", "not-answering"],
  ["loses", "function-lost"],
];

test.each([LACKS_SESSION, ...sampleOf(bad, 1, "bad versions")])(
  "one that %s is rolled back: %s",
  async (behaviour, code) => {
    const stage = await stageAt();
    stage.request(NEW, behaviour);
    // The last chance begins with a start, whose silence on a busy machine counts against the version too.
    await ends(3, stage.upgrade(behaviour === "never reaches" ? { windowMs: 20_000, againMs: 15_000 } : {}));
    const standing = stage.standing();
    expect(standing).toMatchObject({ state: "FAILED", from: OLD, to: NEW });
    // Which of the two gives up what hangs depends on whose time is over first.
    expect([code, ...(behaviour === "hangs" ? ["given-up"] : [])]).toContain(standing?.reason?.code);
    await waitFor("the old version answers", async () => (await stage.answers()) === OLD);
    expect(stage.starts(NEW)).toBeGreaterThan(0);
    expect(stage.starts(NEW)).toBeLessThanOrEqual(3);
    const left = (): readonly string[] => readdirSync(stage.versions).filter((name) => name.startsWith(NEW));
    await waitFor("only its mark is left", () => left().join() === `${NEW}.failed`);
    expect(existsSync(join(stage.run, "overlay-succeeded"))).toBe(false);
  },
);

test("one that dies later is rolled back after three starts, without a verifier", async () => {
  const stage = await stageAt();
  stage.request(NEW, "dies later");
  await ends(0, stage.upgrade());
  expect(stage.standing()?.state).toBe("COMPLETED");
  await waitFor("the old version is back", async () => (await stage.answers()) === OLD);
  expect(stage.starts(NEW)).toBe(3);
  expect(existsSync(join(stage.versions, `${NEW}.failed`))).toBe(true);
});

test("any version has three starts if the upgrade's program never runs again", async () => {
  const givesUp = async (behaviour: Behaviour): Promise<void> => {
    const stage = await stageAt();
    stage.request(NEW, behaviour);
    const child = stage.beginApart({ windowMs: LIMIT_MS });
    await waitFor("it was switched", () => stage.starts(NEW) > 0);
    child.kill("SIGKILL");
    await waitFor("the old version is back", async () => (await stage.answers()) === OLD);
    expect([behaviour, stage.starts(NEW)]).toEqual([behaviour, 3]);
    // And when it does run again, it finds out what happened.
    await ends(3, stage.upgrade());
    expect(stage.standing()).toMatchObject({ state: "FAILED", to: NEW, reason: { code: "given-up" }, starts: 3 });
    await stage.halt();
  };
  await Promise.all(sampleOf<Behaviour>(["exits", "exits well", "hangs"], 1, "three starts").map(givesUp));
});

test("after the verification, power cuts do not condemn a version that had run for a while, and later crashes do", async () => {
  const stage = await stageAt();
  stage.request(NEW, "good");
  await ends(0, stage.upgrade({ windowMs: LIMIT_MS }));
  for (let cut = 0; cut < 4; cut += 1) {
    await stage.live();
    await stage.halt();
    stage.boot();
    await waitFor("an agent answers", () => stage.answers());
  }
  expect(await stage.answers()).toBe(NEW);
  for (let crash = 0; crash < 3; crash += 1) {
    await stage.live();
    const before = stage.starts(OLD) + stage.starts(NEW);
    stage.crash();
    await waitFor("it is started again", () => stage.starts(OLD) + stage.starts(NEW) > before);
    await waitFor("an agent answers", () => stage.answers());
  }
  await waitFor("the old version is back", async () => (await stage.answers()) === OLD);
  expect(existsSync(join(stage.versions, `${NEW}.failed`))).toBe(true);
});

test("waits for a control plane that fails during the verification, and does not blame the version", async () => {
  const controlPlane = await aControlPlane("greets");
  const stage = new UpgradeStage(urlOf(controlPlane));
  stage.boot();
  await waitFor("the old version answers", async () => (await stage.answers()) === OLD);
  stage.request(NEW, "good");
  const upgrade = stage.begin({ windowMs: LIMIT_MS });
  await waitFor("the old version's session is seen", () => stage.standing()?.step === "judging");
  writeFileSync(join(stage.run, "offline"), "");
  await waitFor("it lacks its session", () => upgrade.said().includes("there is no session"));
  for (const answer of sampleOf([401, 404, 302, 429, 500, "closes", 503] as const, 2, "failing control planes")) {
    controlPlane.answer(answer);
    const { requested } = controlPlane;
    await waitFor("it is asked again", () => controlPlane.requested > requested + 3);
    const waits = "waits for the control plane, which cannot be reached\n";
    await waitFor("it is waited for", () => upgrade.said().endsWith(waits));
  }
  expect(await stage.answers()).toBe(NEW);
  controlPlane.answer("greets");
  rmSync(join(stage.run, "offline"));
  await ends(0, upgrade.ended);
  expect(stage.standing()?.state).toBe("COMPLETED");
});

test("a node without a session before has none to lose, and is done once there is one", async () => {
  const stage = new UpgradeStage(urlOf(await aControlPlane("greets")));
  writeFileSync(join(stage.run, "offline"), "");
  stage.boot();
  await waitFor("the old version answers", async () => (await stage.answers()) === OLD);
  stage.request(NEW, "good");
  const first = stage.begin();
  await waitFor("it is on trial", async () => (await stage.answers()) === NEW);
  await first.stop();
  const short = stage.begin({ windowMs: 1000, maxElapsedMs: 100 });
  await waitFor("it reports what it waits for", () => short.said().includes("waits for a session"));
  const polls = stage.pollCount();
  await waitFor("it looks for longer than the window", () => stage.pollCount() > polls + 15);
  expect(stage.standing()?.state).toBe("IN_PROGRESS");
  await short.stop();
  const last = stage.begin({ windowMs: 60_000 });
  // More clean restarts than it may have bad ones, and it is on trial still.
  for (let boot = 0; boot < 4; boot += 1) {
    writeFileSync(join(stage.run, "restart"), "");
    const before = stage.starts(NEW);
    await waitFor("it is started again", () => stage.starts(NEW) > before);
    await waitFor("and answers", async () => (await stage.answers()) === NEW);
  }
  rmSync(join(stage.run, "offline"));
  writeFileSync(join(stage.run, "restart"), "");
  await waitFor("it has proven itself", () => stage.standing()?.state === "COMPLETED");
  await ends(0, last.ended);
});

test("switches nothing while a network change is pending, and waits for a limited time", async () => {
  const stage = await stageAt();
  writeFileSync(join(stage.run, "pending"), "");
  stage.request(NEW, "good");
  await ends(3, stage.upgrade());
  expect(stage.standing()).toMatchObject({ state: "FAILED", reason: { code: "busy" } });
  expect([stage.starts(NEW), await stage.answers()]).toEqual([0, OLD]);
  // Once it is confirmed, the same can be asked for again.
  stage.request(NEW, "good");
  const upgrade = stage.begin({ pendingMs: 60_000 });
  await waitFor("it waits", () => stage.standing()?.step === "switching");
  rmSync(join(stage.run, "pending"));
  await ends(0, upgrade.ended);
  expect(await stage.answers()).toBe(NEW);
});

test("two at once: the second leaves everything to the first", async () => {
  const stage = await stageAt();
  writeFileSync(join(stage.run, "pending"), "");
  stage.request(NEW, "good");
  const child = stage.beginApart({ pendingMs: 60_000 });
  const closed = once(child, "close");
  await waitFor("the first waits", () => stage.standing()?.step === "switching");
  const { code, output } = await stage.upgrade();
  expect({ code, output }).toEqual({ code: 75, output: "another upgrade is in progress\n" });
  rmSync(join(stage.run, "pending"));
  expect(await closed).toEqual([0, null]);
});

test("one after the other, and back to one that failed before if an operator forces it", async () => {
  const stage = await stageAt();
  stage.request(NEW, "good");
  await stage.upgrade();
  stage.request(NEWER, "loses");
  await stage.upgrade();
  expect(stage.standing()).toMatchObject({ state: "FAILED", from: NEW, to: NEWER });
  expect(await stage.answers()).toBe(NEW);
  stage.request(NEWER, "good", { isForced: true });
  await ends(0, stage.upgrade());
  expect(await stage.answers()).toBe(NEWER);
  expect(existsSync(join(stage.versions, `${NEWER}.failed`))).toBe(false);
  // And back again to the older one, which its predecessor must not outshine.
  rmSync(join(stage.versions, NEW), { recursive: true });
  stage.request(NEW, "good", { isForced: true });
  await ends(0, stage.upgrade());
  expect(await stage.answers()).toBe(NEW);
  expect(stage.standing()).toMatchObject({ state: "COMPLETED", from: NEWER, to: NEW });
});

test("a judge that is killed while the old version has its turn brings the new one back", async () => {
  const stage = await stageAt();
  stage.request(NEW, "good");
  const child = stage.beginApart({ windowMs: 4000, settleMs: LIMIT_MS, backMs: LIMIT_MS });
  await waitFor("the old version's session is seen", () => stage.standing()?.step === "judging");
  writeFileSync(join(stage.run, "offline"), "");
  await waitFor("the old version has its turn", async () => {
    return stage.standing()?.step === "comparing" && (await stage.answers()) === OLD;
  });
  child.kill("SIGKILL");
  await new Promise((resolve) => child.once("close", resolve));
  expect(existsSync(join(stage.versions, `${NEW}.aside`))).toBe(true);
  rmSync(join(stage.run, "offline"));
  await ends(0, stage.upgrade({ againMs: LIMIT_MS }));
  expect(await stage.answers()).toBe(NEW);
  expect(existsSync(join(stage.versions, `${NEW}.aside`))).toBe(false);
});

test("deletes an unreadable request", async () => {
  const stage = await stageAt();
  writeFileSync(join(stage.run, "upgrade-request.json"), "{nothing");
  const { code, output } = await stage.upgrade();
  expect(code).toBe(0);
  expect(output).toContain("is not a valid request");
  expect(stage.standing()).toBeUndefined();
  expect(existsSync(join(stage.run, "upgrade-request.json"))).toBe(false);
});
