import { cpSync, readdirSync, readFileSync } from "node:fs";
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
import { startWsRelay, type RelayedSession } from "../../support/control-plane/ws-relay.ts";

const Call = z.object({ id: z.number(), method: z.literal("trigger.run"), params: z.object({ jws: z.string() }) });

/** Returns the ping processes with this target, by their command lines. */
function pings(target: string): readonly number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const args = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
        return /(^|\/)ping$/.test(args[0] ?? "") && args.at(-2) === target;
      } catch {
        // It has exited.
        return false;
      }
    });
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

test("a trigger runs once, whatever breaks: its session, the way of its result, the agent", async () => {
  const dir = tempDir();
  const stage = await startStage(dir);
  const { controller, proxy, uid } = stage;
  let { agent } = stage;
  const startAgain = async (): Promise<void> => {
    agent = await startAgent(join(dir, "node"));
  };

  // The session breaks: it is sent again and continues.
  const broken = ping(controller, uid, "127.0.7.1", 50);
  const [first] = await waitFor("the ping runs", () => (pings("127.0.7.1").length > 0 ? pings("127.0.7.1") : false));
  await untilAnotherSession(agent, () => proxy.reset());
  expect(pings("127.0.7.1")).toEqual([first]);
  // It sums up and exits.
  process.kill(first ?? 0, "SIGINT");
  expect(await broken).toMatchObject({ status: 200, body: { output: { exitCode: "0" } } });
  expect(JSON.stringify((await broken).body).match(/icmp_seq=1 /g)).toHaveLength(1);

  // Its result is lost: that is sent again.
  const lost = ping(controller, uid, "127.0.7.2", 3);
  await waitFor("the ping runs", () => pings("127.0.7.2").length > 0);
  await proxy.set({ kind: "refuse" });
  await waitFor("the ping is over", () => pings("127.0.7.2").length === 0);
  await proxy.set({ kind: "pass" });
  wake(agent);
  expect(await lost).toMatchObject({ status: 200, body: { output: { exitCode: "0" } } });

  // The agent is killed, and the controller still has its session: a newer one replaces it, and the trigger is answered interrupted.
  const cutOff = ping(controller, uid, "127.0.7.3", 50);
  const [running] = await waitFor("the ping runs", () => (pings("127.0.7.3").length > 0 ? pings("127.0.7.3") : false));
  await proxy.set({ kind: "black-hole", from: "node" });
  const before = (await agent.status()).session.sid;
  await agent.end("SIGKILL");
  await waitFor("the ping is gone with the agent", () => !pings("127.0.7.3").includes(running ?? 0));
  await proxy.set({ kind: "pass" });
  await startAgain();
  const { status, body } = await cutOff;
  expect(status).toBeGreaterThanOrEqual(400);
  expect(body).toMatchObject({ code: "interrupted" });
  const { session } = await untilOnline(agent);
  expect(session.sid).not.toBe(before);
  expect(pings("127.0.7.3")).toEqual([]);

  // It is answered before a restart and delivered again after it.
  const answered = ping(controller, uid, "127.0.7.4", 2);
  await waitFor("the ping runs", () => pings("127.0.7.4").length > 0);
  await proxy.set({ kind: "refuse" });
  await waitFor("the result is committed", () => runningJournal(agent)[3]?.state === "done");
  await agent.end();
  expect(journal(agent)[3]).toMatchObject({ state: "done" });
  await proxy.set({ kind: "pass" });
  await startAgain();
  expect(await answered).toMatchObject({ status: 200, body: { output: { exitCode: "0" } } });

  expect(await ping(controller, uid, "127.0.7.7", 1)).toMatchObject({ status: 200 });
  expect((await controller.call("GET", `/node/${uid}`)).body).toMatchObject({ online: true });
  await agent.end();
  expect(journal(agent)).toMatchObject([
    { state: "done" },
    { state: "done" },
    {},
    { state: "done" },
    { state: "done" },
  ]);
});

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

test("a captured trigger does nothing in another session, after it ran, or at another node, and one directly after a proof is received", async () => {
  const dir = tempDir();
  const port = await freePort();
  const relay = await startWsRelay(await freePort(), port);
  const controller = await startController(dir, port, ["--url", `http://127.0.0.1:${relay.port}`]);
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
  expect(runningJournal(one)).toHaveLength(1);
  expect(runningJournal(two)).toHaveLength(0);

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
  await untilAnotherSession(one, () => relay.sessions.at(-1)?.cut());
  expect(await answer).toMatchObject({ status: 200, body: { output: { exitCode: "0" } } });
});
