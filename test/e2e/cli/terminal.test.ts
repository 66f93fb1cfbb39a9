import { execFileSync, spawn } from "node:child_process";
import { openSync } from "node:fs";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { layOut } from "../../../src/cli/frame/terminal.ts";
import { startLocalAgent } from "../../support/local-agent.ts";

const MAIN = fileURLToPath(new URL("../../../dist/holdfast.mjs", import.meta.url));
const ESC = "\u001b";

/** Runs a command on a terminal, by script(1), until its output matches the pattern; then sends Ctrl-C. */
async function onTerminal(
  args: readonly string[],
  until: RegExp,
  env: Readonly<Record<string, string>> = {},
): Promise<{ readonly code: number | null; readonly text: string }> {
  const command = [process.execPath, "--disable-warning=ExperimentalWarning", MAIN, ...args]
    .map((word) => `'${word}'`)
    .join(" ");
  const child = spawn("script", ["-qec", `stty cols 80 rows 24; exec ${command}`, "/dev/null"], {
    env: { PATH: process.env["PATH"] ?? "", TERM: "xterm-256color", ...env },
  });
  let text = "";
  let isInterrupted = false;
  child.stdin.on("error", () => undefined);
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
    if (isInterrupted || !until.test(text)) return;
    isInterrupted = true;
    child.stdin.write("\u0003");
  });
  const [code] = (await once(child, "close")) as [number | null];
  return { code, text };
}

describe("a real terminal", () => {
  it("has status redrawn in place until Ctrl-C, and its cursor restored", async () => {
    await using agent = await startLocalAgent();
    const { code, text } = await onTerminal(["status", "--watch", "--run", agent.runDir], /ACTIVE[^]*ACTIVE/);
    expect(code).toBe(0);
    expect(text.split(new RegExp(`${ESC}\\[\\d+F`)).length).toBeGreaterThan(1);
    expect(text).not.toContain(`${ESC}[2J`);
    expect(text).toContain(`${ESC}[32monline${ESC}[39m`);
    expect(text.trimEnd().endsWith(`${ESC}[?25h`)).toBe(true);
  });

  it("gets no colours if they are off", async () => {
    await using agent = await startLocalAgent();
    for (const env of [{ NO_COLOR: "1" }, { TERM: "dumb" }]) {
      const { code, text } = await onTerminal(["status", "--run", agent.runDir], /never/, env);
      expect(code).toBe(0);
      expect(text).toContain("online");
      expect(text).not.toContain(ESC);
    }
  });
});

describe("output that cannot be written", () => {
  it("is an error, and exits 1", () => {
    const full = openSync("/dev/full", "w");
    const run = (): unknown => execFileSync(process.execPath, [MAIN, "version"], { stdio: ["ignore", full, "pipe"] });
    expect(run).toThrow(/cannot write the output: ENOSPC/);
  });
});

describe("layOut", () => {
  it("aligns, breaks between words and trims", () => {
    const rows = [
      ["a", "one two three"],
      ["label", ""],
      [`${ESC}[31mred${ESC}[39m`, "x"],
    ] as const;
    expect(layOut(rows, 15)).toBe(`a      one two\n       three\nlabel\n${ESC}[31mred${ESC}[39m    x\n`);
  });
});
