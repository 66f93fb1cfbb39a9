import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { listenForNotices } from "../../support/notices.ts";
import { freePort, registerNode, startAgent, startController, startProgram } from "../../support/machine/programs.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { aClient, aServer, echo } from "../../support/overlay/overlay-rig.ts";
import { waitFor } from "../../support/wait-for.ts";

test("an agent notifies the service manager when it serves, that it runs, of its state, and that it stops", async () => {
  const dir = tempDir();
  const notifySocket = join(dir, "notify");
  const received = await listenForNotices(notifySocket);
  const supervised = { ...process.env, NOTIFY_SOCKET: notifySocket, WATCHDOG_USEC: "1000000" };
  const agent = await startAgent(join(dir, "node"), { env: supervised });
  expect((await received.of(1))[0]).toBe("READY=1\nSTATUS=Not registered");
  await waitFor("signs of life", () => received.all.filter((text) => text.startsWith("WATCHDOG=1\n")).length >= 2);

  const controller = await startController(dir, await freePort());
  await registerNode(controller, agent, "node");
  await waitFor("it reports that it is connected", () =>
    received.all.includes("WATCHDOG=1\nSTATUS=Connected to the control plane"),
  );
  await controller.end("SIGKILL");
  await waitFor("it lives without its control plane, and says so", () =>
    received.all.some((text) => text.startsWith("WATCHDOG=1\nSTATUS=Serving; no session with the control plane: ")),
  );
  expect(await agent.end()).toBe(0);
  await waitFor("that it stops", () => received.all.at(-1) === "STOPPING=1\nSTATUS=Stopping");
});

test("one whose event loop hangs sends no watchdog notification until it continues", async () => {
  const dir = tempDir();
  const notifySocket = join(dir, "notify");
  const received = await listenForNotices(notifySocket);
  const supervised = { ...process.env, NOTIFY_SOCKET: notifySocket, WATCHDOG_USEC: "200000" };
  const agent = await startAgent(join(dir, "node"), { env: supervised });
  await received.of(3);
  agent.process.kill("SIGSTOP");
  const other = await startProgramThatTakesAWhile(dir);
  // Notifications from before the stop may still arrive.
  const before = received.all.length;
  await startProgramThatTakesAWhile(dir);
  expect(received.all.length - before).toBeLessThanOrEqual(1);
  agent.process.kill("SIGCONT");
  await received.of(before + 3);
  expect(other).toBe(0);
});

/** Runs another program for some hundred milliseconds, enough for many watchdog notifications. */
async function startProgramThatTakesAWhile(dir: string): Promise<number | null> {
  const { process: child } = startProgram(["version"], join(dir, "version.log"));
  return new Promise((resolve) => child.once("exit", resolve));
}

test("a controller sends the same notifications", async () => {
  const dir = tempDir();
  const notifySocket = join(dir, "notify");
  const received = await listenForNotices(notifySocket);
  const env = { ...process.env, NOTIFY_SOCKET: notifySocket, WATCHDOG_USEC: "1000000" };
  const port = await freePort();
  const args = ["controller", "--listen", `127.0.0.1:${port}`, "--data", join(dir, "data")];
  const controller = startProgram(args, join(dir, "log"), { env });
  const status = `STATUS=Serving http://127.0.0.1:${port}`;
  expect((await received.of(3)).slice(0, 3)).toEqual([
    `READY=1\n${status}`,
    `WATCHDOG=1\n${status}`,
    `WATCHDOG=1\n${status}`,
  ]);
  expect(await controller.end()).toBe(0);
  await waitFor("that it stops", () => received.all.at(-1) === "STOPPING=1\nSTATUS=Stopping");
});

test("installed as an agent, it does not manage network and containers, and reports why", async () => {
  const dir = tempDir();
  const home = join(dir, "node");
  mkdirSync(home);
  const settings = join(home, "agent.json");
  writeFileSync(settings, '{"profile":"agent"}');
  const controller = await startController(dir, await freePort());
  const agent = await startAgent(home, { more: ["--config", settings] });
  const uid = await registerNode(controller, agent, "laptop");
  const containers = `/v2/node/${uid}/exec/container`;
  const id = "3f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c11";
  const image = { repository: "acme.example/team/api", tag: "1" };
  expect(await controller.call("POST", containers, { id, name: "api", execType: "service", image })).toMatchObject({
    status: 200,
  });
  const network = { interfaces: [{ nic: "hf-none0", ip: "192.0.2.7/24" }] };
  expect(await controller.call("PUT", `/node/${uid}/config/network`, network)).toMatchObject({ status: 200 });
  const why = async (): Promise<string> => {
    const { body } = await controller.call("POST", `/node/${uid}/trigger/why?wait=1`, {});
    return JSON.stringify(body);
  };
  const output = await waitFor("both are unsupported", async () => {
    const text = await why();
    return text.includes('"section":"network"') && text.includes('"section":"exec"') ? text : undefined;
  });
  expect(output).toContain('installed as an agent (\\"profile\\" in agent.json)');
  expect(await controller.call("POST", `/node/${uid}/trigger/node-reboot?wait=1`, {})).toMatchObject({
    status: 422,
    body: ["node-reboot is for appliances; this node is an agent"],
  });

  const [port, gatewayPort] = [await freePort(), await freePort()];
  const service = { name: "echo", protocol: "tcp", host: "127.0.0.1", port: await aServer(echo) };
  const connector = { node: "local", service: "echo", protocol: "tcp", port };
  for (const [section, item] of [
    ["services", service],
    ["connectors", connector],
  ] as const) {
    expect(await controller.call("POST", `/v2/node/${uid}/config/${section}`, item)).toMatchObject({ status: 200 });
  }
  await waitFor("its connector and service work", async () => {
    const client = aClient(port);
    client.socket.end("here");
    await waitFor("an answer or an end", () => client.fate() !== undefined);
    return client.text() === "here";
  });
  const gateway = { enabled: true, type: "public", host: "127.0.0.1", port: gatewayPort };
  expect(await controller.call("PUT", `/node/${uid}/config/gateway`, gateway)).toMatchObject({ status: 200 });
  await waitFor("it is no gateway, and says so", async () => {
    const text = await why();
    return text.includes('"section":"gateway"') && text.includes("agents are no gateways");
  });
  const knock = aClient(gatewayPort);
  await waitFor("nobody listens there", () => knock.fate() === "ECONNREFUSED");
});
