import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { freePort, registerNode, startAgent, startController, startProgram } from "../../support/machine/programs.ts";
import { eventsOf, startStage, statusWhere, untilOnline, untilReason, wake } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";
import { startWsRelay } from "../../support/control-plane/ws-relay.ts";

const HOUR_MS = 3_600_000;

test("a second agent on one state directory ends and names the first", async () => {
  const dir = tempDir();
  const first = await startAgent(join(dir, "node"));
  const second = await startAgent(join(dir, "node"), { wait: false });
  const elsewhere = ["agent", "--state", first.stateDir, "--run", join(dir, "elsewhere")];
  const third = startProgram(elsewhere, join(dir, "third.log"));
  for (const { process } of [second, third]) {
    const code = process.exitCode ?? (await new Promise<number | null>((resolve) => process.once("exit", resolve)));
    expect(code).toBe(1);
  }
  expect(second.log()).toMatch(new RegExp(`the agent with process id ${first.pid} already serves`));
  expect(third.log()).toMatch(new RegExp(`in use by process ${first.pid}\\b`));
  expect((await first.status()).pid).toBe(first.pid);
});

test("two machines with one identity are reported, and get nothing while they alternate", async () => {
  const dir = tempDir();
  const { agent, controller, uid } = await startStage(dir);
  await controller.call("PUT", `/node/${uid}/tag/site`, { value: "one" });
  await statusWhere(agent, "the tag arrived", ({ tags }) => tags["site"] === "one");
  await agent.end();
  cpSync(join(dir, "node/state"), join(dir, "copy/state"), { recursive: true });

  // The copy sees another boot id, as on another machine.
  const bootId = join(dir, "boot-id");
  writeFileSync(bootId, `${crypto.randomUUID()}\n`);
  const elsewhere = `mount --bind ${bootId} /proc/sys/kernel/random/boot_id && exec "$0" "$@"`;
  const original = await startAgent(join(dir, "node"));
  await untilOnline(original);
  const copy = await startAgent(join(dir, "copy"), { within: ["unshare", "-rm", "sh", "-c", elsewhere] });
  await untilOnline(copy);
  await untilReason(original, ["superseded"]);
  const until = (await original.status()).session;
  expect((until.retryAt ?? 0) - until.since).toBeGreaterThanOrEqual(29_000);

  wake(original);
  await untilReason(copy, ["superseded"]);
  wake(copy);
  await untilReason(original, ["superseded"]);
  const shared = await waitFor("the event", async () => {
    const events = (await eventsOf(controller, uid)).filter(({ eventType }) => eventType === "Identity Shared");
    return events.length >= 2 ? events : undefined;
  });
  expect(shared[0]?.details).toMatchObject({ addresses: ["127.0.0.1", "127.0.0.1"] });

  const answer = await controller.call("POST", `/node/${uid}/trigger/tg-ping?wait=1`, { host: "127.0.0.1", count: 1 });
  expect(answer.status).toBeGreaterThanOrEqual(400);
  expect(JSON.stringify(answer.body)).toContain("identity");
  await controller.call("PUT", `/node/${uid}/tag/site`, { value: "two" });
  await waitFor("the refusal of a document", () => copy.log().includes("documents could not be fetched"));
  for (const one of [original, copy]) {
    const status = await one.status();
    expect(status.tags["site"]).toBe("one");
    expect(status.node?.uid).toBe(uid);
  }
});

test("a deleted node keeps its identity and last state, reports it, and retries once an hour", async () => {
  const { agent, controller, uid, dir } = await startStage(tempDir());
  await controller.call("PUT", `/node/${uid}/tag/site`, { value: "one" });
  await statusWhere(agent, "the tag arrived", ({ tags }) => tags["site"] === "one");
  const before = readFileSync(join(dir, "node/state/identity/registration.json"), "utf8");
  expect((await controller.call("DELETE", `/node/${uid}`)).status).toBeLessThan(300);

  await untilReason(agent, ["deleted"]);
  const check = async (): Promise<void> => {
    const { session, node, tags } = await agent.status();
    expect((session.retryAt ?? 0) - session.since).toBeGreaterThan(0.89 * HOUR_MS);
    expect((session.retryAt ?? 0) - session.since).toBeLessThan(1.11 * HOUR_MS);
    expect(node?.uid).toBe(uid);
    expect(tags["site"]).toBe("one");
  };
  await check();
  const health = await agent.health();
  expect(health.items.find(({ name }) => name === "control-plane")?.message).toContain("deleted");
  expect(readFileSync(join(dir, "node/state/identity/registration.json"), "utf8")).toBe(before);

  // A retry by an operator or after a restart has the same result.
  const { attempt } = (await agent.status()).session;
  wake(agent);
  await statusWhere(agent, "told again", ({ session }) => session.attempt > attempt && session.state === "waiting");
  await untilReason(agent, ["deleted"]);
  await check();
});

test("only the control plane can delete a node", async () => {
  const dir = tempDir();
  const port = await freePort();
  const relay = await startWsRelay(await freePort(), port);
  const controller = await startController(dir, port, ["--url", `http://127.0.0.1:${relay.port}`]);
  // A genuine statement on another node.
  const other = await startAgent(join(dir, "other"));
  const uid = await registerNode(controller, other, "other");
  await untilOnline(other);
  await controller.call("DELETE", `/node/${uid}`);
  await untilReason(other, ["deleted"]);
  const statement = relay.sessions.at(-1)?.fromController.find((text) => text.includes("session.deleted")) ?? "";
  expect(statement).not.toBe("");
  await other.end();

  const agent = await startAgent(join(dir, "node"));
  await registerNode(controller, agent, "node");
  await untilOnline(agent);
  relay.intercept = (session) => {
    session.toNode(statement);
    session.closeNode(4003, "deleted");
    return true;
  };
  relay.sessions.at(-1)?.cut();
  const { session } = await statusWhere(agent, "the close code was heard", ({ session: { state, reason } }) => {
    if (state === "waiting" && reason?.code === "connection-lost") wake(agent);
    return state === "waiting" && reason?.code !== "connection-lost";
  });
  expect(session.reason?.code).not.toBe("deleted");
  expect((session.retryAt ?? 0) - session.since).toBeLessThanOrEqual(120_000);

  // The same during a genuine session.
  relay.intercept = undefined;
  wake(agent);
  await untilOnline(agent);
  relay.sessions.at(-1)?.toNode(statement);
  relay.sessions.at(-1)?.closeNode(4003, "deleted");
  const after = await statusWhere(agent, "the session ended", (status) => status.session.state === "waiting");
  expect(after.session.reason?.code).not.toBe("deleted");
  expect((after.session.retryAt ?? 0) - after.session.since).toBeLessThanOrEqual(120_000);
  wake(agent);
  await untilOnline(agent);
});
