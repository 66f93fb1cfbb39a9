import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { hastened } from "../../support/fake-time.ts";
import { fileEnd } from "../../support/file-end.ts";
import {
  freePort,
  registerNode,
  startAgent,
  startController,
  type ControllerProgram,
} from "../../support/machine/programs.ts";
import { FaultProxy, httpText, type Fault } from "../../support/network/fault-proxy.ts";
import { sampleOf, TESTS_ALL } from "../../support/sample.ts";
import { statusWhere, startStage, untilOnline, untilReason, wake, type Stage } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

interface Case {
  readonly name: string;
  readonly fault: Fault;
  /** Whether open connections are reset when the fault starts. */
  readonly isAbrupt: boolean;
  /** Possible reasons for the lost session, and for the attempts that follow. */
  readonly lost: readonly string[];
  readonly refused: readonly string[];
}

const TOO_SLOW = ["handshake-timeout"];

const CASES: readonly Case[] = [
  { name: "refuse", fault: { kind: "refuse" }, isAbrupt: true, lost: ["connection-lost"], refused: ["connect-failed"] },
  {
    name: "reset in a frame",
    fault: { kind: "cut", afterBytes: 300, by: "reset" },
    isAbrupt: true,
    lost: ["connection-lost"],
    refused: ["connection-lost"],
  },
  {
    name: "end in a frame",
    fault: { kind: "cut", afterBytes: 300, by: "end" },
    isAbrupt: true,
    lost: ["connection-lost"],
    refused: ["connection-lost"],
  },
  { name: "hang", fault: { kind: "hang" }, isAbrupt: true, lost: ["connection-lost"], refused: TOO_SLOW },
  {
    name: "slow",
    fault: { kind: "slow", bytesPerSecond: 20 },
    isAbrupt: true,
    lost: ["connection-lost"],
    refused: TOO_SLOW,
  },
  {
    name: "nothing from the controller",
    fault: { kind: "black-hole", from: "controller" },
    isAbrupt: false,
    lost: ["silent"],
    refused: TOO_SLOW,
  },
  {
    name: "nothing from the node",
    fault: { kind: "black-hole", from: "node" },
    isAbrupt: false,
    lost: ["silent"],
    refused: TOO_SLOW,
  },
  {
    name: "nothing at all",
    fault: { kind: "black-hole", from: "both" },
    isAbrupt: false,
    lost: ["silent"],
    refused: TOO_SLOW,
  },
];

/** Speed of the clocks of agents that detect the fault by time. */
const HASTE = 5;
/** Backoff from the second failure on: two attempts may be close, more may not. */
const MAX_ATTEMPTS_A_MINUTE = 12;

/** Returns the limit of attempts since then, for any duration; `speed` is that of the node's clock. */
function attemptsSince(begunAt: number, speed = 1): number {
  return MAX_ATTEMPTS_A_MINUTE * Math.max(1, (speed * (performance.now() - begunAt)) / 60_000);
}

/** One controller for all nodes, each of which reaches it through a proxy of its own: its name has another address for each. */
const NAME = "cp.localhost";
let dir: string;
let [port, passage] = [0, 0];
let controller: ControllerProgram;
let nodes = 0;
const onFinished = fileEnd();

beforeAll(async () => {
  dir = tempDir(onFinished);
  [port, passage] = [await freePort(), await freePort()];
  controller = await startController(dir, port, ["--url", `http://${NAME}:${passage}`], { onFinished });
});

async function startNode(within: readonly string[] = []): Promise<Pick<Stage, "agent" | "proxy">> {
  const number = (nodes += 1);
  const name = `node-${number}`;
  const home = join(dir, name);
  const address = `127.0.54.${number}`;
  const proxy = await FaultProxy.start(passage, port, address);
  mkdirSync(home);
  const config = join(home, "agent.json");
  writeFileSync(config, JSON.stringify({ hosts: { [NAME]: [address] } }));
  const agent = await startAgent(home, { within, more: ["--config", config] });
  await registerNode(controller, agent, name);
  await untilOnline(agent);
  return { agent, proxy };
}

async function suffer(one: Case, { agent, proxy }: Pick<Stage, "agent" | "proxy">): Promise<void> {
  const { fault, isAbrupt, lost, refused } = one;
  await proxy.set(fault);
  const [begun, begunAt] = [proxy.connections, performance.now()];
  if (isAbrupt) proxy.reset();
  await untilReason(agent, [...lost, ...refused]);
  expect((await agent.health()).verdict).toBe("degraded");
  wake(agent);
  await untilReason(agent, refused);
  const { session } = await agent.status();
  expect(refused).toContain(session.reason?.code);
  const waiting = await statusWhere(agent, "the node waits", (status) => status.session.state === "waiting");
  expect(waiting.session.retryAt).toBeGreaterThanOrEqual(waiting.session.since);
  await proxy.set({ kind: "pass" });
  await untilOnline(agent);
  expect(proxy.connections - begun).toBeLessThan(attemptsSince(begunAt, refusesByTime(one) ? HASTE : 1));
}

/** Whether the agent detects the fault by its clock; such clocks are faster, and the others have all the time of a busy machine. */
const refusesByTime = ({ refused }: Case): boolean => refused === TOO_SLOW;

test("on any fault of the network the node detects it, reports the cause, and recovers by itself", async () => {
  const [first, ...others] = CASES;
  const cases = [...(first === undefined ? [] : [first]), ...sampleOf(others, 2, "faults of the network")];
  const outcomes = await Promise.all(
    cases.map(async (fault) => {
      try {
        await suffer(fault, await startNode(refusesByTime(fault) ? hastened(HASTE) : []));
        return `${fault.name}: fine`;
      } catch (error) {
        return `${fault.name}: ${String(error)}`;
      }
    }),
  );
  expect(outcomes).toEqual(cases.map(({ name }) => `${name}: fine`));
}, 600_000);

interface Wrong {
  readonly name: string;
  readonly text: string;
  readonly says: string;
  readonly waitsMs: number;
}

const ANSWERS: readonly Wrong[] = [
  { name: "429", text: httpText("429 Too Many Requests", { "retry-after": "3" }), says: "HTTP 429", waitsMs: 3000 },
  { name: "401", text: httpText("401 Unauthorized"), says: "HTTP 401", waitsMs: 0 },
  { name: "503", text: httpText("503 Service Unavailable", { "retry-after": "2" }), says: "HTTP 503", waitsMs: 2000 },
  { name: "301", text: httpText("301 Moved", { location: "http://127.0.0.1:1/" }), says: "HTTP 301", waitsMs: 0 },
  {
    name: "HTML",
    text: httpText("200 OK", { "content-type": "text/html" }, "<html><body>Please log in</body></html>"),
    says: "HTTP 200",
    waitsMs: 0,
  },
  { name: "not HTTP", text: "220 mail.example.net ESMTP\r\n", says: "Parse Error", waitsMs: 0 },
];

test("reports a server that is not the controller by its answer, and obeys its Retry-After", async () => {
  const { agent, proxy } = await startNode();
  const [first, ...others] = ANSWERS;
  const answers = [...(first === undefined ? [] : [first]), ...sampleOf(others, 1, "answers of strangers")];
  for (const { name, text, says, waitsMs } of answers) {
    await proxy.set({ kind: "answer", text });
    proxy.reset();
    // The first attempt follows after a random time, and may end before the loss is seen.
    const begun = await untilReason(agent, ["connection-lost", "upgrade-refused"]);
    if (begun.session.reason?.code === "connection-lost") wake(agent);
    const { session } = await untilReason(agent, ["upgrade-refused"]);
    expect(session.reason?.message, name).toContain(says);
    expect((session.retryAt ?? 0) - session.since, name).toBeGreaterThanOrEqual(waitsMs - 5);
    expect(session.attempt - begun.session.attempt, name).toBeLessThanOrEqual(2);
    await proxy.set({ kind: "pass" });
    if (name === "429") await untilOnline(agent);
    wake(agent);
    await untilOnline(agent);
  }
});

if (TESTS_ALL) {
  const STOPPED_MS = 45_000;
  const pass = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

  test("reconnects after a connection that ends at any byte", async () => {
    const { agent, proxy } = await startStage(tempDir());
    for (let bytes = 1; bytes < 2200; bytes += 73) {
      const { session } = await agent.status();
      await proxy.set({ kind: "cut", afterBytes: bytes, by: bytes % 2 === 0 ? "end" : "reset" });
      proxy.reset();
      await statusWhere(agent, "the session ended", (status) => status.session.sid !== session.sid);
      wake(agent);
      await statusWhere(agent, "it was tried", (status) => status.session.attempt > session.attempt);
      await proxy.set({ kind: "pass" });
      await statusWhere(agent, "it is over", ({ session: { state } }) => state === "waiting" || state === "online");
      wake(agent);
      await untilOnline(agent);
    }
  });

  test("an agent that was suspended for a while continues its session", async () => {
    const { agent, controller, proxy, uid } = await startStage(tempDir());
    const [begun, begunAt] = [proxy.connections, performance.now()];
    agent.process.kill("SIGSTOP");
    await pass(STOPPED_MS);
    agent.process.kill("SIGCONT");
    await untilOnline(agent);
    const ping = await controller.call("POST", `/node/${uid}/trigger/tg-ping?wait=1`, { host: "127.0.0.1", count: 1 });
    expect(ping.status).toBe(200);
    expect(proxy.connections - begun).toBeLessThan(attemptsSince(begunAt));
  });

  test("an agent that was suspended until its session was given up opens a new one", async () => {
    const { agent, controller, proxy, uid } = await startStage(tempDir());
    const [begun, begunAt] = [proxy.connections, performance.now()];
    agent.process.kill("SIGSTOP");
    await waitFor("the controller gives up", async () => {
      const { body } = await controller.call("GET", `/node/${uid}`);
      return !(body as { online: boolean }).online;
    });
    agent.process.kill("SIGCONT");
    await untilOnline(agent);
    expect(proxy.connections - begun).toBeLessThan(attemptsSince(begunAt));
  });

  test("a suspended controller is reported as silent, and connected again", async () => {
    const { agent, controller, proxy } = await startStage(tempDir());
    const [begun, begunAt] = [proxy.connections, performance.now()];
    controller.process.kill("SIGSTOP");
    await untilReason(agent, ["silent"]);
    await untilReason(agent, ["handshake-timeout"]);
    controller.process.kill("SIGCONT");
    await untilOnline(agent);
    expect(proxy.connections - begun).toBeLessThan(attemptsSince(begunAt));
  });
}
