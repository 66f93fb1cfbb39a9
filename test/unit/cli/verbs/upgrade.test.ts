import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { followUpgrade, upgradeVerb } from "../../../../src/cli/verbs/upgrade.ts";
import { describe as describeVersion, versionVerb } from "../../../../src/cli/verbs/version.ts";
import { SessionError } from "../../../../src/errors.ts";
import type { InstalledVersion } from "../../../../src/host/releases/versions.ts";
import { UPGRADE_ANSWERS, type UpgradeStanding } from "../../../../src/protocol/documents/release.ts";
import { someCall } from "../../../support/fake-call.ts";
import { startLocalAgent } from "../../../support/local-agent.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const OLD = "0.1.20261101-1000";
const NEW = "0.1.20261121-1830";
const step = (name: UpgradeStanding["step"], to?: string): UpgradeStanding => ({
  state: "IN_PROGRESS",
  from: OLD,
  begunAt: 1000,
  ...(name === undefined ? {} : { step: name }),
  ...(to === undefined ? {} : { to }),
});
const completed: UpgradeStanding = { state: "COMPLETED", from: OLD, to: NEW, begunAt: 1000, completedAt: 2000 };
const failed: UpgradeStanding = {
  ...completed,
  state: "FAILED",
  reason: { code: "self-test-failed", message: "it cannot open SQLite" },
};

/** A directory of versions that this process uses as the machine's. */
function versionsHere(): { readonly path: string; readonly stand: (standing: UpgradeStanding) => void } {
  const path = tempDir();
  const given = { HOLDFAST_VERSIONS: path, HOLDFAST_LIB: join(path, "none") };
  Object.assign(process.env, given);
  onTestFinished(() => {
    for (const name of Object.keys(given)) delete process.env[name];
  });
  return { path, stand: (standing) => writeFileSync(join(path, "upgrade.json"), JSON.stringify(standing)) };
}

/** A clock whose sleeps trigger the next event each. */
function happening(call: ReturnType<typeof someCall>["call"], events: (() => void)[]) {
  const sleep = (): Promise<void> => {
    const next = events.shift();
    if (next === undefined) return Promise.reject(new SessionError("nothing-left", "nothing happens any more"));
    next();
    return Promise.resolve();
  };
  return { ...call, clock: { ...call.clock, now: () => 0, elapsed: () => 0, sleep } };
}

const isRoot = process.geteuid?.() === 0;

describe.skipIf(!isRoot)("holdfast upgrade", () => {
  test("requests it from the agent, and prints each step until the end", async () => {
    await using agent = await startLocalAgent();
    const { stand } = versionsHere();
    stand({ ...failed, begunAt: 1, completedAt: 2 });
    const { call, shown } = someCall(agent, { positionals: ["https://a.example/m.jws"], values: { "skip-os": true } });
    const exit = await upgradeVerb.run(
      happening(call, [
        () => undefined,
        () => stand(step("fetching")),
        () => undefined,
        () => stand(step("judging", NEW)),
        () => stand(completed),
      ]),
    );
    expect(exit).toBe("ok");
    expect(agent.provider.requested).toEqual([
      { order: { from: "https://a.example/m.jws", isForced: false, skipUnattended: true } },
    ]);
    expect(shown).toEqual([
      "Upgrade in progress\n",
      `upgrade from ${OLD}: fetching\n`,
      `upgrade from ${OLD} to ${NEW}: judging\n`,
      `upgraded from ${OLD} to ${NEW}\n`,
    ]);
  });

  test("requests staging of the release, and prints the result", async () => {
    await using agent = await startLocalAgent();
    const { stand } = versionsHere();
    const { call, shown } = someCall(agent, { values: { stage: true } });
    const staged = { state: "STAGED", from: OLD, to: NEW, begunAt: 5 } as const;
    expect(await upgradeVerb.run(happening(call, [() => stand(step("fetching")), () => stand(staged)]))).toBe("ok");
    expect(agent.provider.requested).toEqual([{ order: { isForced: false, skipUnattended: false, stageOnly: true } }]);
    expect(shown.at(-1)).toBe(`${NEW} is staged: 'holdfast upgrade' switches to it\n`);
  });

  test("ends with the reason of a failure", async () => {
    const { stand } = versionsHere();
    const { call, shown } = someCall({ stateDir: "/s", runDir: "/r" }, {});
    expect(await followUpgrade(happening(call, [() => stand(failed)]), undefined)).toBe("failed");
    expect(shown).toEqual([`the upgrade from ${OLD} to ${NEW} failed: self-test-failed: it cannot open SQLite\n`]);
  });

  test("updates one line in place on a terminal", async () => {
    const { stand } = versionsHere();
    const { call, shown } = someCall({ stateDir: "/s", runDir: "/r" }, {});
    const seen = { ...call, terminal: { ...call.terminal, isInteractive: true } };
    await followUpgrade(happening(seen, [() => stand(step("fetching")), () => stand(completed)]), undefined);
    expect(shown).toEqual([`upgrade from ${OLD}: fetching`, `\r\u001b[Kupgraded from ${OLD} to ${NEW}\n`]);
  });

  test("follows one that is already in progress", async () => {
    await using agent = await startLocalAgent();
    const { stand } = versionsHere();
    stand(step("fetching"));
    agent.provider.upgradeStatus = UPGRADE_ANSWERS.already;
    const { call, shown } = someCall(agent, {});
    expect(await upgradeVerb.run(happening(call, [() => stand(completed)]))).toBe("ok");
    expect(shown[0]).toBe("Existing upgrade is already in progress\n");
    expect(shown[1]).toBe(`upgrade from ${OLD}: fetching\n`);
  });

  test("stops waiting if nothing is ever reported", async () => {
    versionsHere();
    const { call } = someCall({ stateDir: "/s", runDir: "/r" }, {});
    let elapsed = 0;
    const clock = {
      ...call.clock,
      elapsed: () => elapsed,
      sleep: (ms: number) => {
        elapsed += ms;
        return Promise.resolve();
      },
    };
    await expect(followUpgrade({ ...call, clock }, undefined)).rejects.toMatchObject({ code: "timeout" });
  });

  test("requests it itself when no agent runs", async () => {
    const { stand } = versionsHere();
    const requested: unknown[] = [];
    const dir = tempDir();
    mkdirSync(join(dir, "run"));
    const { call } = someCall({ stateDir: dir, runDir: join(dir, "run") }, { positionals: ["m.jws"] });
    const offline = {
      askUpgrade: () =>
        Promise.resolve((_where: unknown, order: unknown) => {
          requested.push(order);
          return Promise.resolve({ output: { status: UPGRADE_ANSWERS.begun } });
        }),
    };
    expect(await upgradeVerb.run(happening({ ...call, offline }, [() => stand(completed)]))).toBe("ok");
    expect(requested).toEqual([{ from: join(process.cwd(), "m.jws"), isForced: false, skipUnattended: false }]);
  });

  test("only prints the available version with --check", async () => {
    const { call, shown } = someCall({ stateDir: "/s", runDir: "/r" }, { values: { check: true } });
    const reason = { code: "failed-before", message: "it ended three times" };
    const offline = {
      checkRelease: () => Promise.resolve(() => Promise.resolve({ version: NEW, build: "b", isTaken: false, reason })),
    };
    expect(await upgradeVerb.run({ ...call, offline })).toBe("failed");
    expect(shown).toEqual([`version ${NEW} (b): it would not be taken: failed-before: it ended three times\n`]);
  });

  test("refuses an invalid address", async () => {
    const { call } = someCall({ stateDir: "/s", runDir: "/r" }, { positionals: ["ftp://a.example/m.jws"] });
    await expect(upgradeVerb.run(call)).rejects.toMatchObject({ code: "usage" });
  });
});

describe("holdfast version", () => {
  test("prints the installed versions, newest first", async () => {
    const { path } = versionsHere();
    for (const version of [OLD, NEW]) {
      mkdirSync(join(path, version));
      for (const [name, text] of [
        ["node", "x"],
        ["holdfast.mjs", "x"],
        ["version", `${version}\n`],
      ] as const) {
        writeFileSync(join(path, version, name), text);
      }
    }
    writeFileSync(join(path, `${NEW}.failed`), JSON.stringify({ code: "crashed", message: "it ended three times" }));
    const { call, shown } = someCall({ stateDir: "/s", runDir: "/r" }, {});
    expect(await versionVerb.run(call)).toBe("ok");
    expect(shown[1]).toBe(`${NEW}  failed: crashed: it ended three times\n${OLD}  proven\n`);
  });

  const ready: InstalledVersion = {
    version: OLD,
    path: "/",
    isBase: false,
    isWhole: true,
    trial: undefined,
    probationUntil: undefined,
    isAside: false,
    starts: 2,
    failed: undefined,
  };
  const about = { version: OLD, isBase: false, isOwn: true };
  test.each<[Partial<InstalledVersion>, object]>([
    [{}, { state: "ready" }],
    [{ trial: "damaged" }, { state: "trial", starts: 2 }],
    [{ probationUntil: 0 }, { state: "probation", starts: 2 }],
    [{ isWhole: false, trial: "damaged" }, { state: "broken" }],
    [
      { isWhole: false, failed: { code: "a", message: "b" } },
      { state: "failed", reason: { code: "a", message: "b" } },
    ],
  ])("with %j it is %j", (changes, state) => {
    expect(describeVersion({ ...ready, ...changes }, OLD)).toEqual({ ...about, ...state });
  });
});
