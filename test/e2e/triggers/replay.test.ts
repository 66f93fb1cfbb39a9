import { execFileSync } from "node:child_process";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { z } from "zod";
import {
  freePort,
  registerNode,
  startAgent,
  startController,
  type AgentProgram,
  type ControllerProgram,
} from "../../support/machine/programs.ts";
import { startStage, untilAnotherSession, untilOnline, wake } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";
import { startWsRelay, type RelayedSession, type WsRelay } from "../../support/control-plane/ws-relay.ts";

const Call = z.object({ id: z.number(), method: z.literal("trigger.run"), params: z.object({ jws: z.string() }) });

/** Returns the ping processes of an agent, by their command lines. */
function pings(target: string): readonly number[] {
  try {
    const found = execFileSync("pgrep", ["-f", `ping .*-- ${target.replaceAll(".", "\\.")}$`], { encoding: "utf8" });
    return found.split("\n").filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

/** Returns the agent's journal while it does not run. */
function journal({
  stateDir,
}: Pick<AgentProgram, "stateDir">): readonly { id: unknown; state: unknown; result: unknown }[] {
  const sql = new DatabaseSync(join(stateDir, "state.db"));
  try {
    return sql
      .prepare("SELECT id, state, result FROM trigger_journal ORDER BY seq")
      .all()
      .map(({ id, state, result }) => ({ id, state, result }));
  } finally {
    sql.close();
  }
}

/** The same for a running agent, which locks it: read from a copy, possibly of two moments. */
function runningJournal({ stateDir }: AgentProgram): ReturnType<typeof journal> {
  const copy = tempDir();
  for (const name of ["state.db", "state.db-wal"]) cpSync(join(stateDir, name), join(copy, name));
  return journal({ stateDir: copy });
}

function ping(controller: ControllerProgram, uid: string, host: string, count: number) {
  return controller.call("POST", `/node/${uid}/trigger/tg-ping?wait=1`, { host, count });
}

test("a trigger whose session breaks is sent again and runs once", async () => {
  const { agent, controller, proxy, uid } = await startStage(tempDir());
  const answer = ping(controller, uid, "127.0.7.1", 50);
  const [first] = await waitFor("the ping runs", () => (pings("127.0.7.1").length > 0 ? pings("127.0.7.1") : false));
  await untilAnotherSession(agent, () => proxy.reset());
  expect(pings("127.0.7.1")).toEqual([first]);
  // It sums up and exits.
  process.kill(first ?? 0, "SIGINT");
  expect(await answer).toMatchObject({ status: 200, body: { output: { exitCode: "0" } } });
  expect(JSON.stringify((await answer).body).match(/icmp_seq=1 /g)).toHaveLength(1);
  await agent.end();
  expect(journal(agent)).toMatchObject([{ state: "done" }]);
});

test("a lost result is sent again, and nothing runs twice", async () => {
  const { agent, controller, proxy, uid } = await startStage(tempDir());
  const answer = ping(controller, uid, "127.0.7.2", 3);
  await waitFor("the ping runs", () => pings("127.0.7.2").length > 0);
  await proxy.set({ kind: "refuse" });
  await waitFor("the ping is over", () => pings("127.0.7.2").length === 0);
  await proxy.set({ kind: "pass" });
  wake(agent);
  expect(await answer).toMatchObject({ status: 200, body: { output: { exitCode: "0" } } });
  await agent.end();
  expect(journal(agent)).toHaveLength(1);
});

test("a trigger cut off by a crash is answered interrupted and never run again", async () => {
  const dir = tempDir();
  const { agent, controller, uid } = await startStage(dir);
  const answer = ping(controller, uid, "127.0.7.3", 50);
  const [running] = await waitFor("the ping runs", () => (pings("127.0.7.3").length > 0 ? pings("127.0.7.3") : false));
  await agent.end("SIGKILL");
  await waitFor("the ping is gone with the agent", () => !pings("127.0.7.3").includes(running ?? 0));
  const again = await startAgent(join(dir, "node"));
  const { status, body } = await answer;
  expect(status).toBeGreaterThanOrEqual(400);
  expect(body).toMatchObject({ code: "interrupted" });
  await untilOnline(again);
  expect(pings("127.0.7.3")).toEqual([]);
  await again.end();
  expect(journal(again)).toHaveLength(1);
});

test("a trigger answered before a restart is not run again when it is delivered again", async () => {
  const dir = tempDir();
  const { agent, controller, proxy, uid } = await startStage(dir);
  const answer = ping(controller, uid, "127.0.7.4", 2);
  await waitFor("the ping runs", () => pings("127.0.7.4").length > 0);
  await proxy.set({ kind: "refuse" });
  await waitFor("the result is committed", () => runningJournal(agent).some(({ state }) => state === "done"));
  await agent.end();
  expect(journal(agent)).toMatchObject([{ state: "done" }]);
  await proxy.set({ kind: "pass" });
  const again = await startAgent(join(dir, "node"));
  expect(await answer).toMatchObject({ status: 200, body: { output: { exitCode: "0" } } });
  await again.end();
  expect(journal(again)).toHaveLength(1);
});

interface Relayed {
  readonly controller: ControllerProgram;
  readonly relay: WsRelay;
}

async function startRelayed(dir: string): Promise<Relayed> {
  const port = await freePort();
  const relay = await startWsRelay(await freePort(), port);
  return { relay, controller: await startController(dir, port, ["--url", `http://127.0.0.1:${relay.port}`]) };
}

const Answer = z.object({
  result: z.unknown().optional(),
  error: z.object({ data: z.object({ code: z.string() }) }).optional(),
});

/** Sends a message to a node and returns its answer: the error code, or the result. */
async function replay(session: RelayedSession, jws: string): Promise<unknown> {
  const id = 900_000 + session.fromNode.length;
  session.toNode(JSON.stringify({ jsonrpc: "2.0", id, method: "trigger.run", params: { jws } }));
  const text = await waitFor("an answer", () => session.fromNode.find((frame) => frame.includes(`"id":${id},`)));
  const { error, result } = Answer.parse(JSON.parse(text));
  return error?.data.code ?? result;
}

test("a captured trigger does nothing in another session, after it ran, or at another node", async () => {
  const dir = tempDir();
  const { controller, relay } = await startRelayed(dir);
  const one = await startAgent(join(dir, "one"));
  const uid = await registerNode(controller, one, "one");
  const first = relay.sessions.at(-1);
  const two = await startAgent(join(dir, "two"));
  await registerNode(controller, two, "two");
  const ofTwo = relay.sessions.at(-1);
  // The answers to the relay must not reach the controller as answers to its calls.
  relay.passes = (_from, text) => !/"id":9\d{5},/.test(text);

  const genuine = await ping(controller, uid, "127.0.7.5", 1);
  expect(genuine.status).toBe(200);
  const captured = first?.fromController.map((text) => Call.safeParse(JSON.parse(text))).find(({ success }) => success);
  const jws = captured?.data?.params.jws ?? "";
  expect(jws).not.toBe("");

  if (first === undefined || ofTwo === undefined) throw new Error("no sessions");
  expect(await replay(first, jws), "in its own session it gets the same answer").toEqual(genuine.body);
  expect(await replay(ofTwo, jws)).toBe("bad-signature");
  await untilAnotherSession(one, () => first.cut());
  const later = relay.sessions.at(-1);
  if (later === undefined || later === first) throw new Error("no later session");
  expect(await replay(later, jws)).toBe("replayed");
  const [header = "", payload = "", signature = ""] = jws.split(".");
  const claims = JSON.parse(Buffer.from(payload, "base64url").toString()) as object;
  const { sid } = (await one.status()).session;
  const forged = Buffer.from(JSON.stringify({ ...claims, sid, jti: crypto.randomUUID() })).toString("base64url");
  expect(await replay(later, [header, forged, signature].join("."))).toBe("bad-signature");
  expect(pings("127.0.7.5")).toEqual([]);

  const health = await one.health();
  expect(health.items.find(({ name }) => name === "signatures")).toMatchObject({ status: "warn" });
  await Promise.all([one.end(), two.end()]);
  expect(journal(one)).toHaveLength(1);
  expect(journal(two)).toHaveLength(0);
});

test("receives what the control plane sends directly after its proof", async () => {
  const dir = tempDir();
  const { controller, relay } = await startRelayed(dir);
  const agent = await startAgent(join(dir, "node"));
  const uid = await registerNode(controller, agent, "node");

  // The session breaks while a trigger runs; the next proof is delayed until the trigger accompanies it.
  const answer = ping(controller, uid, "127.0.7.6", 5);
  await waitFor("the ping runs", () => pings("127.0.7.6").length > 0);
  let proof: string | undefined;
  relay.passes = (from, text, session) => {
    if (from === "node") return true;
    if (text.includes('"heartbeatSeconds"')) {
      proof = text;
      return false;
    }
    if (proof === undefined) return true;
    session.toNode(proof);
    proof = undefined;
    relay.passes = () => true;
    return true;
  };
  await untilAnotherSession(agent, () => relay.sessions.at(-1)?.cut());
  expect(await answer).toMatchObject({ status: 200, body: { output: { exitCode: "0" } } });
});

test("a newer session of the same node replaces the older one", async () => {
  const { agent, proxy, uid, controller } = await startStage(tempDir());
  // The controller still has the session that the node has lost.
  await proxy.set({ kind: "black-hole", from: "node" });
  const before = (await agent.status()).session.sid;
  await agent.end("SIGKILL");
  await proxy.set({ kind: "pass" });
  const again = await startAgent(join(agent.stateDir, ".."));
  const { session } = await untilOnline(again);
  expect(session.sid).not.toBe(before);
  expect(await ping(controller, uid, "127.0.7.7", 1)).toMatchObject({ status: 200 });
  const { body } = await controller.call("GET", `/node/${uid}`);
  expect(body).toMatchObject({ online: true });
});
