import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { pause, resume } from "../../../scripts/labs/faults.ts";
import {
  aTalker,
  connectorsOf,
  ECHO_PORT,
  flowsOf,
  isServed,
  meshStage,
  talk,
  untilOver,
  untilServed,
} from "../../support/overlay/mesh-stage.ts";
import { waitFor } from "../../support/wait-for.ts";
import type { ConnectorView } from "../../../src/protocol/local/overlay.ts";

const stage = meshStage();
const large = "0123456789abcdef".repeat(64 * 1024);
const echo = { protocol: "tcp", host: "127.0.0.1", port: ECHO_PORT };

async function connectorOn(port: number): Promise<ConnectorView> {
  const found = (await connectorsOf(stage.lab, "a")).find(({ listen }) => listen?.port === port);
  if (found === undefined) throw new Error(`no connector on ${port}`);
  return found;
}

/** Waits until a connector of A has counted a refusal for this reason. */
async function untilRefused(port: number, reason: string): Promise<void> {
  await waitFor(`refused as ${reason}`, async () => {
    expect(await isServed(stage.lab, "a", port)).toBe(false);
    const { counters } = await connectorOn(port);
    return Object.keys(counters?.refusals ?? {}).includes(reason);
  });
}

test("carries TCP and UDP to another site through a gateway, half-closes intact", async () => {
  const { lab } = stage;
  await stage.service("b", { name: "echo", ...echo });
  await stage.service("b", { name: "echo-udp", ...echo, protocol: "udp" });
  await stage.connector("a", { node: "b", service: "echo", port: 7001 });
  await stage.connector("a", { node: "b", service: "echo-udp", port: 7002, protocol: "udp" });
  const flow = await untilServed(lab, "a", 7001);
  await talk(flow, large);
  flow.end();
  expect(await untilOver(flow)).toBe("end");

  const asker = aTalker(lab, "a", 7002, "127.0.0.1", "ask");
  await waitFor("a datagram comes back", () => {
    asker.send("who?");
    return asker.text().startsWith("who?");
  });
});

test("refuses what the destination does not serve with the reason at the source, and counts it", async () => {
  const { lab } = stage;
  await stage.connector("a", { node: "b", service: "nothing-of-the-kind", port: 7011 });
  await untilRefused(7011, "unknown-service");

  await stage.service("b", { name: "closed", ...echo, port: 9 });
  await stage.connector("a", { node: "b", service: "closed", port: 7012 });
  await waitFor("it is refused", async () => {
    expect(await isServed(lab, "a", 7012)).toBe(false);
    const { refusals = {} } = (await connectorOn(7012)).counters ?? {};
    return Object.keys(refusals).some((reason) => reason === "connect-refused" || reason === "service-down");
  });
});

test("refuses what the destination's document does not grant, whatever the source's document has", async () => {
  const { lab } = stage;
  await stage.service("b", { name: "later", ...echo });
  const agent = lab.pidOf("b", "agent");
  expect(agent).toBeDefined();
  process.kill(agent ?? 0, "SIGSTOP");
  try {
    await stage.connector("a", { node: "b", service: "later", port: 7021 });
    await untilRefused(7021, "not-granted");
  } finally {
    process.kill(agent ?? 0, "SIGCONT");
  }
  await untilServed(lab, "a", 7021);
});

test("a revoked grant ends its flows and no other, even when the source has not received the document", async () => {
  const { lab } = stage;
  await stage.service("b", { name: "kept", ...echo });
  await stage.service("b", { name: "taken", ...echo });
  await stage.connector("a", { node: "b", service: "kept", port: 7031 });
  const id = await stage.connector("a", { node: "b", service: "taken", port: 7032 });
  const kept = await untilServed(lab, "a", 7031);
  const taken = await untilServed(lab, "a", 7032);
  const agent = lab.pidOf("a", "agent");
  process.kill(agent ?? 0, "SIGSTOP");
  try {
    await lab.call("DELETE", `/v2/node/{a}/config/connectors/${id}`);
    await untilOver(taken);
    expect(await isServed(lab, "a", 7032)).toBe(false);
    await talk(kept, "still here");
  } finally {
    process.kill(agent ?? 0, "SIGCONT");
  }
  await talk(kept, "and still");
});

test("a service that leads into a connector of its own node is no loop", async () => {
  const { lab } = stage;
  await stage.service("b", { name: "ring", ...echo, port: 7062 });
  await stage.service("a", { name: "ring-back", ...echo, port: 7061 });
  await stage.connector("b", { node: "a", service: "ring-back", port: 7062 });
  await stage.connector("a", { node: "b", service: "ring", port: 7061 });
  await untilRefused(7061, "loop");
  const { counters } = await connectorOn(7061);
  // None arrived, and none looped.
  expect(counters?.flowsTotal).toBe(0);
  const round = (await connectorsOf(lab, "b")).find(({ listen }) => listen?.port === 7062)?.counters;
  expect([round?.flowsTotal ?? 0, round?.refusals ?? {}]).toEqual([0, {}]);
});

test("an inactive destination serves nobody, and everybody again once it is active", async () => {
  const { lab } = stage;
  await stage.service("b", { name: "switched", ...echo });
  await stage.connector("a", { node: "b", service: "switched", port: 7071 });
  const flow = await untilServed(lab, "a", 7071);
  await lab.call("PUT", "/node/{b}", { state: "INACTIVE" });
  await untilOver(flow);
  expect(await isServed(lab, "a", 7071)).toBe(false);
  await lab.call("PUT", "/node/{b}", { state: "ACTIVE" });
  await untilServed(lab, "a", 7071);
});

test("a removed service ends its flows, and the sources get the reason", async () => {
  const { lab } = stage;
  const id = await stage.service("b", { name: "moving", ...echo });
  await stage.connector("a", { node: "b", service: "moving", port: 7041 });
  const flow = await untilServed(lab, "a", 7041);
  await lab.call("DELETE", `/v2/node/{b}/config/services/${id}`);
  await untilOver(flow);
  await untilRefused(7041, "unknown-service");
});

test("a node with stopped programs loses no flow once they continue", async () => {
  const { lab } = stage;
  await stage.service("b", { name: "slow", ...echo });
  await stage.connector("a", { node: "b", service: "slow", port: 7051 });
  const flow = await untilServed(lab, "a", 7051);
  pause(lab, "a");
  flow.send("late");
  const [file = "", ...args] = lab.network.on("a");
  // Bytes in a receive queue: Recv-Q is the first column (ss(8)).
  const sockets = [...args, "ss", "-tnH", "state", "established", "sport = :7051"];
  await waitFor("it waits for the overlay", () => /^\s*[1-9]/m.test(execFileSync(file, sockets, { encoding: "utf8" })));
  resume(lab, "a");
  await waitFor("what was sent meanwhile", () => flow.text().endsWith("late"));
});

test("both sides have recorded every flow of these, with the reason of a refusal", async () => {
  const { lab } = stage;
  const isIt = (record: Readonly<Record<string, unknown>>): boolean => Number(record["sourceBytes"]) > large.length;
  const atSource = await waitFor("the record at A", async () => (await flowsOf(lab, "a")).find(isIt));
  const atDestination = await waitFor("the record at B", async () => (await flowsOf(lab, "b")).find(isIt));
  const { id } = await connectorOn(7001);
  expect(atSource).toMatchObject({ protocol: "TCP", meta: { connector: id, service: "echo" } });
  expect(atDestination).toMatchObject({ destIP: "127.0.0.1", destPort: ECHO_PORT, meta: { service: "echo" } });
  expect(atSource["sourceBytes"]).toBe(atDestination["sourceBytes"]);
  expect(atSource["destBytes"]).toBe(atDestination["destBytes"]);

  for (const [node, service] of [
    ["a", "nothing-of-the-kind"],
    ["b", "nothing-of-the-kind"],
    ["a", "closed"],
    ["b", "closed"],
  ] as const) {
    const record = await waitFor(`the refusal of ${service} in a record of ${node}`, async () =>
      (await flowsOf(lab, node)).find(({ meta }) => (meta as { service?: string }).service === service),
    );
    expect(JSON.stringify(record)).toMatch(/unknown-service|connect-refused|service-down/);
  }
});
