import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { waitFor } from "../wait-for.ts";

const PROGRAM = join(import.meta.dirname, "steady-flow-program.ts");

/** A TCP flow that stays busy until it is ended, or breaks. */
export interface SteadyFlow {
  /** Waits for further echoes, of what is sent after this call; fails when the flow breaks. */
  goesOn(): Promise<void>;
  end(): void;
}

/** Starts an echo server on a port; `within` is a command prefix. */
export async function startEcho(within: readonly string[], port: number): Promise<void> {
  const said = run(within, [String(port)]).said;
  await waitFor(`an echo on ${port}`, () => said.at(-1) === "listening");
}

/** Opens a flow and waits for its first echo. */
export async function startFlow(within: readonly string[], host: string, port: number): Promise<SteadyFlow> {
  const { child, said } = run(within, [host, String(port)]);
  const goesOn = async (): Promise<void> => {
    // One echo may be of a number sent before.
    const enough = said.length + 2;
    await waitFor("the flow goes on", () => said.length >= enough || child.exitCode !== null);
    if (child.exitCode !== null) throw new Error(`the flow after ${said.length - 1} exchanges: ${said.at(-1)}`);
  };
  await goesOn();
  return { goesOn, end: () => void child.kill("SIGKILL") };
}

function run([file = "", ...before]: readonly string[], args: readonly string[]) {
  const child = spawn(file, [...before, process.execPath, PROGRAM, ...args], { stdio: ["ignore", "pipe", "inherit"] });
  const said: string[] = [];
  createInterface(child.stdout).on("line", (line) => said.push(line));
  return { child, said };
}
