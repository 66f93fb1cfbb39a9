import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect, type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { resetOffline } from "../../../src/agent/offline/offline.ts";
import { resetVerb } from "../../../src/cli/verbs/reset.ts";
import { resetFloorVerb } from "../../../src/cli/verbs/reset-floor.ts";
import { openDatabase } from "../../../src/host/files/database.ts";
import { connectControl } from "../../../src/host/overlay/control.ts";
import type { ReadIdentity } from "../../../src/cli/frame/verb.ts";
import { someCall } from "../../support/fake-call.ts";
import { identity, someStatus } from "../../support/fake-local-provider.ts";
import { someDirectories, startLocalAgent, type Directories } from "../../support/local-agent.ts";
import { aListener, aServer, aTable } from "../../support/overlay/overlay-rig.ts";
import {
  freePort,
  registerNode,
  startAgent,
  startController,
  startProgram,
  type Program,
} from "../../support/machine/programs.ts";
import { eventsOf, untilOnline } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";
import { holdfast } from "../../support/run-holdfast.ts";
import { runVerb } from "../../support/run-verb.ts";

function registered(dirs: Directories): readonly string[] {
  mkdirSync(join(dirs.stateDir, "identity"), { recursive: true });
  mkdirSync(join(dirs.stateDir, "data-store"));
  writeFileSync(join(dirs.stateDir, "identity", "auth.json"), "{}");
  return ["reset", "--state", dirs.stateDir, "--run", dirs.runDir];
}

/** An overlay that serves a connector from the state directory, as left by an agent. */
async function startServing(dirs: Directories): Promise<{ program: Program; port: number }> {
  const stateDir = join(dirs.stateDir, "overlay");
  const args = ["overlay", "--state", stateDir, "--run", dirs.runDir];
  const program = startProgram(args, join(dirs.root, "overlay.log"));
  const port = await freePort();
  const target = await aServer((socket) => void socket.pipe(socket));
  await waitFor("the overlay takes its table", async () => {
    const control = await connectControl(join(dirs.runDir, "overlay.sock"), {});
    await control.peer.request("table.set", { table: aTable([aListener(port, target)]) });
    control.close();
    return true;
  });
  return { program, port };
}

async function talkingClient(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1").on("error", () => undefined);
  onTestFinished(() => void socket.destroy());
  socket.write("hello");
  await new Promise((resolve) => socket.once("data", resolve));
  return socket;
}

describe("holdfast reset", () => {
  it("deletes after --yes and prints the documented JSON", async () => {
    await using dirs = await someDirectories();
    const { code, stdout } = await holdfast([...registered(dirs), "--yes", "--json"]);
    expect(code).toBe(0);
    expect(resetVerb.output?.parse(JSON.parse(stdout))).toEqual({
      schema: 1,
      stateDir: dirs.stateDir,
      wasRegistered: false,
      factory: false,
      by: "command",
      isReported: false,
      removed: ["desired", "reported", "state.db", "identity"],
      overlayEnded: false,
      left: [],
    });
    expect(readdirSync(dirs.stateDir)).toEqual(["data-store"]);
  });

  // A last line may be without its end, and only the first one counts.
  it.each([
    ["reset", 0],
    ["y\nreset\n", 1],
  ])("reads one line of its input: %j", async (input, expected) => {
    await using dirs = await someDirectories();
    const { code, stderr } = await holdfast(registered(dirs), { input });
    expect(code).toBe(expected);
    expect(stderr).toContain("Type reset to continue");
    expect(stderr.includes("nothing was changed")).toBe(expected === 1);
    expect(readdirSync(dirs.stateDir).includes("identity")).toBe(expected === 1);
    expect(readdirSync(dirs.stateDir)).toContain("data-store");
  });

  it.each([
    ["reset", true],
    ["  reset  ", true],
    [undefined, false],
    ["", false],
    ["yes", false],
  ])("deletes only after the word was typed: %j", async (typed, isDone) => {
    await using dirs = await someDirectories();
    registered(dirs);
    const { call, shown } = someCall(dirs, { offline: { reset: () => Promise.resolve(resetOffline) } }, typed);
    const result = await resetVerb.run(call).catch((error: unknown) => error);
    if (isDone) expect(result).toBe("ok");
    else expect(result).toMatchObject({ message: expect.stringContaining("nothing was changed") as string });
    expect(shown[0]).toContain("Type reset to continue");
    expect(readdirSync(dirs.stateDir).sort()).toEqual(isDone ? ["data-store"] : ["data-store", "identity"]);
  });

  it.each([
    ["edge-1", "ok"],
    ["reset", "not-confirmed"],
    [undefined, "not-confirmed"],
  ])("asks for the node's name: %s is %s", async (typed, outcome) => {
    await using dirs = await someDirectories();
    registered(dirs);
    const readIdentity = (): Promise<ReadIdentity> => Promise.resolve(() => Promise.resolve(identity));
    const offline = { readIdentity, reset: () => Promise.resolve(resetOffline) };
    const { call, shown } = someCall(dirs, { offline }, typed);
    const result = await resetVerb.run(call).catch((error: unknown) => error);
    if (outcome === "ok") expect(result).toBe("ok");
    else expect(result).toMatchObject({ code: outcome });
    expect(shown[0]).toContain("Type edge-1 to continue");
    expect(readdirSync(dirs.stateDir).includes("identity")).toBe(outcome !== "ok");
  });

  it("reports that a node is not registered, and exits 0, when there is nothing to reset", async () => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.stateDir);
    const args = ["reset", "--yes", "--state", dirs.stateDir, "--run", dirs.runDir];
    expect(await holdfast(args)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(`not registered, and there is nothing to reset in ${dirs.stateDir}`) as unknown,
      stderr: "",
    });
    expect(readdirSync(dirs.stateDir)).toEqual([]);
  });

  it("stops the overlay with its flows, and leaves nothing that another would serve", async () => {
    await using dirs = await someDirectories();
    const args = registered(dirs);
    const overlay = await startServing(dirs);
    const client = await talkingClient(overlay.port);
    const { code, stdout } = await holdfast([...args, "--yes", "--json"]);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ overlayEnded: true });
    await waitFor("the flow is cut", () => client.destroyed);
    await waitFor("the overlay has exited", () => overlay.program.process.exitCode === 0);
    expect(readdirSync(dirs.stateDir)).toEqual(["data-store"]);
    expect((await holdfast([...args, "--yes"])).stdout).toContain("there is nothing to reset");
  });

  it("stops an overlay that survived its state, and reports it", async () => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.stateDir);
    const overlay = startProgram(
      ["overlay", "--state", join(dirs.root, "elsewhere"), "--run", dirs.runDir],
      join(dirs.root, "log"),
    );
    await waitFor("the overlay serves", () => existsSync(join(dirs.runDir, "overlay.pid")));
    const { code, stdout } = await holdfast(["reset", "--yes", "--state", dirs.stateDir, "--run", dirs.runDir]);
    expect(code).toBe(0);
    expect(stdout).toContain("and stopped the overlay");
    await waitFor("the overlay has exited", () => overlay.process.exitCode === 0);
  });

  it("keeps the identity while a hanging overlay could still serve", async () => {
    await using dirs = await someDirectories();
    const overlay = startProgram(
      ["overlay", "--state", join(dirs.stateDir, "overlay"), "--run", dirs.runDir],
      join(dirs.root, "log"),
    );
    await waitFor("the overlay serves", () => existsSync(join(dirs.runDir, "overlay.pid")));
    registered(dirs);
    overlay.process.kill("SIGSTOP");
    const { call } = someCall(dirs, { values: { yes: true }, offline: { reset: () => Promise.resolve(resetOffline) } });
    const failure = await resetVerb.run(call).catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: "overlay-failed" });
    expect(String(failure)).toContain(`process id ${overlay.pid}`);
    expect(readdirSync(dirs.stateDir)).toContain("identity");
    overlay.process.kill("SIGCONT");
  });

  it("refuses while an agent with another run directory uses the state", async () => {
    await using dirs = await someDirectories();
    const args = [...registered(dirs), "--yes"];
    const path = join(dirs.stateDir, "state.db");
    const database = openDatabase(path, { migrations: ["CREATE TABLE t (x)"], exclusive: true });
    const elsewhere = await holdfast(args);
    database.sql.close();
    expect(elsewhere.code).toBe(1);
    expect(elsewhere.stderr).toContain("stop it first");
    expect(readdirSync(dirs.stateDir)).toContain("identity");
  });

  it("has a running agent do it, and prints what that could not remove", async () => {
    await using agent = await startLocalAgent();
    const { provider } = agent;
    provider.onReset = () => {
      const since = Date.now();
      const faults = [{ code: "reset-incomplete", message: "the reset left the containers", since }];
      provider.currentStatus = someStatus({ node: null, startedAt: since, faults });
    };
    const { code, stdout } = await runVerb(["reset", "--factory", "--yes", "--json", "--run", agent.runDir]);
    expect(code).toBe(0);
    expect(provider.requested).toEqual([{ reset: { factory: true } }]);
    expect(resetVerb.output?.parse(JSON.parse(stdout))).toMatchObject({
      by: "agent",
      factory: true,
      isReported: true,
      left: ["the reset left the containers"],
    });
  });

  it("sends nothing to a running agent before the node's name was typed", async () => {
    await using agent = await startLocalAgent();
    const { call, shown } = someCall(agent, {}, "yes");
    expect(await resetVerb.run(call).catch((error: unknown) => error)).toMatchObject({ code: "not-confirmed" });
    expect(shown[0]).toContain("Type edge-1 to continue");
    expect(agent.provider.requested).toEqual([]);
  });

  it("leaves a running node without an identity, notifies the control plane, and leaves the data in place; one that is interrupted is finished by the next start", async () => {
    const dir = tempDir();
    const controller = await startController(dir, await freePort());
    const agent = await startAgent(join(dir, "node"));
    const uid = await registerNode(controller, agent, "edge-1");
    await untilOnline(agent);
    const kept = join(agent.stateDir, "data-store/kept");
    mkdirSync(join(agent.stateDir, "data-store"), { recursive: true });
    writeFileSync(kept, "");
    const { code, stdout } = await runVerb(["reset", "--yes", "--json", "--run", agent.runDir]);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ by: "agent", isReported: true, left: [] });
    const status = await agent.status();
    expect(status).toMatchObject({ pid: agent.pid, documents: {} });
    expect(status.node).toBeNull();
    expect(existsSync(join(agent.stateDir, "identity/keys.json"))).toBe(false);
    expect(existsSync(kept)).toBe(true);
    const events = await eventsOf(controller, uid);
    expect(events).toContainEqual(expect.objectContaining({ eventType: "Deregister", level: "INFO", nodeId: uid }));
    // The record stays, and another node starts on the same machine.
    const again = await registerNode(controller, agent, "edge-2");
    await untilOnline(agent);
    const { body } = await controller.call("GET", "/node");
    expect(body).toMatchObject([
      { uid, online: false },
      { uid: again, online: true },
    ]);

    // The order stays while the agent waits for the answer to its report.
    controller.process.kill("SIGSTOP");
    const ordered = runVerb(["reset", "--factory", "--yes", "--run", agent.runDir, "--timeout", "5"]);
    await waitFor("the order is on disk", () => existsSync(join(agent.stateDir, "reset.json")));
    await agent.end("SIGKILL");
    controller.process.kill("SIGCONT");
    const next = await startAgent(join(dir, "node"));
    await ordered;
    expect((await next.status()).node).toBeNull();
    expect(existsSync(join(agent.stateDir, "reset.json"))).toBe(false);
    expect(existsSync(join(agent.stateDir, "data-store"))).toBe(false);
  });
});

describe("holdfast reset-floor", () => {
  it("lowers the floor of one document", async () => {
    await using agent = await startLocalAgent();
    agent.provider.currentStatus = someStatus({ state: { stateDir: agent.root, runDir: agent.runDir } });
    const { code, stdout } = await runVerb(["reset-floor", "node", "--json", "--run", agent.runDir]);
    expect(code).toBe(0);
    expect(resetFloorVerb.output?.parse(JSON.parse(stdout))).toEqual({ schema: 1, name: "node", from: 7, to: 0 });
    expect(agent.provider.requested).toEqual([{ name: "node" }]);
    const refused = await runVerb(["reset-floor", "cluster", "--run", agent.runDir]);
    expect(refused).toMatchObject({ code: 1, stderr: "holdfast: there is no cluster document\n" });
  });

  it("accepts only documents, and exits 3 without an agent", async () => {
    await using dirs = await someDirectories();
    const wrong = await runVerb(["reset-floor", "nod", "--run", dirs.runDir]);
    expect(wrong).toMatchObject({ code: 2, stderr: "holdfast: 'nod' is no document: did you mean node?\n" });
    expect((await runVerb(["reset-floor", "node", "--run", dirs.runDir])).code).toBe(3);
  });
});
