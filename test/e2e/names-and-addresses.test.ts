import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { inNetworkOf, PRIVATE_NETWORK, privateNames } from "../support/private-machine.ts";
import { freePort, registerNode, startAgent, startController, startProgram } from "../support/programs.ts";
import { readStatus, startStage, statusWhere, untilOnline, untilReason, wake } from "../support/stage.ts";
import { tempDir } from "../support/temp-dir.ts";
import { waitFor } from "../support/wait-for.ts";

const NAME = "cp.holdfast.test";

test("with the resolver down, the last good address is used, also after a restart", async () => {
  const dir = tempDir();
  const names = privateNames(dir);
  names.setHosts([`127.0.0.1 ${NAME}`]);
  const { agent, proxy } = await startStage(dir, { host: NAME, isTls: true, agent: { within: names.within } });
  expect((await readStatus(agent)).session).toMatchObject({ state: "online", address: "127.0.0.1" });

  names.setHosts([]);
  proxy.reset();
  await untilReason(agent, ["connection-lost"]);
  wake(agent);
  expect((await untilOnline(agent)).session.address).toBe("127.0.0.1");

  await agent.end();
  const again = await startAgent(join(dir, "node"), { within: names.within });
  await untilOnline(again);

  // Where the resolver knows better, it is heard.
  names.setHosts([`127.0.0.9 ${NAME}`, `127.0.0.1 ${NAME}`]);
  proxy.reset();
  await untilReason(again, ["connection-lost"]);
  wake(again);
  await untilOnline(again);
});

test("a name that nobody knows is named as the reason", async () => {
  const dir = tempDir();
  const names = privateNames(dir);
  names.setHosts([`127.0.0.1 ${NAME}`]);
  const { agent, proxy } = await startStage(dir, { host: NAME, isTls: true, agent: { within: names.within } });
  await agent.end();
  execFileSync("rm", [join(dir, "node/state/identity/addresses.json")]);
  names.setHosts([]);
  const again = await startAgent(join(dir, "node"), { within: names.within });
  const { session } = await untilReason(again, ["resolve-failed"]);
  expect(session.reason?.message).toContain(NAME);
  names.setHosts([`127.0.0.1 ${NAME}`]);
  await untilOnline(again);
  expect(proxy.connections).toBeGreaterThan(0);
});

test("a new address wakes a waiting node at once", async () => {
  const dir = tempDir();
  const port = await freePort();
  const first = await startController(dir, port);
  const before = await startAgent(join(dir, "node"));
  await registerNode(first, before, "node");
  await before.end();
  await first.end();

  const agent = await startAgent(join(dir, "node"), { within: PRIVATE_NETWORK });
  await untilReason(agent, ["connect-failed"]);
  const inside = inNetworkOf(agent.pid);
  const ip = (...args: string[]): void => {
    execFileSync(inside[0] ?? "", [...inside.slice(1), "ip", ...args]);
  };
  const waiting = await statusWhere(
    agent,
    "the next attempt is far away",
    ({ session }) => session.state === "waiting" && (session.retryAt ?? 0) - Date.now() > 12_000,
    120_000,
  );
  const args = ["controller", "--listen", `127.0.0.1:${port}`, "--data", first.dir];
  const controller = startProgram(args, join(dir, "inside.log"), { within: inside });
  await waitFor("the controller serves", () => controller.log().includes("controller started"), 10_000);
  expect((await readStatus(agent)).session.attempt).toBe(waiting.session.attempt);

  ip("link", "add", "hf-test0", "type", "veth", "peer", "name", "hf-test1");
  ip("address", "add", "192.0.2.1/24", "dev", "hf-test0");
  const { session } = await untilOnline(agent, 10_000);
  expect(session.since).toBeLessThan(waiting.session.retryAt ?? 0);
});
