import { readFileSync, writeFileSync } from "node:fs";
import { getPriority } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostTransfers } from "../../../../src/host/process/transfer-process.ts";
import type { TransferEvent } from "../../../../src/protocol/triggers/transfer.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { transferJob } from "../../../support/data-store/transfer-job.ts";
import { waitFor } from "../../../support/wait-for.ts";

/** Starts a child that runs `body`, with `job`, `tell`, and the lines after the job as `orders`. */
function start(body: string, clock = systemClock()) {
  const script = join(tempDir(), "child.mjs");
  writeFileSync(
    script,
    `import { createInterface } from "node:readline";
    const tell = (event) => process.stdout.write(JSON.stringify(event) + "\\n");
    const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
    const job = JSON.parse((await lines.next()).value);
    ${body}`,
  );
  const events: TransferEvent[] = [];
  const run = hostTransfers({ clock, command: [process.execPath, script] });
  return { events, child: run(transferJob(), (event) => events.push(event)) };
}

test("the child gets its job by standard input, and its reports arrive before its end", async () => {
  const { events, child } = start(`
    tell({ is: "progress", bytes: 1, rate: 2 });
    tell({ is: "done", bytes: job.uri.length, hash: Object.keys(process.env).sort().join() });
    process.stdin.destroy();`);
  expect(await child.ended).toEqual({ how: "exit status 0", said: "" });
  expect(events).toEqual([
    { is: "progress", bytes: 1, rate: 2 },
    { is: "done", bytes: transferJob().uri.length, hash: "LC_ALL,PATH,TZ" },
  ]);
});

test("nothing of the job is in the process list, and the child has a lower priority", async () => {
  const { events, child } = start(`tell({ is: "progress", bytes: 1, rate: 2 }); await lines.next();
    process.stdin.destroy();`);
  await waitFor("the child speaks", () => events.length > 0);
  expect(readFileSync(`/proc/${child.pid}/cmdline`, "utf8")).not.toContain("secret");
  expect(readFileSync(`/proc/${child.pid}/environ`, "utf8")).not.toContain("secret");
  expect(getPriority(child.pid)).toBe(10);
  child.leave();
  expect((await child.ended).how).toBe("exit status 0");
});

test("a cancel reaches it", async () => {
  const { events, child } = start(`
    tell({ is: "progress", bytes: 1, rate: 2 });
    const order = JSON.parse((await lines.next()).value);
    tell({ is: "failed", code: order.is, message: "as told" });
    process.exit(3);`);
  await waitFor("the child speaks", () => events.length > 0);
  child.cancel();
  expect((await child.ended).how).toBe("exit status 3");
  expect(events.at(-1)).toEqual({ is: "failed", code: "cancel", message: "as told" });
});

test.each(["cancel", "leave"] as const)("kills one that ignores %s", async (order) => {
  // Short timers replace long ones.
  const clock = { ...systemClock(), after: (ms: number, run: () => void) => systemClock().after(ms / 50, run) };
  const { events, child } = start(
    `process.on("SIGTERM", () => 0); tell({ is: "progress", bytes: 1, rate: 2 }); setInterval(() => 0, 1000);`,
    clock,
  );
  await waitFor("the child speaks", () => events.length > 0);
  child[order]();
  expect((await child.ended).how).toBe("SIGKILL");
});

test.each([
  ["no JSON", `process.stdout.write("hello\\n"); setInterval(() => 0, 1000);`],
  ["an unknown event", `tell({ is: "odd" }); setInterval(() => 0, 1000);`],
  ["a line without end", `process.stdout.write("x".repeat(100_000)); setInterval(() => 0, 1000);`],
])("ends one that reports %s", async (_, body) => {
  const { child, events } = start(body);
  expect(await child.ended).toEqual({ how: "the output of the transfer process is not valid", said: "" });
  expect(events).toEqual([]);
});

test("reports how a crashed one ended, with its error output", async () => {
  const { child } = start(`process.stderr.write("out of luck\\n"); process.exitCode = 7; process.stdin.destroy();`);
  expect(await child.ended).toEqual({ how: "exit status 7", said: "out of luck" });
});

test("and one that cannot be started ends at once", async () => {
  const run = hostTransfers({ clock: systemClock(), command: ["/nowhere/holdfast"] });
  expect((await run(transferJob(), () => undefined).ended).how).toContain("ENOENT");
});
