import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { GatewaysReport, PeersReport } from "../../../src/protocol/local/mesh.ts";
import { aClient, aServer, echo } from "../../support/overlay/overlay-rig.ts";
import {
  freePort,
  registerNode,
  startAgent,
  startController,
  type AgentProgram,
} from "../../support/machine/programs.ts";
import { runVerb } from "../../support/run-verb.ts";
import { isDue } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

async function report<T>(agent: AgentProgram, verb: string, schema: { parse(value: unknown): T }): Promise<T> {
  const { stdout } = await runVerb([verb, "--json", "--run", agent.runDir]);
  return schema.parse(JSON.parse(stdout));
}

test.runIf(isDue("a connector to another node without root"))(
  "a connector on one node reaches a service on another through a gateway, and reports when there is no path",
  async () => {
    const dir = tempDir();
    const controller = await startController(dir, await freePort());
    onTestFinished(() => void controller.process.kill("SIGKILL"));
    const nodes = new Map<string, { agent: AgentProgram; uid: string }>();
    await Promise.all(
      ["gw1", "alpha", "beta"].map(async (name) => {
        const agent = await startAgent(join(dir, name));
        nodes.set(name, { agent, uid: await registerNode(controller, agent, name) });
      }),
    );
    const node = (name: string) => {
      const found = nodes.get(name);
      if (found === undefined) throw new Error(`no node ${name}`);
      return found;
    };
    const put = async (name: string, section: string, body: unknown): Promise<void> => {
      const { status, body: answer } = await controller.call("PUT", `/node/${node(name).uid}/config/${section}`, body);
      expect([status, answer], `${name} ${section}`).toEqual([200, answer]);
    };
    const [gatewayPort, listenPort, target] = [await freePort(), await freePort(), await aServer(echo)];
    await put("gw1", "gateway", { enabled: true, type: "public", host: "127.0.0.1", port: gatewayPort });
    await put("beta", "services", {
      services: [{ name: "echo", protocol: "tcp", host: "127.0.0.1", port: target, enabled: true, id: ID }],
    });
    await put("alpha", "connectors", {
      connectors: [
        {
          id: ID,
          node: "beta",
          service: "echo",
          protocol: "tcp",
          port: listenPort,
          localIp: "127.0.0.1",
          enabled: true,
        },
      ],
    });
    const alpha = node("alpha").agent;
    await waitFor("the path is up", async () => (await report(alpha, "gateways", GatewaysReport)).dataPlane === "up");
    const shown = await report(alpha, "gateways", GatewaysReport);
    expect(shown).toMatchObject({
      carrier: { gateway: "gw1", path: "" },
      gateways: [{ name: "gw1", paths: [{ port: gatewayPort }] }],
    });
    await waitFor("it echoes", async () => {
      const client = aClient(listenPort);
      client.socket.write("through");
      await waitFor("an answer", () => client.text() === "through" || client.fate() !== undefined, 5000);
      return client.text() === "through";
    });
    expect(await report(alpha, "peers", PeersReport)).toMatchObject({
      peers: [{ name: "beta", state: "connected", sessions: [{ role: "source", gateway: "gw1" }] }, { name: "gw1" }],
    });
    expect(await report(node("beta").agent, "peers", PeersReport)).toMatchObject({
      peers: [{ name: "alpha", grants: [{ service: "echo", protocol: "tcp" }] }, { name: "gw1" }],
    });

    // The overlay continues without the agent, and the next agent has no steps.
    const held = aClient(listenPort);
    held.socket.write("before");
    await waitFor("an answer", () => held.text() === "before");
    alpha.process.kill("SIGKILL");
    await waitFor("the agent has exited", () => alpha.process.signalCode !== null);
    held.socket.write(" meanwhile");
    await waitFor("an answer", () => held.text() === "before meanwhile");
    const again = await startAgent(join(dir, "alpha"));
    await waitFor(
      "it is carried still",
      async () => (await report(again, "gateways", GatewaysReport)).carrier?.since === shown.carrier?.since,
    );
    expect((await runVerb(["plan", "--run", alpha.runDir])).stdout).toBe("nothing to do\n");
    held.socket.write(" after");
    await waitFor("an answer", () => held.text() === "before meanwhile after");

    await put("gw1", "gateway", { enabled: false });
    await waitFor("no way is left", async () => (await report(alpha, "gateways", GatewaysReport)).dataPlane === "none");
    const { stdout } = await runVerb(["connectors", "--json", "--run", alpha.runDir]);
    expect(stdout).toContain("no-path");
  },
);

const ID = "0197f1a2-0000-7000-8000-000000000001";
