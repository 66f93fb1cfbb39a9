import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { registerOffline } from "../../../src/agent/offline/offline.ts";
import { inNetworkOf, PRIVATE_NETWORK, privateNames } from "../../support/network/private-machine.ts";
import { freePort, startAgent, startController, startProgram } from "../../support/machine/programs.ts";
import { startSilentNameServer } from "../../support/network/silent-name-server.ts";
import { startStage, statusWhere, untilAnotherSession, untilOnline, untilReason, wake } from "../../support/stage.ts";
import { runVerb } from "../../support/run-verb.ts";
import { isDue } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const NAME = "cp.holdfast.test";

test("with the resolver down, the last good address is used, also after a restart; without one an unknown name is the reason", async () => {
  const dir = tempDir();
  const names = privateNames(dir);
  names.setHosts([`127.0.0.1 ${NAME}`]);
  const { agent, proxy } = await startStage(dir, { host: NAME, isTls: true, agent: { within: names.within } });
  expect((await agent.status()).session).toMatchObject({ state: "online", address: "127.0.0.1" });

  names.setHosts([]);
  const { session } = await untilAnotherSession(agent, () => proxy.reset());
  expect(session.address).toBe("127.0.0.1");

  await agent.end();
  const again = await startAgent(join(dir, "node"), { within: names.within });
  await untilOnline(again);

  // A newer answer of the resolver is used.
  names.setHosts([`127.0.0.9 ${NAME}`, `127.0.0.1 ${NAME}`]);
  await untilAnotherSession(again, () => proxy.reset());

  await again.end();
  const addresses = join(dir, "node/state/identity/addresses.json");
  rmSync(addresses);
  names.setHosts([]);
  const unknowing = await startAgent(join(dir, "node"), { within: names.within });
  const { session: refused } = await untilReason(unknowing, ["resolve-failed"]);
  expect(refused.reason?.message).toContain(NAME);
  names.setHosts([`127.0.0.1 ${NAME}`]);
  await untilOnline(unknowing);
  expect(proxy.connections).toBeGreaterThan(0);
  await unknowing.end();

  // A configured address needs no name server.
  rmSync(addresses);
  names.setHosts([]);
  const config = join(dir, "agent.json");
  writeFileSync(config, JSON.stringify({ hosts: { [NAME]: ["127.0.0.1"] } }));
  const set = await startAgent(join(dir, "node"), { within: names.within, more: ["--config", config] });
  await untilOnline(set);
  const { stdout } = await runVerb(["netcheck", "--json", "--run", set.runDir]);
  expect(JSON.parse(stdout)).toMatchObject({
    checks: expect.arrayContaining([
      expect.objectContaining({ check: "dns", status: "pass", message: `${NAME} is 127.0.0.1` }),
    ]) as unknown,
  });
});

/** Messages of getaddrinfo(3) for one name here: A and AAAA, twice each. */
const MESSAGES_A_LOOKUP = 4;

test.runIf(isDue("a silent resolver"))(
  "with a resolver that never answers, the node recovers by itself, without bursts, and can be stopped",
  async () => {
    const dir = tempDir();
    const nameServer = await startSilentNameServer("127.0.53.53");
    const names = privateNames(dir, "127.0.53.53", "timeout:2 attempts:2");
    names.setHosts([`127.0.0.1 ${NAME}`]);
    const { agent, proxy } = await startStage(dir, { host: NAME, isTls: true, agent: { within: names.within } });

    // With a previously working address it reconnects after the resolver's timeout.
    names.setHosts([]);
    await untilAnotherSession(agent, () => proxy.reset());
    expect(nameServer.questions(NAME)).toBeGreaterThan(0);
    await agent.end();

    // Without one it waits for the resolver to know the name.
    const forget = (): void => rmSync(join(dir, "node/state/identity/addresses.json"));
    forget();
    const again = await startAgent(join(dir, "node"), { within: names.within });
    await untilReason(again, ["resolve-failed"]);
    names.setHosts([`127.0.0.1 ${NAME}`]);
    await untilOnline(again);
    await again.end();

    // Many wake-ups meanwhile cause few queries.
    forget();
    names.setHosts([]);
    const before = nameServer.questions(NAME);
    const woken = await startAgent(join(dir, "node"), { within: names.within });
    const { session } = await statusWhere(woken, "the sixth attempt", ({ session: { state, attempt } }) => {
      if (state === "waiting") wake(woken);
      return attempt >= 6;
    });
    expect(session.attempt).toBeLessThan(12);
    expect(nameServer.questions(NAME) - before).toBeLessThan(MESSAGES_A_LOOKUP * 6);

    await statusWhere(woken, "it asks", ({ session: { state } }) => {
      if (state === "waiting") wake(woken);
      return state === "connecting";
    });
    expect(await woken.end()).toBe(0);
  },
);

test("a new address wakes a waiting node at once", async () => {
  const dir = tempDir();
  const port = await freePort();
  const first = await startController(dir, port);
  const license = await first.license("node");
  await registerOffline(join(dir, "node/state"), license, new AbortController().signal);
  await first.end();

  const agent = await startAgent(join(dir, "node"), { within: PRIVATE_NETWORK });
  await untilReason(agent, ["connect-failed"]);
  const inside = inNetworkOf(agent.pid);
  const ip = (...args: string[]): void => {
    execFileSync(inside[0] ?? "", [...inside.slice(1), "ip", ...args]);
  };
  let woken = -1;
  const waiting = await statusWhere(
    agent,
    "the next attempt is far away",
    ({ session: { state, attempt, retryAt = 0 } }) => {
      if (state !== "waiting") return false;
      if (retryAt - Date.now() > 30_000) return true;
      // Each failed attempt delays the next, whatever its cause; one wake-up causes one attempt.
      if (attempt !== woken) wake(agent);
      woken = attempt;
      return false;
    },
  );
  const args = ["controller", "--listen", `127.0.0.1:${port}`, "--data", first.dir];
  const controller = startProgram(args, join(dir, "inside.log"), { within: inside });
  await waitFor("the controller serves", () => controller.log().includes("controller started"));
  expect((await agent.status()).session.attempt).toBe(waiting.session.attempt);

  ip("link", "add", "hf-test0", "type", "veth", "peer", "name", "hf-test1");
  ip("address", "add", "192.0.2.1/24", "dev", "hf-test0");
  const { session } = await untilOnline(agent);
  expect(session.since).toBeLessThan(waiting.session.retryAt ?? 0);
}, 360_000);
