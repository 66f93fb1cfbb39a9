import { createServer, type Server } from "node:net";
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { ConnectorsReport, ServicesReport, type ConnectorView } from "../../../src/protocol/local/overlay.ts";
import { fileEnd } from "../../support/file-end.ts";
import { endProcess, isServed, startL4Stage, talk, type L4Stage } from "../../support/overlay/l4-stage.ts";
import { aClient, aServer, echo, makeSilent } from "../../support/overlay/overlay-rig.ts";
import { freePort } from "../../support/machine/programs.ts";
import { runVerb } from "../../support/run-verb.ts";
import { UNDER_UNITS } from "../../support/machine/real-units.ts";
import { eventsOf } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const onFinished = fileEnd();
let stage: L4Stage;

/** Each test but the last leaves its node without connectors and services. */
beforeAll(async () => {
  stage = await startL4Stage(tempDir(onFinished), { onFinished });
});

async function connectorsOf({ agent }: L4Stage): Promise<ConnectorsReport & { code: number | null }> {
  const { code, stdout } = await runVerb(["connectors", "--json", "--run", agent.runDir]);
  return { ...ConnectorsReport.parse(JSON.parse(stdout)), code };
}

async function servicesOf({ agent }: L4Stage): Promise<ServicesReport> {
  return ServicesReport.parse(JSON.parse((await runVerb(["services", "--json", "--run", agent.runDir])).stdout));
}

function untilView(stage: L4Stage, id: string, is: (view: ConnectorView) => boolean): Promise<ConnectorView> {
  return waitFor(`the view of ${id}`, async () => {
    const view = (await connectorsOf(stage)).connectors.find((one) => one.id === id);
    return view !== undefined && is(view) ? view : undefined;
  });
}

test("reports what connectors carry and refuse, and what is not served with its reason", async () => {
  // A service manager starts the overlay with the agent, not with the first service.
  const overlay = { state: UNDER_UNITS ? "up" : "off" };
  if (UNDER_UNITS) await waitFor("the overlay is up", async () => (await connectorsOf(stage)).overlay.state === "up");
  expect(await connectorsOf(stage)).toMatchObject({ code: 0, connectors: [], overlay });
  const [port, closed, dead] = [await freePort(), await freePort(), await freePort()];
  const local = { node: "local", protocol: "tcp", localIp: "127.0.0.1" };
  const healthCheck = { interval: 1, failures: 1 };
  await stage.create("services", { name: "web", protocol: "tcp", host: "127.0.0.1", port: await aServer(echo) });
  await stage.create("services", { name: "dead", protocol: "tcp", host: "127.0.0.1", port: dead, healthCheck });
  const web = await stage.create("connectors", { ...local, service: "web", port });
  await untilView(stage, web, ({ state }) => state === "listening");

  const client = aClient(port);
  client.socket.write("twelve bytes");
  const busy = await untilView(stage, web, ({ counters }) => counters?.bytesOut === 12);
  expect(busy).toMatchObject({
    state: "listening",
    listen: { transport: "tcp", port, address: "127.0.0.1", bound: ["127.0.0.1"] },
    destination: { node: "local", service: "web" },
    counters: { flowsActive: 1, flowsTotal: 1, bytesIn: 12, bytesOut: 12, refusals: {}, errors: {} },
  });

  // A forbidden source, and a service that does not answer: the first is counted, the second reported too.
  const shut = await stage.create("connectors", {
    ...local,
    service: "web",
    port: closed,
    sourceBlock: "192.0.2.0/24",
  });
  const lost = await stage.create("connectors", { ...local, service: "dead", port: await freePort() });
  await untilView(stage, shut, ({ state }) => state === "listening");
  aClient(closed).socket.write("?");
  const refusing = await untilView(stage, shut, ({ counters }) => Object.keys(counters?.refusals ?? {}).length > 0);
  expect(refusing.counters).toMatchObject({ flowsTotal: 0, bytesOut: 0, refusals: { "source-not-permitted": 1 } });
  const unanswered = await untilView(stage, lost, ({ reason }) => reason !== undefined);
  expect(unanswered).toMatchObject({ state: "listening", reason: { code: "service-down" } });
  const services = (await servicesOf(stage)).services;
  expect(services).toMatchObject([
    { name: "web", state: "offered", connectors: [web, shut] },
    { name: "dead", state: "offered", health: { state: "down" }, connectors: [lost] },
  ]);
  await waitFor("an event reports it", async () => {
    const events = await eventsOf(stage.controller, stage.uid);
    return events.find(({ message }) => message === "Service dead does not answer its health check and is withdrawn");
  });
  expect((await connectorsOf(stage)).code).toBe(5);
  expect((await stage.agent.status()).engines.overlay).toMatchObject({ state: "up", pid: stage.overlayPid() });

  // When off, nothing is served and nothing is wrong.
  await stage.call("PUT", "", { state: "INACTIVE" });
  await untilView(stage, web, ({ state }) => state === "off");
  const { code, connectors } = await connectorsOf(stage);
  expect({ code, reasons: connectors.map(({ reason }) => reason?.code) }).toEqual({
    code: 0,
    reasons: ["inactive", "inactive", "inactive"],
  });
  await stage.call("PUT", "", { state: "ACTIVE" });
  for (const section of ["connectors", "services"]) await stage.call("DELETE", `config/${section}`);
  await stage.untilNamed({});
});

/** A foreign server, which serves until closed. */
async function aStranger(port: number): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, (socket) => echo(socket.on("error", () => undefined)));
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return server;
}

/** Returns the end of a new connection that sends data. */
async function fateOf(port: number): Promise<string | undefined> {
  const client = aClient(port);
  client.socket.write("?");
  await waitFor("a fate", () => client.fate() !== undefined);
  return client.fate();
}

test("names what one connector lacks, recovers by itself, and the others continue", async () => {
  const ports = await Promise.all(Array.from({ length: 11 }, freePort));
  const [good = 0, taken = 0, loop = 0, shared = 0, down = 0, refused = 0, hung = 0, reset = 0, lost = 0] = ports;
  const [closed = 0, silent = 0] = ports.slice(9);
  const stranger = await aStranger(taken);
  await makeSilent("127.0.0.1", silent);
  const resetting = await aServer((socket) => socket.once("data", () => socket.resetAndDestroy()));
  const check = { interval: 1, failures: 1, successes: 1 };
  // Services in the legacy form, connectors as V2: each section has its own form.
  const service = (name: string, port: number, more = {}) => ({
    id: crypto.randomUUID(),
    name,
    protocol: "tcp",
    host: "127.0.0.1",
    port,
    connectTimeout: 1,
    ...more,
  });
  const services = [
    service("web", await aServer(echo)),
    service("down", closed, { healthCheck: check }),
    service("refused", closed),
    service("hung", silent),
    service("reset", resetting),
    service("files", closed, { protocol: "ftp" }),
  ];
  await stage.call("PUT", "config/services", { services });
  const lo = { localIp: "127.0.0.1" };
  const connect = (port: number, more = {}, at: Readonly<Record<string, string>> = lo): Promise<string> =>
    stage.create("connectors", { node: "local", service: "web", protocol: "tcp", port, ...at, ...more });
  await connect(good);
  await waitFor("the good one serves", () => isServed(good));
  const flow = aClient(good);
  await talk(flow, "before");

  const barred = await connect(taken);
  const looping = await connect(loop, { service: `127.0.0.1:${loop}` });
  const first = await connect(shared);
  const second = await connect(shared, {}, { nic: "lo" });
  await connect(down, { service: "down" });
  await connect(refused, { service: "refused" });
  await connect(hung, { service: "hung" });
  await connect(reset, { service: "reset" });
  const nowhere = await connect(lost, { service: "no-such" });
  const files = await connect(lost, { service: "files", localIp: "127.0.0.2" });
  const elsewhere = await connect(lost, { node: "elsewhere", localIp: "127.0.0.3" });
  const lasting = {
    [`connectors.items.${files}`]: "protocol-mismatch",
    [`connectors.items.${elsewhere}.node`]: "unknown-node",
    [`connectors.items.${nowhere}`]: "unknown-service",
  };
  const faults = {
    ...lasting,
    [`connectors.items.${barred}`]: "address-in-use",
    [`connectors.items.${looping}`]: "loop",
    [`connectors.items.${second}.port`]: "E_PORT_IN_USE",
    "services.services.1": "service-down",
  };
  await stage.untilNamed(faults);
  await stage.untilShadowNames(faults);
  expect(stage.applied()).toMatchObject({
    outcome: "partial",
    sections: { services: { state: "pending" }, connectors: { state: "pending" } },
  });
  expect((await stage.why()).find(({ code }) => code === "address-in-use")?.nextAttempt).toBeGreaterThan(
    Date.now() - 5000,
  );

  // Clients of one that cannot serve are refused at once; the others serve.
  const fates = await Promise.all([loop, down, refused, hung, reset, lost].map(fateOf));
  expect(new Set(fates)).toEqual(new Set(["ECONNRESET"]));
  expect(await isServed(shared)).toBe(true);
  await talk(flow, "between");

  // Each cause ends, without any other action.
  stranger.close();
  await aStranger(closed);
  await stage.call("DELETE", `v2/config/connectors/${looping}`);
  await stage.call("DELETE", `v2/config/connectors/${first}`);
  await stage.untilNamed(lasting);
  for (const port of [taken, shared, down, refused]) expect(await isServed(port)).toBe(true);
  expect(flow.fate()).toBeUndefined();
  await talk(flow, "after");
  for (const section of ["connectors", "services"]) await stage.call("DELETE", `config/${section}`);
  await stage.untilNamed({});
});

test("every verb reports an overlay that hangs or cannot be started", async () => {
  const service = `127.0.0.1:${await aServer(echo)}`;
  const entry = { node: "local", service, protocol: "tcp", port: await freePort(), localIp: "127.0.0.1" };
  const id = await stage.create("connectors", entry);
  await untilView(stage, id, ({ state }) => state === "listening");

  const pid = stage.overlayPid();
  process.kill(pid, "SIGSTOP");
  onTestFinished(() => endProcess(pid));
  const hanging = await connectorsOf(stage);
  expect(hanging).toMatchObject({ code: 5, overlay: { state: "up", reason: "it does not answer" } });
  expect(hanging.connectors[0]?.counters).toBeUndefined();

  const state = join(stage.agent.stateDir, "overlay");
  renameSync(state, `${state}.aside`);
  writeFileSync(state, "");
  process.kill(pid, "SIGKILL");
  await waitFor("the overlay is down", async () => (await stage.agent.status()).engines.overlay?.state === "down");
  const view = await untilView(stage, id, ({ reason }) => reason?.code === "overlay-down");
  expect(view.state).toBe("waiting");
  const { items, verdict } = await stage.agent.health();
  expect(verdict).toBe("failed");
  expect(items.find(({ name }) => name === "overlay")).toMatchObject({ status: "fail" });
  for (const verb of ["status", "health"]) {
    expect((await runVerb([verb, "--run", stage.agent.runDir])).code).toBe(1);
  }
});
