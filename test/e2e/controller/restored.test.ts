import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { keyStore } from "../../../src/controller/channel/keys/key-store.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { fileEnd } from "../../support/file-end.ts";
import { startController, type ControllerProgram } from "../../support/machine/programs.ts";
import { eventsOf, startStage, statusWhere, untilOnline, untilReason, wake, type Stage } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

type Reported = Readonly<Record<string, unknown>> & { readonly publishTime?: number };

/** Returns the controller's copy of a node's shadow. */
async function reportedBy(controller: ControllerProgram, uid: string): Promise<Reported> {
  const query = "projection[]=uid&projection[0][0]=shadow&projection[0][1]=reported";
  const { body } = await controller.call("GET", `/node?${query}`);
  const nodes = body as { uid: string; shadow?: { reported?: Reported } }[];
  return nodes.find((node) => node.uid === uid)?.shadow?.reported ?? {};
}

/** One node for both tests; the second one changes the keys of its control plane. */
let stage: Stage;
let current: ControllerProgram;
const onFinished = fileEnd();

beforeAll(async () => {
  stage = await startStage(tempDir(onFinished), { onFinished });
  current = stage.controller;
});

/** Starts the controller again, on what is in its directory. */
async function startAgain(): Promise<ControllerProgram> {
  current = await startController(stage.dir, stage.port, stage.options, { onFinished });
  return current;
}

test("a control plane restored from an older backup is followed again, and gets the node's reports", async () => {
  const { dir, agent, controller, uid } = stage;
  await controller.call("PUT", `/node/${uid}/tag/site`, { value: "old" });
  await statusWhere(agent, "the first tag arrived", ({ tags }) => tags["site"] === "old");

  // A stopped program's files are what a snapshot of the disk has.
  controller.process.kill("SIGSTOP");
  cpSync(controller.dir, join(dir, "backup"), { recursive: true });
  controller.process.kill("SIGCONT");
  for (const value of ["new", "newer", "newest"]) {
    await controller.call("PUT", `/node/${uid}/tag/site`, { value });
    await statusWhere(agent, "the tag arrived", ({ tags }) => tags["site"] === value);
  }
  const put = await controller.call("PUT", `/node/${uid}/config/connectors`, { connectors: [] });
  expect(put.status).toBeLessThan(300);
  await statusWhere(agent, "the section arrived", ({ sections }) => Object.hasOwn(sections, "connectors"));

  const changedAt = Date.now();
  await controller.call("PUT", `/node/${uid}/tag/site`, { value: "last" });
  const reported = await waitFor("a report that the backup lacks", async () => {
    const shadow = await reportedBy(controller, uid);
    return (shadow.publishTime ?? 0) > changedAt ? shadow : undefined;
  });
  const { documents: before } = await statusWhere(agent, "the last tag arrived", ({ tags }) => tags["site"] === "last");

  await controller.end("SIGKILL");
  rmSync(controller.dir, { recursive: true });
  cpSync(join(dir, "backup"), controller.dir, { recursive: true });
  const restoredAt = Date.now();
  const restored = await startAgain();
  wake(agent);
  const followed = await statusWhere(
    agent,
    "the old tag is back, and the section gone",
    ({ tags, sections }) => tags["site"] === "old" && !Object.hasOwn(sections, "connectors"),
  );
  expect(followed.documents.node?.version).toBeGreaterThan(before.node?.version ?? 0);
  expect((await agent.health()).items.find(({ name }) => name === "signatures")?.status).toBe("pass");

  const event = await waitFor("the event", async () =>
    (await eventsOf(restored, uid)).find(({ eventType }) => eventType === "Control Plane Restored"),
  );
  expect(event.details).toMatchObject({ document: "node", have: before.node?.version, followed: true });

  await restored.call("PUT", `/node/${uid}/tag/site`, { value: "after" });
  await statusWhere(agent, "changes arrive again", ({ tags }) => tags["site"] === "after");

  const known = await waitFor("the node reports everything anew", async () => {
    const shadow = await reportedBy(restored, uid);
    return (shadow.publishTime ?? 0) > restoredAt ? shadow : undefined;
  });
  expect(Object.keys(known)).toEqual(expect.arrayContaining(Object.keys(reported)));
});

test("a node that was offline during changes of the control plane's keys follows the chain", async () => {
  const { agent, controller, uid, proxy } = stage;
  await current.call("PUT", `/node/${uid}/tag/site`, { value: "before" });
  await statusWhere(agent, "the tag arrived", ({ tags }) => tags["site"] === "before");
  expect((await agent.status()).documents.keys?.version).toBe(1);

  await proxy.set({ kind: "refuse" });
  await untilReason(agent, ["connection-lost", "connect-failed"]);
  const keys = join(controller.dir, "keys");
  for (const change of ["signing", "root", "signing"]) {
    await current.end();
    if (change === "signing") rmSync(join(keys, "signing.jwk"));
    else await keyStore(hostFiles(), keys).create("root-next");
    await startAgain();
  }
  await proxy.set({ kind: "pass" });
  wake(agent);
  const { documents, tags } = await untilOnline(agent);
  expect(documents.keys?.version).toBe(4);
  expect(tags["site"]).toBe("before");

  const ping = await current.call("POST", `/node/${uid}/trigger/tg-ping?wait=1`, { host: "127.0.0.1", count: 1 });
  expect(ping).toMatchObject({ status: 200 });
  await current.call("PUT", `/node/${uid}/tag/site`, { value: "after" });
  await statusWhere(agent, "a document under the new key", (status) => status.tags["site"] === "after");
});
