import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, onTestFinished, test } from "vitest";
import { waitFor } from "../../../../support/wait-for.ts";

const PROGRAM = join(import.meta.dirname, "../../../../support/network/watch-ruleset.ts");

/** A watch in a network namespace, which needs no privilege. */
async function watched(...table: string[]) {
  const args = ["-rn", process.execPath, "--disable-warning=ExperimentalWarning", PROGRAM, ...table];
  const child = spawn("unshare", args, { stdio: ["pipe", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => lines.push(line));
  await waitFor("it is ready", () => lines.includes("ready"));
  let requested = 0;
  const run = async (line: string): Promise<void> => {
    child.stdin.write(`${line}\n`);
    requested += 1;
    await waitFor(line, () => lines.filter((one) => one.startsWith("done ")).length === requested);
  };
  return { child, run, reported: () => lines.filter((line) => line === "change").length };
}

test("reports a change of the rules on request, once for any number", async () => {
  const { child, run, reported } = await watched();
  await run("add table ip a");
  await run("renew");
  expect(reported()).toBe(0);
  await run("add chain ip a b { type filter hook forward priority 0; policy drop; }");
  await waitFor("a new chain is told", () => reported() === 1);
  await run("add rule ip a b drop");
  await run("list ruleset");
  expect(reported()).toBe(1);
  await run("renew");
  await run("list ruleset");
  expect(reported()).toBe(1);
  await run("delete table ip a");
  await waitFor("a table that goes is told", () => reported() === 2);
  child.stdin.end();
  expect(await once(child, "exit")).toEqual([0, null]);
});

test("a change of the named table, and of no other", async () => {
  const { run, reported } = await watched("ours");
  await run("renew");
  await run("add table inet theirs");
  await run("add table ip ours");
  await run("add set inet theirs ours { type ipv4_addr; elements = { 192.0.2.1 }; }");
  // Earlier reports arrive before its answer.
  await run("list ruleset");
  expect(reported()).toBe(0);
  await run("add table inet ours");
  await waitFor("its making is told", () => reported() === 1);
  await run("add set inet ours some { type ipv4_addr; }");
  await run("renew");
  await run("add element inet ours some { 192.0.2.1 }");
  await waitFor("an element of it is told", () => reported() === 2);
  await run("renew");
  await run("flush ruleset");
  await waitFor("its end with all others is told", () => reported() === 3);
});
