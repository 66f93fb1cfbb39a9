import { spawn } from "node:child_process";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { fileEnd } from "../../support/file-end.ts";
import { FLAGS, BUNDLE } from "../../support/machine/programs.ts";
import { startHoldfast } from "../../support/run-holdfast.ts";
import { runVerb } from "../../support/run-verb.ts";
import { sampleOf } from "../../support/sample.ts";
import { startTerminalStage, type TerminalStage } from "../../support/terminal/terminal-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

/** One node for all tests; its programs end with each test. */
let stage: TerminalStage;
const onFinished = fileEnd();

beforeAll(async () => {
  stage = await startTerminalStage(onFinished);
});

function holdfast(args: readonly string[], input = "") {
  return startHoldfast([...args.slice(0, 1), "--run", stage.runDir, ...args.slice(1)], { input }).finished;
}

/** The same in this process, for what the arguments or the agent's answer decide. */
const verb = (args: readonly string[]) => runVerb([...args.slice(0, 1), "--run", stage.runDir, ...args.slice(1)]);

test("exec without a terminal pipes, ends at the end of its input, and passes the exit code on", async () => {
  const shell = await holdfast(["containers", "exec", "shell"], "echo $((20 + 3)); exit 9\n");
  expect(shell.stdout).toContain("23");
  expect(shell.code).toBe(9);
  const cat = await holdfast(["containers", "exec", "shell", "--", "cat", "-A"], "unfinished");
  expect(cat.stdout).toContain("unfinished");
  expect(cat.code).toBe(0);
  expect(stage.compute.requests.at(-1)).toMatchObject({ columns: 80, rows: 24, command: ["cat", "-A"] });
  expect((await holdfast(["containers", "exec", "shell", "--", "sh", "-c", "exit 130"])).code).toBe(130);

  expect(await verb(["containers", "exec", "none"])).toMatchObject({
    code: 1,
    stderr: "holdfast: there is no container none\n",
  });
  expect((await verb(["containers", "exec", "--follow", "shell"])).code).toBe(2);
  expect((await verb(["containers", "sing", "shell"])).code).toBe(2);
  expect((await verb(["containers", "exec"])).code).toBe(2);
});

/** Runs a command line on a terminal, and prints its settings before and after. */
function onTerminal(command: string) {
  const shown = { text: "" };
  const line = `stty cols 90 rows 25; echo "tty=$(tty)"; ${command}; echo "code=$?"; stty -a`;
  const child = spawn("script", ["-qec", line, "/dev/null"], { stdio: ["pipe", "pipe", "ignore"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  child.stdout?.on("data", (chunk: Buffer) => (shown.text += chunk.toString()));
  const seen = (text: string) =>
    waitFor(`the terminal to show ${text}`, () => shown.text.includes(text)).catch((error: unknown) => {
      throw new Error(`it shows ${JSON.stringify(shown.text)}`, { cause: error });
    });
  return { child, shown, seen, tty: () => waitFor("the terminal's name", () => /tty=(\S+)/.exec(shown.text)?.[1]) };
}

test("exec on a terminal: keys go through, the size follows, and the terminal is restored afterwards", async () => {
  const command = [process.execPath, ...FLAGS, BUNDLE, "containers", "exec", "--run", stage.runDir, "shell"].join(" ");
  const { child, seen, tty, shown } = onTerminal(command);
  await seen("$ ");
  child.stdin?.write(`stty size; sh -c 'trap "echo stop''ped; exit" INT; echo rea''dy; sleep 1000'\r`);
  await seen("25 90");
  await seen("ready");
  child.stdin?.write("\u0003");
  await seen("stopped");
  spawn("stty", ["-F", await tty(), "cols", "101", "rows", "31"]);
  await waitFor("the new size", () => {
    child.stdin?.write("stty size\r");
    return shown.text.includes("31 101");
  });
  child.stdin?.write("exit 5\r");
  await seen("code=5");
  await seen(" icanon");
  expect(shown.text).not.toContain("-icanon");
  expect(shown.text).not.toMatch(/-echo\b/);
});

test.each(sampleOf(["SIGTERM", "SIGHUP", "SIGINT"] as const, 2, "signals to exec"))(
  "%s restores the terminal and ends the command",
  async (signal) => {
    const command = [process.execPath, ...FLAGS, BUNDLE, "containers", "exec", "--run", stage.runDir, "shell"].join(
      " ",
    );
    const { child, seen, shown } = onTerminal(`sh -c 'echo pid=$$; exec ${command}'`);
    await seen("$ ");
    child.stdin?.write("echo up\r");
    await seen("up\r\n");
    process.kill(Number(/pid=(\d+)/.exec(shown.text)?.[1]), signal);
    await seen("code=");
    await seen(" icanon");
    expect(shown.text).not.toContain("-icanon");
    await waitFor("the command to be gone", () => stage.compute.terminals.every(({ pid }) => pid === undefined));
  },
);

test("logs: both outputs, as text and as JSON, cut and refused", async () => {
  stage.compute.frames = [
    { stream: "stdout", data: Buffer.from("half \u00e4".slice(0, 5)) },
    { stream: "stdout", data: Buffer.from([0xc3]) },
    { stream: "stderr", data: Buffer.from("oh\u001b[31m\n") },
    { stream: "stdout", data: Buffer.from([0xa4, 0x0a]) },
  ];
  const text = await holdfast(["containers", "logs", "shell", "--lines", "7"]);
  expect(text).toMatchObject({ code: 0, stdout: "half ä\n" });
  expect(text.stderr).not.toContain("\u001b");
  expect(stage.compute.logged).toEqual([{ name: "shell", follow: false, lines: 7 }]);
  const json = await verb(["containers", "logs", "--json", "shell"]);
  expect(
    json.stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as unknown),
  ).toEqual([
    { stream: "stdout", data: "half " },
    { stream: "stderr", data: "oh\u001b[31m\n" },
    { stream: "stdout", data: "ä\n" },
  ]);
  const none = await verb(["containers", "logs", "none"]);
  expect(none).toMatchObject({ code: 1, stderr: "holdfast: there is no container none\n" });
  for (const lines of ["10001", "-1", "many"]) {
    expect((await verb(["containers", "logs", `--lines=${lines}`, "shell"])).code).toBe(2);
  }
  const following = startHoldfast(["containers", "logs", "-f", "--run", stage.runDir, "shell"]);
  await following.until(/half/);
  following.child.kill("SIGINT");
  expect((await following.finished).code).toBe(0);
});
