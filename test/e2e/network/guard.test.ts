import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, expect, test } from "vitest";
import { Checkpoint } from "../../../src/checkpoint/checkpoint.ts";
import { GuardResult } from "../../../src/checkpoint/commit-files.ts";
import type { Window } from "../../../src/checkpoint/window.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { readSealed } from "../../../src/host/files/state-file.ts";
import { bundled } from "../../support/bundled.ts";
import { fileEnd } from "../../support/file-end.ts";
import { fileMachine } from "../../support/reconcile/checkpoint-machine.ts";
import type { ChildTask } from "../../support/reconcile/commit-child.ts";
import { BOOT } from "../../support/reconcile/commit.ts";
import { shifted } from "../../support/fake-time.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const CHILD = bundled(join(import.meta.dirname, "../../support/reconcile/commit-child.ts"));
const OLD = { two: { c: "old", d: "old" } };
const NEW = { one: { a: "new" }, two: { c: "new", f: "new" } };
const files = hostFiles();
const onFinished = fileEnd();

/** A machine with the old state and an agent's state directory, whose control plane is out of reach. */
function machine(): string {
  const dir = tempDir(onFinished);
  for (const name of ["desired", "one", "two"]) mkdirSync(join(dir, name));
  for (const [name, value] of Object.entries(OLD.two)) writeFileSync(join(dir, "two", name), value);
  writeFileSync(join(dir, "reached"), "no");
  return dir;
}

interface Running {
  readonly process: ChildProcess;
  readonly pid: number;
  end(signal: NodeJS.Signals): Promise<void>;
}

function startAgent(dir: string, task: Partial<ChildTask> = {}): Running {
  const whole: ChildTask = { dir, config: NEW, mode: "save", seconds: 4, ...task };
  const child = spawn(process.execPath, [CHILD, "agent", JSON.stringify(whole)], { stdio: "inherit" });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    child.kill(signal);
    await ended;
  };
  onFinished(async () => {
    child.kill("SIGCONT");
    await end("SIGKILL");
  });
  return { process: child, pid: child.pid ?? 0, end };
}

/** Runs the guard to its end. */
async function guard(dir: string, within: readonly string[] = []) {
  const [command, ...rest] = [...within, process.execPath, CHILD, "guard", "restore", "--state", dir];
  const child = spawn(command, rest, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  const [stdout, status] = await Promise.all([text(child.stdout), ended]);
  return { stdout, status };
}

async function stateOf(dir: string): Promise<unknown> {
  const [one, two] = await Promise.all(["one", "two"].map((part) => fileMachine(files, join(dir, part)).read()));
  return { ...(one?.size === 0 ? {} : { one: Object.fromEntries(one ?? []) }), two: Object.fromEntries(two ?? []) };
}

const output = (dir: string): { window?: string; held?: string; last?: string; standings?: string[] } =>
  JSON.parse(existsSync(join(dir, "state")) ? readFileSync(join(dir, "state"), "utf8") : "{}") as object;
const isPending = (dir: string): boolean => existsSync(join(dir, "desired/checkpoint.json"));
const proving = (dir: string) => waitFor("it is being proven", () => output(dir).window === "proving");
const old = (dir: string) =>
  waitFor(
    "the old state is back",
    async () => JSON.stringify(await stateOf(dir)) === JSON.stringify(OLD) && !isPending(dir),
  );
const resultOf = (dir: string) => readSealed(files, join(dir, "desired/checkpoint-result.json"), GuardResult);

/** The processes whose command line names this directory. */
function processesOf(dir: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(dir);
      } catch {
        return false;
      }
    });
}

describe.concurrent("the guard that the agent starts", () => {
  test("waits as a shell, and rolls back at the deadline what a killed agent left", async () => {
    const dir = machine();
    const agent = startAgent(dir);
    await proving(dir);
    expect(await stateOf(dir)).toEqual(NEW);
    const waiting = processesOf(dir).filter((pid) => pid !== agent.pid);
    expect(waiting).toHaveLength(1);
    const status = readFileSync(`/proc/${waiting[0]}/status`, "utf8");
    expect(Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1])).toBeLessThan(4096);
    await agent.end("SIGKILL");
    await old(dir);
    const result = await waitFor("it reports it", () => resultOf(dir));
    expect(result.takenBack).toMatchObject({ by: "guard", code: "interrupted", failed: [], versions: { node: 2 } });
    await waitFor("it has exited", () => processesOf(dir).length === 0);
    // The next agent knows, and does not begin anew until there is a session.
    startAgent(dir);
    await waitFor("it knows", () => output(dir).held === "waiting" && output(dir).standings?.includes("two failed"));
    // What was never proven rests as the restore left it; all else goes on.
    expect(await stateOf(dir)).toEqual({ one: { a: "new" }, ...OLD });
  });

  test("takes over from an agent that hangs, which detects it when it continues", async () => {
    const dir = machine();
    const agent = startAgent(dir, { seconds: 2 });
    await proving(dir);
    agent.process.kill("SIGSTOP");
    await old(dir);
    expect((await waitFor("it reports it", () => resultOf(dir))).takenBack).toMatchObject({
      by: "guard",
      code: "hung",
    });
    agent.process.kill("SIGCONT");
    await waitFor("the agent knows", () => output(dir).last !== undefined && output(dir).window === undefined);
    const [goes, on] = [{ one: { a: "new" }, ...OLD }, "it goes on without the section"];
    await waitFor(on, async () => JSON.stringify(await stateOf(dir)) === JSON.stringify(goes));
    expect(output(dir).standings).toContain("two failed");
    expect(isPending(dir)).toBe(false);
  });

  test("ends when the change is confirmed, and leaves nothing behind", async () => {
    const dir = machine();
    const agent = startAgent(dir, { seconds: 60 });
    await proving(dir);
    writeFileSync(join(dir, "reached"), "yes");
    await waitFor("it is confirmed", () => !isPending(dir));
    await waitFor("only the agent is left", () => processesOf(dir).join() === String(agent.pid));
    expect(await stateOf(dir)).toEqual(NEW);
  });

  test("leaves a trial to the next agent until its deadline", async () => {
    const dir = machine();
    writeFileSync(join(dir, "reached"), "yes");
    const first = startAgent(dir, { mode: "try", seconds: 10 });
    await waitFor("it is on trial", () => output(dir).window === "awaiting-keep");
    await first.end("SIGKILL");
    writeFileSync(join(dir, "state"), "{}");
    const next = startAgent(dir, { mode: "try", seconds: 10 });
    await waitFor("it goes on", () => output(dir).window === "awaiting-keep" || output(dir).last !== undefined);
    expect(await stateOf(dir)).toEqual(NEW);
    await next.end("SIGKILL");
    await old(dir);
  });
});

test.concurrent("an agent that starts within the window rolls back, and the guard has nothing left to do", async () => {
  const dir = machine();
  const first = startAgent(dir, { seconds: 10 });
  await proving(dir);
  await first.end("SIGTERM");
  expect([isPending(dir), await stateOf(dir)]).toEqual([true, NEW]);
  startAgent(dir, { config: OLD });
  await waitFor("it is restored", () => !isPending(dir));
  await waitFor("the old state is applied", async () => JSON.stringify(await stateOf(dir)) === JSON.stringify(OLD));
  expect((await guard(dir)).stdout).toContain("nothing is pending");
  expect(await resultOf(dir)).toBeUndefined();
});

describe.concurrent("holdfast guard restore", () => {
  /** A change half way, of an agent that is gone. */
  async function leftBehind(dir: string, changed: Partial<Window> = {}): Promise<void> {
    const checkpoint = new Checkpoint(files, join(dir, "desired"));
    const undo = (subject: string) => ({ kind: "set", subject, guarded: true, value: "old" });
    const entries = ["c", "d"].map((subject) => ({ section: "two", undo: undo(subject) }));
    await checkpoint.open(entries, Date.now(), {
      mode: "save",
      state: "applying",
      bootId: BOOT,
      openedAt: 0,
      deadlineAt: 1,
      deadline: 1,
      seconds: 120,
      owner: { pid: 1, startTicks: "no such process" },
      before: { session: true, gateways: [] },
      versions: { node: 2 },
      guards: { two: { c: "new" } },
      isLocal: false,
      ...changed,
    });
    await checkpoint.mark(0);
    writeFileSync(join(dir, "two/c"), "half");
  }

  test("at boot rolls back what a power cut left, and does nothing the second time", async () => {
    const dir = machine();
    await leftBehind(dir);
    const first = await guard(dir);
    expect([first.status, first.stdout]).toEqual([0, expect.stringContaining("rolled back: 1 steps")]);
    expect(await stateOf(dir)).toEqual(OLD);
    expect((await resultOf(dir))?.takenBack).toMatchObject({ code: "rebooted", by: "guard" });
    const second = await guard(dir);
    expect([second.status, second.stdout]).toEqual([0, expect.stringContaining("nothing is pending")]);
  });

  test("may run several times at once", async () => {
    const dir = machine();
    await leftBehind(dir);
    const runs = await Promise.all([1, 2, 3].map(() => guard(dir)));
    expect(runs.map(({ status }) => status)).toEqual([0, 0, 0]);
    expect([await stateOf(dir), isPending(dir)]).toEqual([OLD, false]);
  });

  test("sets a damaged checkpoint aside and changes nothing", async () => {
    const dir = machine();
    await leftBehind(dir);
    writeFileSync(join(dir, "desired/checkpoint.json"), "{ half of");
    expect((await guard(dir)).status).toBe(0);
    expect(await stateOf(dir)).toEqual({ two: { c: "half", d: "old" } });
    expect(existsSync(join(dir, "desired/checkpoint.json.damaged"))).toBe(true);
  });

  test("leaves a running agent its time, whatever the wall clock", async () => {
    const dir = machine();
    const agent = startAgent(dir, { seconds: 120 });
    await proving(dir);
    for (const jump of ["+30d", "-30d"]) {
      expect((await guard(dir, shifted(jump))).stdout).toContain("the agent has it");
    }
    expect(await stateOf(dir)).toEqual(NEW);
    await agent.end("SIGKILL");
    expect((await guard(dir, shifted("-30d"))).stdout).toContain("rolled back");
    expect(await stateOf(dir)).toEqual(OLD);
    for (const pid of processesOf(dir)) process.kill(-pid, "SIGTERM");
  });

  test("reports what it could not roll back, and keeps it for the next one", async () => {
    const dir = machine();
    await leftBehind(dir);
    const checkpoint = new Checkpoint(files, join(dir, "desired"));
    await checkpoint.open([{ section: "nobody", undo: {} }], Date.now());
    await checkpoint.mark(0);
    const run = await guard(dir);
    expect(run.status).toBe(1);
    expect(run.stdout).toContain("nobody can take it back");
    expect(isPending(dir)).toBe(true);
  });
});
