import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { listenForNotices } from "../../support/notices.ts";
import { freePort, registerNode, startAgent, startController, startProgram } from "../../support/machine/programs.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { aClient, aServer, echo } from "../../support/overlay/overlay-rig.ts";
import { waitFor } from "../../support/wait-for.ts";

test("an agent and a controller notify the service manager when they serve, that they run, of their state, and that they stop; no watchdog notification of an agent whose event loop hangs", async () => {
  const dir = tempDir();
  const noticesOf = async (name: string) => {
    const notifySocket = join(dir, name);
    const received = await listenForNotices(notifySocket);
    return { received, env: { ...process.env, NOTIFY_SOCKET: notifySocket, WATCHDOG_USEC: "200000" } };
  };
  const [ofAgent, ofController] = [await noticesOf("agent.sock"), await noticesOf("controller.sock")];
  const { received } = ofAgent;
  const agent = await startAgent(join(dir, "node"), { env: ofAgent.env });
  expect((await received.of(1))[0]).toBe("READY=1\nSTATUS=Not registered");
  await waitFor("signs of life", () => received.all.filter((text) => text.startsWith("WATCHDOG=1\n")).length >= 2);

  const port = await freePort();
  const controller = await startController(dir, port, [], { env: ofController.env });
  const status = `STATUS=Serving http://127.0.0.1:${port}`;
  expect((await ofController.received.of(3)).slice(0, 3)).toEqual([
    `READY=1\n${status}`,
    `WATCHDOG=1\n${status}`,
    `WATCHDOG=1\n${status}`,
  ]);
  await registerNode(controller, agent, "node");
  await waitFor("it reports that it is connected", () =>
    received.all.includes("WATCHDOG=1\nSTATUS=Connected to the control plane"),
  );
  expect(await controller.end()).toBe(0);
  await waitFor("that the controller stops", () => ofController.received.all.at(-1) === "STOPPING=1\nSTATUS=Stopping");
  await waitFor("it lives without its control plane, and says so", () =>
    received.all.some((text) => text.startsWith("WATCHDOG=1\nSTATUS=Serving; no session with the control plane: ")),
  );

  agent.process.kill("SIGSTOP");
  expect(await aWhile(dir)).toBe(0);
  // Notifications from before the stop may still arrive.
  const before = received.all.length;
  await aWhile(dir);
  expect(received.all.length - before).toBeLessThanOrEqual(1);
  agent.process.kill("SIGCONT");
  await received.of(before + 3);
  expect(await agent.end()).toBe(0);
  await waitFor("that it stops", () => received.all.at(-1) === "STOPPING=1\nSTATUS=Stopping");
});

/** Runs another program for some hundred milliseconds, enough for several watchdog notifications. */
async function aWhile(dir: string): Promise<number | null> {
  const { process: child } = startProgram(["version"], join(dir, "version.log"));
  return new Promise((resolve) => child.once("exit", resolve));
}

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
