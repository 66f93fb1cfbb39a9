// What the lab has when it comes up: gateways that serve, a web server on site B, and a connector on site A that leads to it.
import { join } from "node:path";
import { CONNECTOR_PORT, GATEWAY_PORT, privateAddressOf, siteOf, WEB_PORT } from "./layout.ts";
import { untilTunnel } from "./ask-agent.ts";
import type { Lab } from "./lab.ts";
import { startAside } from "./programs.ts";
import { gatewaysOf } from "./rules.ts";
import { LabError, runAside, until } from "./shell.ts";

const WEB_PROGRAM = join(import.meta.dirname, "web-program.ts");

/**
 * Makes gateways of the public nodes that are to be such, one after the other, through the API: who is up first carries, as long as
 * none is clearly better. With `tracesHops` they ask their clients to trace the way to them.
 */
export async function openGateways(lab: Lab, tracesHops = false): Promise<void> {
  for (const { name } of gatewaysOf(lab.state)) {
    const section = { enabled: true, type: "public", host: lab.addressOf(name), port: GATEWAY_PORT };
    const hops = tracesHops ? { requestClientsMonitorHops: true } : {};
    await lab.call("PUT", `/node/{${name}}/config/gateway`, { ...section, ...hops });
    for (const { edge } of lab.state.layout.sites) await untilTunnel(lab, edge, name);
  }
}

/** Starts the web server of a host, and waits until it answers. */
export async function startWeb(lab: Lab, host: string): Promise<void> {
  startAside(lab.network.on(host), [process.execPath, WEB_PROGRAM, String(WEB_PORT)], join(lab.dir, host, "web.log"));
  const url = `http://127.0.0.1:${WEB_PORT}/`;
  await until("the web server answers", () => runAside([...lab.network.on(host), "curl", "-sf", url]));
}

/** A service of one edge on a machine of its site, and a connector of another that leads there. */
export async function connectSites(lab: Lab, from: string, to: string, host: string): Promise<void> {
  const site = siteOf(lab.state.layout, host);
  if (site === undefined) throw new LabError(`${host} is at no site`);
  const service = { name: "web", protocol: "tcp", host: privateAddressOf(site, host), port: WEB_PORT };
  await lab.call("POST", `/v2/node/{${to}}/config/services`, service);
  const connector = { node: to, service: "web", protocol: "tcp", port: CONNECTOR_PORT };
  await lab.call("POST", `/v2/node/{${from}}/config/connectors`, connector);
}
