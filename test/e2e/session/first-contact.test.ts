import { join } from "node:path";
import { expect, test } from "vitest";
import { hastened } from "../../support/fake-time.ts";
import { freePort, registerNode, startAgent, startController } from "../../support/machine/programs.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

interface EventBody {
  readonly eventType: string;
  readonly timestamp: number;
}

test("two nodes, a restart of the control plane, and nothing is lost", async () => {
  const dir = tempDir();
  const port = await freePort();
  // Reports and attempts take a quarter of the time.
  const within = hastened(4);
  const first = await startController(dir, port);
  const one = await startAgent(join(dir, "one"), { within });
  const two = await startAgent(join(dir, "two"), { within });
  await registerNode(first, one, "one");
  const uid = await registerNode(first, two, "two");

  const ping = await first.call("POST", `/node/${uid}/trigger/tg-ping?wait=1`, { host: "127.0.0.1", count: 2 });
  expect(ping).toMatchObject({ status: 200, body: { output: { exitCode: "0" } } });
  expect(JSON.stringify(ping.body)).toContain("2 received");

  const query = "projection[]=name&projection[0][0]=shadow&projection[0][1]=reported&projection[0][2]=memory";
  const memory = await waitFor("memory is reported", async () => {
    const nodes = (await first.call("GET", `/node?${query}`)).body as { name: string; shadow: object }[];
    const shadow = nodes.find((node) => node.name === "two")?.shadow;
    return shadow !== undefined && JSON.stringify(shadow).includes("memory") ? shadow : undefined;
  });
  expect(memory).toEqual({ reported: { memory: expect.any(Number) as number } });

  await first.end("SIGKILL");
  await waitFor("the node reports it", async () => (await two.status()).session.state === "waiting");
  const health = await two.health();
  expect(health.verdict).toBe("degraded");
  expect(health.items.find(({ name }) => name === "control-plane")?.message).toContain("not connected");

  // Restarting the agent meanwhile creates events that cannot be sent yet.
  await two.end("SIGKILL");
  const again = await startAgent(join(dir, "two"), { within });
  await waitFor("an event waits", async () => ((await again.status()).telemetry["events"]?.queued ?? 0) > 0);

  const second = await startController(dir, port);
  await waitFor("both are online again", async () => {
    const nodes = (await second.call("GET", "/node")).body as { online: boolean }[];
    return nodes.length === 2 && nodes.every(({ online }) => online);
  });
  const events = await waitFor("the event arrived", async () => {
    const { body } = await second.call("GET", `/v2/event/${uid}?limit=100&sort=timestamp:asc`);
    const list = body as EventBody[];
    return list.some(({ eventType }) => eventType === "Node Stop Error") ? list : undefined;
  });
  const times = events.map(({ timestamp }) => timestamp);
  expect(times).toEqual(times.toSorted((a, b) => a - b));
  expect((await again.status()).telemetry["events"]).toMatchObject({ queued: 0, dropped: 0 });
});
