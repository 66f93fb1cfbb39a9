import { expect, test } from "vitest";
import { startTerminalStage } from "../support/terminal-stage.ts";
import { waitFor } from "../support/wait-for.ts";

test("a terminal: what is typed is seen, the size follows, and the exit code comes back; both ends are audited", async () => {
  const stage = await startTerminalStage();
  const client = await stage.open("container=shell&cols=100&rows=30").opened();
  client.type("echo $((40 + 2))-there; stty size\n");
  await client.seen("42-there");
  await client.seen("30 100");
  client.say({ type: "resize", cols: 132, rows: 50 });
  client.say({ type: "resize", cols: 133, rows: 51 });
  await waitFor("the new size", async () => {
    client.type("stty size\n");
    await new Promise((resolve) => setTimeout(resolve, 50));
    return client.text.includes("51 133");
  });
  client.type("exit 7\n");
  expect(await client.end()).toEqual({ code: 1000, reason: "" });
  expect(client.told).toEqual([{ type: "exit", code: 7 }]);
  const audits = (): string[] =>
    stage.controller.fleet
      .audits({ limit: 10, offset: 0 })
      .items.map(({ value }) => value)
      .reverse();
  await waitFor("the audit of the end", () => audits().length === 2);
  expect(audits()).toEqual([
    "admin opened a terminal in container shell",
    "admin closed a terminal in container shell: exit code 7",
  ]);
});
