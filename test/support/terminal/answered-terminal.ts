import { spawn } from "node:child_process";
import { onTestFinished } from "vitest";
import { BUNDLE, FLAGS } from "../machine/programs.ts";
import { waitFor } from "../wait-for.ts";

/** A command of the built program on a terminal of 80 columns and 24 rows, with typed answers. */
export function onTerminal(args: readonly string[], within: readonly string[] = []) {
  const shown = { text: "" };
  const command = [...within, process.execPath, ...FLAGS, BUNDLE, ...args].map((word) => `'${word}'`).join(" ");
  const child = spawn("script", ["-qec", `stty cols 80 rows 24; exec ${command}`, "/dev/null"], {
    env: { PATH: process.env["PATH"] ?? "", TERM: "dumb" },
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  child.stdout.setEncoding("utf8").on("data", (text: string) => (shown.text += text));
  child.stdin.on("error", () => undefined);
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  let from = 0;
  /** Waits for a text after the last awaited one, then types a line. */
  const answer = async (text: string, line: string): Promise<void> => {
    await waitFor(`the terminal to show ${text}`, () => shown.text.includes(text, from)).catch((error: unknown) => {
      throw new Error(`it shows ${JSON.stringify(shown.text)}`, { cause: error });
    });
    from = shown.text.indexOf(text, from) + text.length;
    child.stdin.write(line);
  };
  return { shown, ended, answer };
}
