import { expect, test } from "vitest";
import { cut } from "../../../scripts/labs/faults.ts";
import { carrierOf, pathsOf, peerOf, untilAllUp } from "../../support/overlay/mesh-paths.ts";
import {
  ECHO_PORT,
  healAfter,
  isServed,
  meshStage,
  talk,
  untilOver,
  untilServed,
} from "../../support/overlay/mesh-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const PORT = 7001;
const stage = meshStage(async ({ service, connector }) => {
  await service("b", { name: "echo", protocol: "tcp", host: "127.0.0.1", port: ECHO_PORT });
  await connector("a", { node: "b", service: "echo", port: PORT });
});

test("no restart of a killed agent or controller cuts a flow", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  const flow = await untilServed(lab, "a", PORT);
  for (const node of ["a", "b", "gw1", "gw2"]) {
    const overlay = lab.pidOf(node, "overlay");
    await lab.restart("agent", node, "SIGKILL");
    await talk(flow, `${node} is back `);
    expect(lab.pidOf(node, "overlay")).toBe(overlay);
  }
  await lab.restart("controller", "controller");
  await talk(flow, "the controller too");
  // Their attempts would be spread over seconds.
  for (const node of ["a", "b", "gw1", "gw2"]) process.kill(lab.pidOf(node, "agent") ?? 0, "SIGHUP");
  await waitFor("every node is online again", async () => (await lab.nodes()).every(({ online }) => online));
  await talk(flow, "and they took it up as it was");
  await untilAllUp(lab, ["a", "b"]);
});

test("upgrading overlays cuts no flow, at the source, the destination or the gateway", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  const flows = [await untilServed(lab, "a", PORT)];
  for (const node of [await carrierOf(lab, "a"), "b", "a"]) {
    await lab.upgrade(node);
    for (const flow of flows) await talk(flow, `${node} is upgraded `);
    flows.push(await untilServed(lab, "a", PORT));
  }
  await untilAllUp(lab, ["a", "b"]);
  for (const flow of flows) {
    await talk(flow, "to the end");
    flow.end();
    expect(await untilOver(flow)).toBe("end");
  }
});

test("without any control plane the tunnels stay, and new flows pass", async () => {
  const { lab } = stage;
  healAfter(lab);
  const flow = await untilServed(lab, "a", PORT);
  cut(lab, "controller");
  await talk(flow, "old");
  await untilServed(lab, "a", PORT);
});

test("a killed overlay of a destination ends its flows, and is reached again", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  const flow = await untilServed(lab, "a", PORT);
  await lab.restart("overlay", "b");
  expect(["ECONNRESET", "end"]).toContain(await untilOver(flow));
  await untilServed(lab, "a", PORT);
});

test("a deleted node loses its sessions and its flows, and is served by none", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  const flow = await untilServed(lab, "a", PORT);
  const carrier = await carrierOf(lab, "a");
  await lab.call("DELETE", "/node/{b}");
  await untilOver(flow);
  expect(await isServed(lab, "a", PORT)).toBe(false);
  await waitFor("the gateway has no session of it", async () => (await peerOf(lab, carrier, "b")) === undefined);
  expect((await pathsOf(lab, "a")).every(({ state }) => state === "up")).toBe(true);
});
