import { join } from "node:path";
import { expect, test } from "vitest";
import { freePort, registerNode, startAgent, startController } from "../../support/machine/programs.ts";
import { runVerb } from "../../support/run-verb.ts";
import { tempDir } from "../../support/temp-dir.ts";

test("a document is rolled back remotely, stays so over kill -9 and reconnects, and a newer one ends it", async () => {
  const dir = tempDir();
  const controller = await startController(dir, await freePort());
  let agent = await startAgent(join(dir, "node"));
  const uid = await registerNode(controller, agent, "edge");
  const tag = (value: string) => controller.call("PUT", `/node/${uid}/tag/v`, { value });
  const run = (event: string, body: unknown) => controller.call("POST", `/node/${uid}/trigger/${event}?wait=1`, body);
  const own = () => agent.status();
  const reported = async (): Promise<unknown> => {
    const { body } = await controller.call("GET", `/node/${uid}`);
    return (body as { shadow?: { reported?: unknown } }).shadow?.reported;
  };

  await tag("good");
  await expect.poll(async () => (await own()).tags).toEqual({ v: "good" });
  await tag("bad");
  await expect.poll(async () => (await own()).tags).toEqual({ v: "bad" });
  const bad = (await own()).documents.node?.version ?? 0;

  expect(await run("rollback", { plan: true })).toMatchObject({
    status: 200,
    body: { from: bad, plan: { schema: 1 } },
  });
  expect((await own()).documents.node).not.toHaveProperty("refused");
  const answer = await run("rollback", {});
  expect(answer).toMatchObject({ status: 200, body: { document: "node", from: bad, to: bad - 1 } });
  expect(await run("rollback", {})).toMatchObject({ status: 404, body: { code: "not-found" } });
  const isBack = { tags: { v: "good" }, documents: { node: { version: bad - 1, refused: bad } } };
  expect(await own()).toMatchObject(isBack);
  await expect.poll(reported).toMatchObject({ "document.node.version": bad - 1, "document.node.refused": bad });

  const { stdout: health } = await runVerb(["health", "--run", agent.runDir]);
  expect(health).toContain(`node document ${bad} is rolled back to ${bad - 1}`);

  await agent.end("SIGKILL");
  agent = await startAgent(join(dir, "node"));
  await expect
    .poll(async () => (await run("why", {})).body)
    .toMatchObject({
      reasons: [{ section: "documents", item: "node", code: "rolled-back" }],
    });
  expect(await own()).toMatchObject(isBack);

  await tag("better");
  await expect.poll(async () => (await own()).tags).toEqual({ v: "better" });
  expect((await own()).documents.node).not.toHaveProperty("refused");
  await expect.poll(reported).not.toHaveProperty(["document.node.refused"]);
});
