import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { getPriority, tmpdir } from "node:os";
import { join } from "node:path";
import { getEventListeners } from "node:events";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostExec, SEARCH_PATH } from "../../../../src/host/process/exec.ts";
import { untilHolds } from "../../../support/until-holds.ts";

const exec = hostExec(systemClock());
const bounds = { deadlineMs: 15_000, maxOutputBytes: 1024 * 1024 };
const never = (): AbortSignal => new AbortController().signal;

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "exec-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function script(text: string): string {
  const path = join(folder, "script.sh");
  writeFileSync(path, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return path;
}

/** Command lines of living processes that mention `mark`; zombies have none. */
function living(mark: string): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
      } catch {
        return "";
      }
    })
    .filter((line) => line.includes(mark));
}

const EXEC = new URL("../../../../src/host/process/exec.ts", import.meta.url).href;
const CLOCK = new URL("../../../../src/host/clock.ts", import.meta.url).href;

/** A program that runs `sleep` for a time until it is killed. */
function sleeping(duration: string): ChildProcess {
  const text = `
    const { hostExec } = await import(${JSON.stringify(EXEC)});
    const { systemClock } = await import(${JSON.stringify(CLOCK)});
    const signal = new AbortController().signal;
    hostExec(systemClock()).spawn("sleep", [${JSON.stringify(duration)}], { signal });`;
  return spawn(process.execPath, ["--input-type=module", "-e", text], { stdio: "ignore" });
}

function zombies(): number {
  return readdirSync("/proc").filter((name) => {
    try {
      return /^\d+$/.test(name) && readFileSync(`/proc/${name}/stat`, "utf8").includes(`) Z ${process.pid} `);
    } catch {
      return false;
    }
  }).length;
}

function pidOf(commandLine: readonly string[]): number {
  const wanted = commandLine.map((word) => `${word}\0`).join("");
  const pid = readdirSync("/proc").find((name) => {
    try {
      return readFileSync(`/proc/${name}/cmdline`, "utf8") === wanted;
    } catch {
      return false;
    }
  });
  if (pid === undefined) throw new Error(`nothing runs ${commandLine.join(" ")}`);
  return Number(pid);
}

describe("run", () => {
  test("gives exit status and both outputs; a non-zero exit is a result", async () => {
    const result = await exec.run("sh", ["-c", "echo out; echo err >&2; exit 3"], { ...bounds, signal: never() });
    expect(result).toEqual({ exitCode: 3, signal: undefined, stdout: "out\n", stderr: "err\n", truncated: false });
  });

  test("gives the tool exactly three variables, its own group and niceness 10", async () => {
    const { stdout } = await exec.run("env", [], { ...bounds, signal: never() });
    expect(stdout.trim().split("\n").sort()).toEqual(["LC_ALL=C", `PATH=${SEARCH_PATH}`, "TZ=UTC"]);
    // A duration that nothing else on this machine uses.
    const duration = `60.${process.pid}`;
    const running = exec.spawn("sleep", [duration], { signal: never() });
    // A new process has its parent's command line until its own program is loaded.
    const pid = await untilHolds(() => pidOf(["sleep", duration]));
    expect(getPriority(pid)).toBe(10);
    running.kill();
    expect(await running.exitCode).toBe(130);
  });

  test("passes arguments unchanged, without a shell", async () => {
    const hostile = ["$(id)", "a b", "`id`", "; rm -rf /", "*", "'\"", "ünïcödé", "\n", "x".repeat(4096), "--", "-e"];
    const { stdout } = await exec.run("printf", ["%s\\0", ...hostile], { ...bounds, signal: never() });
    expect(stdout.split("\0").slice(0, -1)).toEqual(hostile);
  });

  test("writes the input and closes it", async () => {
    const { stdout } = await exec.run("cat", [], { ...bounds, input: "given", signal: never() });
    expect(stdout).toBe("given");
    const unread = await exec.run("true", [], { ...bounds, input: "x".repeat(1_000_000), signal: never() });
    expect(unread.exitCode).toBe(0);
  });

  test("leaves no descriptor of an input open", async () => {
    const descriptors = (): number => readdirSync("/proc/self/fd").length;
    const before = descriptors();
    const input = "x".repeat(1_000_000);
    await exec.run("head", ["-c", "1"], { ...bounds, signal: never(), input });
    const missing = join(folder, "missing");
    await expect(exec.run(missing, [], { ...bounds, signal: never(), input })).rejects.toThrow("not installed");
    await untilHolds(() => expect(descriptors()).toBe(before));
  });

  test("cuts a flood, reports it, and ends the tool", async () => {
    const result = await exec.run("yes", ["€"], { ...bounds, maxOutputBytes: 10_001, signal: never() });
    expect(result.truncated).toBe(true);
    expect(Buffer.byteLength(result.stdout)).toBeLessThanOrEqual(10_001);
    expect(result.stdout.replaceAll("€\n", "").length).toBeLessThan(2);
  });

  test("does not truncate output of exactly the limit", async () => {
    const result = await exec.run("printf", ["12345"], { ...bounds, maxOutputBytes: 5, signal: never() });
    expect(result).toMatchObject({ stdout: "12345", truncated: false });
  });

  test("names a missing tool, and one that cannot be started", async () => {
    const run = (file: string, args: string[] = []) => exec.run(file, args, { ...bounds, signal: never() });
    await expect(run("no-such-tool")).rejects.toMatchObject({
      code: "tool-missing",
      details: { tool: "no-such-tool" },
    });
    await expect(run("/etc/passwd")).rejects.toMatchObject({ code: "exec-failed" });
    await expect(run("echo", ["a\0b"])).rejects.toMatchObject({ code: "exec-failed" });
    await expect(run("echo", ["x".repeat(4_000_000)])).rejects.toMatchObject({ code: "exec-failed" });
  });

  test("an expired deadline is a timeout; an abort gives its reason, before the start too", async () => {
    const late = exec.run("sleep", ["60"], { ...bounds, deadlineMs: 50, signal: never() });
    await expect(late).rejects.toMatchObject({ code: "timeout" });
    const reason = new Error("taken back");
    const aborted = AbortSignal.abort(reason);
    await expect(exec.run("touch", [join(folder, "f")], { ...bounds, signal: aborted })).rejects.toBe(reason);
    expect(readdirSync(folder)).toEqual([]);
    const control = new AbortController();
    const running = exec.run("sleep", ["60"], { ...bounds, signal: control.signal });
    control.abort(reason);
    await expect(running).rejects.toBe(reason);
    expect(getEventListeners(control.signal, "abort")).toHaveLength(0);
  });
});

describe("spawn", () => {
  test("passes output on as it arrives, in order, with its kind", async () => {
    const path = script("echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three");
    const chunks: string[] = [];
    const { output, exitCode } = exec.spawn(path, [], { signal: never() });
    for await (const { kind, data } of output) chunks.push(`${kind}:${data}`);
    expect(chunks).toEqual(["stdout:one\n", "stderr:two\n", "stdout:three\n"]);
    expect(await exitCode).toBe(0);
  });

  test("never splits a character between chunks", async () => {
    const path = script("printf '\\342'; sleep 0.2; printf '\\202\\254'; printf '\\342\\202'");
    let text = "";
    for await (const { data } of exec.spawn(path, [], { signal: never() }).output) text += data;
    expect(text).toBe("€\uFFFD");
  });

  test("loses no output before the first read", async () => {
    const { output, exitCode } = exec.spawn("echo", ["kept"], { signal: never() });
    expect(await exitCode).toBe(0);
    let text = "";
    for await (const { data } of output) text += data;
    expect(text).toBe("kept\n");
  });

  test("a slow consumer slows the tool", async () => {
    const progress = join(folder, "progress");
    const path = script(
      `i=0; while [ $i -lt 400 ]; do head -c 10000 /dev/zero; i=$((i+1)); echo $i > ${progress}; done`,
    );
    const { output, exitCode } = exec.spawn(path, [], { signal: never() });
    const iterator = output[Symbol.asyncIterator]();
    await iterator.next();
    const seen = (): string => readFileSync(progress, "utf8").trim();
    let before = "";
    await vi.waitFor(
      () => {
        const now = seen();
        const isStill = now === before;
        before = now;
        expect(isStill).toBe(true);
      },
      { interval: 300, timeout: 120_000 },
    );
    expect(Number(seen())).toBeLessThan(200);
    let bytes = 0;
    for (let next = await iterator.next(); next.done !== true; next = await iterator.next())
      bytes += next.value.data.length;
    expect(bytes).toBeGreaterThan(3_000_000);
    expect(await exitCode).toBe(0);
  });

  test("a cancel ends a tree that forks, changes its session and ignores SIGINT", async () => {
    const mark = `7${process.pid}${Date.now() % 100_000}`;
    const path = script(
      `trap '' INT TERM\n(trap '' INT; sleep ${mark}1 & sleep ${mark}2) &\nsetsid sleep ${mark}3 &\necho ready\nwhile :; do sleep ${mark}4; done`,
    );
    const control = new AbortController();
    const { output, exitCode } = exec.spawn(path, [], { signal: control.signal });
    for await (const { data } of output) {
      if (data.includes("ready")) {
        await untilHolds(() => expect(living(`sleep ${mark}`)).toHaveLength(4));
        control.abort();
      }
    }
    expect(await exitCode).toBe(137);
    await untilHolds(() => expect([living(mark), living(path), zombies()]).toEqual([[], [], 0]));
  });

  test("ends what a tool leaves in its group when it exits", async () => {
    const mark = `8${process.pid}${Date.now() % 100_000}`;
    const { output, exitCode } = exec.spawn(script(`sleep ${mark} & echo started`), [], { signal: never() });
    let text = "";
    for await (const { data } of output) text += data;
    expect([text, await exitCode]).toEqual(["started\n", 0]);
    await untilHolds(() => expect(living(mark)).toEqual([]));
  });

  test("a foreign process that keeps the pipe open does not keep the output open", async () => {
    const mark = `6${process.pid}${Date.now() % 100_000}`;
    const { output } = exec.spawn(
      script(`setsid sh -c 'echo $$ > ${folder}/pid; exec sleep ${mark}' & sleep 0.2; echo done`),
      [],
      {
        signal: never(),
      },
    );
    let text = "";
    for await (const { data } of output) text += data;
    expect(text).toBe("done\n");
    process.kill(Number(readFileSync(join(folder, "pid"), "utf8")), "SIGKILL");
  });

  test("a cancelled tool may still print its last output", async () => {
    const control = new AbortController();
    const path = script("trap 'echo summary; exit 0' INT\necho ready\nwhile :; do sleep 0.05; done");
    let text = "";
    const { output, exitCode } = exec.spawn(path, [], { signal: control.signal });
    for await (const { data } of output) {
      text += data;
      control.abort();
    }
    expect([text, await exitCode]).toEqual(["ready\nsummary\n", 0]);
    expect(getEventListeners(control.signal, "abort")).toHaveLength(0);
  });

  test("a consumer that stops early ends the tool", async () => {
    const { output, exitCode } = exec.spawn("yes", [], { signal: never() });
    for await (const _ of output) break;
    expect(await exitCode).toBeGreaterThan(128);
  });

  test("a death by a foreign signal is an error", async () => {
    const { output, exitCode } = exec.spawn("sh", ["-c", "kill -SEGV $$"], { signal: never() });
    for await (const _ of output);
    await expect(exitCode).rejects.toMatchObject({ code: "exec-failed", details: { signal: "SIGSEGV" } });
  });

  test("a tool that cannot start fails the output and the status", async () => {
    const missing = exec.spawn("no-such-tool", [], { signal: never() });
    missing.kill();
    await expect(missing.output[Symbol.asyncIterator]().next()).rejects.toMatchObject({ code: "tool-missing" });
    await expect(missing.exitCode).rejects.toMatchObject({ code: "tool-missing" });
    const aborted = exec.spawn("true", [], { signal: AbortSignal.abort(new Error("no")) });
    await expect(aborted.exitCode).rejects.toThrow("no");
  });
});

describe("a SIGKILL of this program", () => {
  test("ends its tools", async () => {
    const duration = `61.${process.pid}`;
    const program = sleeping(duration);
    await untilHolds(() => expect(living(`sleep ${duration}`)).toEqual([`sleep ${duration} `]));
    program.kill("SIGKILL");
    await untilHolds(() => expect(living(`sleep ${duration}`)).toEqual([]));
  });
});
