import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { resetVerb } from "../../../src/cli/reset.ts";
import { resetFloorVerb } from "../../../src/cli/reset-floor.ts";
import { openDatabase } from "../../../src/host/database.ts";
import type { ReadIdentity } from "../../../src/cli/verb.ts";
import { someCall } from "../../support/fake-call.ts";
import { identity, someStatus } from "../../support/fake-local-provider.ts";
import { someDirectories, startLocalAgent, type Directories } from "../../support/local-agent.ts";
import { holdfast } from "../../support/run-holdfast.ts";

function registered(dirs: Directories): readonly string[] {
  mkdirSync(join(dirs.stateDir, "identity"), { recursive: true });
  mkdirSync(join(dirs.stateDir, "data-store"));
  writeFileSync(join(dirs.stateDir, "identity", "auth.json"), "{}");
  return ["reset", "--state", dirs.stateDir, "--run", dirs.runDir];
}

describe("holdfast reset", () => {
  it("wipes after --yes and prints the documented JSON", async () => {
    await using dirs = await someDirectories();
    const { code, stdout } = await holdfast([...registered(dirs), "--yes", "--json"]);
    expect(code).toBe(0);
    expect(resetVerb.output?.parse(JSON.parse(stdout))).toEqual({
      schema: 1,
      stateDir: dirs.stateDir,
      removed: ["identity"],
    });
    expect(readdirSync(dirs.stateDir)).toEqual(["data-store"]);
  });

  it.each(["reset\n", "  reset  \n", "reset"])("wipes after the word was typed: %j", async (input) => {
    await using dirs = await someDirectories();
    const { code, stderr } = await holdfast(registered(dirs), { input });
    expect(code).toBe(0);
    expect(stderr).toContain("Type reset to go on");
    expect(readdirSync(dirs.stateDir)).toEqual(["data-store"]);
  });

  it.each(["", "\n", "yes\n", "y\nreset\n"])("changes nothing after %j", async (input) => {
    await using dirs = await someDirectories();
    const { code, stderr } = await holdfast(registered(dirs), { input });
    expect(code).toBe(1);
    expect(stderr).toContain("nothing was changed");
    expect(readdirSync(dirs.stateDir).sort()).toEqual(["data-store", "identity"]);
  });

  it.each([
    ["edge-1", "ok"],
    ["reset", "not-confirmed"],
    [undefined, "not-confirmed"],
  ])("wants the node's name typed: %s is %s", async (typed, outcome) => {
    await using dirs = await someDirectories();
    registered(dirs);
    const readIdentity = (): Promise<ReadIdentity> => Promise.resolve(() => Promise.resolve(identity));
    const { call, shown } = someCall(dirs, { offline: { readIdentity } }, typed);
    const result = await resetVerb.run(call).catch((error: unknown) => error);
    if (outcome === "ok") expect(result).toBe("ok");
    else expect(result).toMatchObject({ code: outcome });
    expect(shown[0]).toContain("Type edge-1 to go on");
    expect(readdirSync(dirs.stateDir).includes("identity")).toBe(outcome !== "ok");
  });

  it("exits 4 when there is nothing to reset", async () => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.stateDir);
    const args = ["reset", "--yes", "--state", dirs.stateDir, "--run", dirs.runDir];
    expect(await holdfast(args)).toMatchObject({
      code: 4,
      stderr: `holdfast: there is nothing to reset in ${dirs.stateDir}\n`,
    });
  });

  it("refuses while the agent runs, here or with another run directory", async () => {
    await using agent = await startLocalAgent();
    const args = [...registered(agent), "--yes"];
    const here = await holdfast(args);
    expect(here.code).toBe(1);
    expect(here.stderr).toContain("still runs");
    await agent.close();
    const database = openDatabase(join(agent.stateDir, "state.db"), {
      migrations: ["CREATE TABLE t (x)"],
      exclusive: true,
    });
    const elsewhere = await holdfast(args);
    database.sql.close();
    expect(elsewhere.code).toBe(1);
    expect(elsewhere.stderr).toContain("stop it first");
    expect(readdirSync(agent.stateDir)).toContain("identity");
  });
});

describe("holdfast reset-floor", () => {
  it("lowers the floor of one document", async () => {
    await using agent = await startLocalAgent();
    agent.provider.currentStatus = someStatus({ state: { stateDir: agent.root, runDir: agent.runDir } });
    const { code, stdout } = await holdfast(["reset-floor", "node", "--json", "--run", agent.runDir]);
    expect(code).toBe(0);
    expect(resetFloorVerb.output?.parse(JSON.parse(stdout))).toEqual({ schema: 1, name: "node", from: 7, to: 0 });
    expect(agent.provider.asked).toEqual([{ name: "node" }]);
    const refused = await holdfast(["reset-floor", "cluster", "--run", agent.runDir]);
    expect(refused).toMatchObject({ code: 1, stderr: "holdfast: there is no cluster document\n" });
  });

  it("knows the documents, and exits 3 without an agent", async () => {
    await using dirs = await someDirectories();
    const wrong = await holdfast(["reset-floor", "nod", "--run", dirs.runDir]);
    expect(wrong).toMatchObject({ code: 2, stderr: "holdfast: 'nod' is no document: did you mean node?\n" });
    expect((await holdfast(["reset-floor", "node", "--run", dirs.runDir])).code).toBe(3);
  });
});
