import { createHash } from "node:crypto";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { blockUdp, cut } from "../../../scripts/labs/faults.ts";
import { GATEWAY_PORT } from "../../../scripts/labs/layout.ts";
import { carrierOf, pathsOf, untilAllUp, untilPath } from "../../support/overlay/mesh-paths.ts";
import {
  aTalker,
  connectorsOf,
  ECHO_PORT,
  eventsOf,
  healAfter,
  meshStage,
  startEcho,
  talk,
  type Talker,
  untilOver,
  untilServed,
} from "../../support/overlay/mesh-stage.ts";
import { endUnitsBelow } from "../../support/machine/real-units.ts";
import { waitFor } from "../../support/wait-for.ts";

const echo = { protocol: "tcp", host: "127.0.0.1", port: ECHO_PORT };
const stage = meshStage(async ({ service, connector }) => {
  await service("b", { name: "echo", ...echo });
  await service("b", { name: "echo-udp", ...echo, protocol: "udp" });
  await connector("a", { node: "b", service: "echo", port: 7001 });
  await connector("a", { node: "b", service: "echo-udp", port: 7002, protocol: "udp" });
});

test("a gateway is a destination and a source as any other node", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  await startEcho(lab, "gw1");
  await stage.service("gw1", { name: "at-gateway", ...echo });
  await stage.connector("a", { node: "gw1", service: "at-gateway", port: 7011 });
  await stage.connector("gw1", { node: "b", service: "echo", port: 7012 });
  await stage.connector("b", { node: "a", service: "back", port: 7013 });
  await startEcho(lab, "a");
  await stage.service("a", { name: "back", ...echo });
  for (const [node, port] of [
    ["a", 7011],
    ["gw1", 7012],
    ["b", 7013],
  ] as const) {
    const flow = await untilServed(lab, node, port);
    const text = createHash("sha512").update(node).digest("hex").repeat(4000);
    await talk(flow, text);
    flow.end();
    expect(await untilOver(flow)).toBe("end");
  }
});

test("a client that speaks UDP continues through the other gateway without any action", async () => {
  const { lab } = stage;
  healAfter(lab);
  await untilAllUp(lab, ["a", "b"]);
  const asker = aTalker(lab, "a", 7002, "127.0.0.1", "ask");
  const answers = async (text: string): Promise<void> => {
    await waitFor(`an answer to ${text}`, () => {
      asker.send(text);
      return asker.text().endsWith(text);
    });
  };
  await answers("before");
  cut(lab, await carrierOf(lab, "a"));
  const received = asker.text().length;
  await waitFor("answers come again", () => {
    asker.send("after");
    return asker.text().length > received + 25;
  });
});

test("without any UDP between the sites, flows of TCP and UDP continue, and start, over TCP only", async () => {
  const { lab } = stage;
  healAfter(lab);
  await untilAllUp(lab, ["a", "b"]);
  const flow = await untilServed(lab, "a", 7001);
  const asker = aTalker(lab, "a", 7002, "127.0.0.1", "ask");
  const answers = (asker: Talker, text: string): Promise<unknown> =>
    waitFor(`an answer to ${text}`, () => {
      asker.send(text);
      return asker.text().endsWith(text);
    });
  await answers(asker, "before");
  for (const site of ["a", "b"]) blockUdp(lab, site);
  await talk(flow, "in the middle");
  await answers(asker, "in the middle");
  await lab.restart("overlay", "a");
  await untilServed(lab, "a", 7001);
  await answers(aTalker(lab, "a", 7002, "127.0.0.1", "ask"), "from the start");
});

test("many concurrent clients all get what they sent", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  await untilServed(lab, "a", 7001);
  const clients = Array.from({ length: 16 }, () => aTalker(lab, "a", 7001));
  const texts = clients.map((_, at) => `${at};`.repeat(50_000));
  await Promise.all(clients.map((client, at) => talk(client, texts[at] ?? "")));
  const connector = (await connectorsOf(lab, "a")).find(({ listen }) => listen?.port === 7001);
  expect(connector?.counters?.errors).toEqual({});
  expect(connector?.counters?.flowsActive).toBeGreaterThanOrEqual(16);
});

test("a changed gateway section reaches every affected node, without a restart of an overlay", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  const nodes = ["a", "b", "gw1", "gw2"];
  const before = nodes.map((node) => lab.pidOf(node, "overlay"));
  const gw1 = (changes: Readonly<Record<string, unknown>>): Promise<unknown> => {
    const host = lab.addressOf("gw1");
    return lab.call("PUT", "/node/{gw1}/config/gateway", {
      enabled: true,
      type: "public",
      host,
      port: 8443,
      ...changes,
    });
  };
  const hasPath = async (node: string, to: string): Promise<boolean> =>
    (await pathsOf(lab, node)).some(({ gateway }) => gateway === to);

  await gw1({ type: "private", clients: [{ name: "a", enabled: true }] });
  await waitFor("B knows of one gateway", async () => !(await hasPath("b", "gw1")));
  expect(await hasPath("a", "gw1")).toBe(true);
  await untilPath(lab, "a", "gw1", ({ state }) => state === "up");

  await gw1({ port: 9443 });
  await untilPath(lab, "a", "gw1", ({ state, port }) => state === "up" && port === 9443);
  await untilPath(lab, "b", "gw1", ({ state, port }) => state === "up" && port === 9443);

  await lab.call("PUT", "/node/{b}/config/gateway", { enabled: false, connectToPublic: false });
  await waitFor("B dials nobody", async () => !(await hasPath("b", "gw1")) && !(await hasPath("b", "gw2")));
  await lab.call("DELETE", "/node/{b}/config/gateway");
  await gw1({});
  await untilAllUp(lab, ["a", "b"]);
  expect(nodes.map((node) => lab.pidOf(node, "overlay"))).toEqual(before);
});

test("nodes stop dialling a deleted gateway, and report that it has left the domain", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  const carrier = await carrierOf(lab, "a");
  const flow = await untilServed(lab, "a", 7001);
  await lab.call("DELETE", `/node/{${carrier}}`);
  await untilOver(flow);
  await untilServed(lab, "a", 7001);
  await waitFor("its path is removed", async () =>
    (await pathsOf(lab, "a")).every(({ gateway }) => gateway !== carrier),
  );
  await waitFor("the event", async () =>
    (await eventsOf(lab, "a")).some(({ message }) => message === `Gateway ${carrier} removed from the domain`),
  );
  // It is another node when it returns.
  await lab.endAgent(carrier);
  process.kill(lab.pidOf(carrier, "overlay") ?? process.pid, "SIGKILL");
  endUnitsBelow(join(lab.dir, carrier));
  rmSync(join(lab.dir, carrier), { recursive: true });
  await lab.addNode(carrier);
  await waitFor("it is online", async () => (await lab.nodes()).some((node) => node.name === carrier && node.online));
  const host = lab.addressOf(carrier);
  await lab.call("PUT", `/node/{${carrier}}/config/gateway`, {
    enabled: true,
    type: "public",
    host,
    port: GATEWAY_PORT,
  });
  await untilPath(lab, "a", carrier, ({ state }) => state === "up");
});

test("reaches a destination that was registered again under its old name", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  await lab.call("DELETE", "/node/{b}");
  await lab.endAgent("b");
  const overlay = lab.pidOf("b", "overlay");
  if (overlay === undefined) throw new Error("b has no overlay");
  process.kill(overlay, "SIGKILL");
  endUnitsBelow(join(lab.dir, "b"));
  rmSync(join(lab.dir, "b"), { recursive: true });
  await lab.addNode("b");
  await waitFor("it is online", async () => (await lab.nodes()).some((node) => node.name === "b" && node.online));
  await stage.service("b", { name: "echo", ...echo });
  await untilServed(lab, "a", 7001);
});
