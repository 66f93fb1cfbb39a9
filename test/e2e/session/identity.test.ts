import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { fileEnd } from "../../support/file-end.ts";
import {
  freePort,
  registerNode,
  startAgent,
  startController,
  startProgram,
  type AgentProgram,
  type ControllerProgram,
} from "../../support/machine/programs.ts";
import { eventsOf, statusWhere, untilOnline, untilReason, wake } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";
import { startWsRelay, type WsRelay } from "../../support/control-plane/ws-relay.ts";

const HOUR_MS = 3_600_000;

/** One controller behind a relay, and two nodes: the first one is deleted in its test, the second one is copied in its. */
let dir: string;
let relay: WsRelay;
let controller: ControllerProgram;
let first: AgentProgram;
let uid: string;
const onFinished = fileEnd();

beforeAll(async () => {
  dir = tempDir(onFinished);
  const port = await freePort();
  relay = await startWsRelay(await freePort(), port, onFinished);
  controller = await startController(dir, port, ["--url", `http://127.0.0.1:${relay.port}`], { onFinished });
  first = await startAgent(join(dir, "first"), { onFinished });
  uid = await registerNode(controller, first, "first");
  await untilOnline(first);
});

test("a second agent on one state directory ends and names the first", async () => {
  const second = await startAgent(join(dir, "first"), { wait: false });
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

test("a deleted node keeps its identity and last state, reports it, and retries once an hour", async () => {
  await controller.call("PUT", `/node/${uid}/tag/site`, { value: "one" });
  await statusWhere(first, "the tag arrived", ({ tags }) => tags["site"] === "one");
  const before = readFileSync(join(dir, "first/state/identity/registration.json"), "utf8");
  expect((await controller.call("DELETE", `/node/${uid}`)).status).toBeLessThan(300);

  await untilReason(first, ["deleted"]);
  const check = async (): Promise<void> => {
    const { session, node, tags } = await first.status();
    expect((session.retryAt ?? 0) - session.since).toBeGreaterThan(0.89 * HOUR_MS);
    expect((session.retryAt ?? 0) - session.since).toBeLessThan(1.11 * HOUR_MS);
    expect(node?.uid).toBe(uid);
    expect(tags["site"]).toBe("one");
  };
  await check();
  const health = await first.health();
  expect(health.items.find(({ name }) => name === "control-plane")?.message).toContain("deleted");
  expect(readFileSync(join(dir, "first/state/identity/registration.json"), "utf8")).toBe(before);

  // A retry by an operator or after a restart has the same result.
  const { attempt } = (await first.status()).session;
  wake(first);
  await statusWhere(first, "told again", ({ session }) => session.attempt > attempt && session.state === "waiting");
  await untilReason(first, ["deleted"]);
  await check();
});

/** The second node, started by the first test that needs it. */
let second: AgentProgram | undefined;

async function secondNode(): Promise<AgentProgram> {
  if (second !== undefined) return second;
  second = await startAgent(join(dir, "second"), { onFinished });
  await registerNode(controller, second, "second");
  await untilOnline(second);
  return second;
}

test("only the control plane can delete a node", async () => {
  // A genuine statement on another node.
  const statement =
    relay.sessions.flatMap(({ fromController }) => fromController).find((text) => text.includes("session.deleted")) ??
    "";
  expect(statement).not.toBe("");
  await first.end();

  const agent = await secondNode();
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

test("two machines with one identity are reported, and get nothing while they alternate", async () => {
  const agent = await secondNode();
  const secondUid = (await agent.status()).node?.uid ?? "";
  await controller.call("PUT", `/node/${secondUid}/tag/site`, { value: "one" });
  await statusWhere(agent, "the tag arrived", ({ tags }) => tags["site"] === "one");
  await agent.end();
  cpSync(join(dir, "second/state"), join(dir, "copy/state"), { recursive: true });

  // The copy sees another boot id, as on another machine.
  const bootId = join(dir, "boot-id");
  writeFileSync(bootId, `${crypto.randomUUID()}\n`);
  const elsewhere = `mount --bind ${bootId} /proc/sys/kernel/random/boot_id && exec "$0" "$@"`;
  const original = await startAgent(join(dir, "second"));
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
    const events = (await eventsOf(controller, secondUid)).filter(({ eventType }) => eventType === "Identity Shared");
    return events.length >= 2 ? events : undefined;
  });
  expect(shared[0]?.details).toMatchObject({ addresses: ["127.0.0.1", "127.0.0.1"] });

  const answer = await controller.call("POST", `/node/${secondUid}/trigger/tg-ping?wait=1`, {
    host: "127.0.0.1",
    count: 1,
  });
  expect(answer.status).toBeGreaterThanOrEqual(400);
  expect(JSON.stringify(answer.body)).toContain("identity");
  await controller.call("PUT", `/node/${secondUid}/tag/site`, { value: "two" });
  await waitFor("the refusal of a document", () => copy.log().includes("documents could not be fetched"));
  for (const one of [original, copy]) {
    const status = await one.status();
    expect(status.tags["site"]).toBe("one");
    expect(status.node?.uid).toBe(secondUid);
  }
});
