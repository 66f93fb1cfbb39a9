import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { gatewaysOf } from "../../../scripts/labs/ask-agent.ts";
import { cut, drop, heal, pause, roam } from "../../../scripts/labs/faults.ts";
import { GATEWAY_PORT } from "../../../scripts/labs/layout.ts";
import { carrierOf, pathsOf, peerOf, untilAllUp, untilPath } from "../../support/overlay/mesh-paths.ts";
import {
  ECHO_PORT,
  healAfter,
  isServed,
  knock,
  meshStage,
  talk,
  untilOver,
  untilServed,
  type Talker,
} from "../../support/overlay/mesh-stage.ts";
import { shifted } from "../../support/fake-time.ts";
import { sampleOf } from "../../support/sample.ts";
import { waitFor } from "../../support/wait-for.ts";

const PORT = 7001;
const stage = meshStage(async ({ service, connector }) => {
  await service("b", { name: "echo", protocol: "tcp", host: "127.0.0.1", port: ECHO_PORT });
  await connector("a", { node: "b", service: "echo", port: PORT });
});

interface Flow {
  readonly flow: Talker;
  /** The gateway that carries it, and the other one. */
  readonly carrier: string;
  readonly other: string;
}

/** A flow from A to B while everything is up. */
async function aFlow(): Promise<Flow> {
  const { lab } = stage;
  healAfter(lab);
  await untilAllUp(lab, ["a", "b"]);
  const flow = await untilServed(lab, "a", PORT);
  const carrier = await carrierOf(lab, "a");
  return { flow, carrier, other: carrier === "gw1" ? "gw2" : "gw1" };
}

/** Waits for the end of the flow, and for another one during the fault. */
async function untilAnother({ flow }: Flow): Promise<Talker> {
  expect(["ECONNRESET", "end"]).toContain(await untilOver(flow));
  return untilServed(stage.lab, "a", PORT);
}

test("both gateways are connected at once, and either carries", async () => {
  const { lab } = stage;
  let now = await aFlow();
  expect((await pathsOf(lab, "a")).map(({ gateway }) => gateway).sort()).toEqual(["gw1", "gw2"]);
  for (const gateway of ["gw1", "gw2"]) {
    cut(lab, gateway);
    if (gateway === now.carrier) await untilAnother(now);
    else await talk(now.flow, "untouched");
    await untilPath(lab, "a", gateway, ({ state }) => state !== "up");
    expect(await carrierOf(lab, "a")).not.toBe(gateway);
    await heal(lab);
    now = await aFlow();
  }
});

test("unauthenticated clients of a gateway get nothing, and are counted", async () => {
  const { lab } = stage;
  const { carrier, flow } = await aFlow();
  const refusals = async (): Promise<number> => {
    const { server } = await gatewaysOf(lab, carrier);
    return Object.values(server?.refused ?? {}).reduce((sum, count) => sum + count, 0);
  };
  const before = await refusals();
  for (const alpn of ["h2", "holdfast-h2r", "http/1.1", ""]) {
    expect(knock(lab, "a", lab.addressOf(carrier), GATEWAY_PORT, alpn)).toBe("");
  }
  await waitFor("each is counted", async () => (await refusals()) >= before + 4);
  await talk(flow, "untouched");
});

/** Faults of gateways and of the paths to them; the tests are a sample. */
const FAULTS: Readonly<Record<string, () => Promise<void>>> = {
  "leaves a gateway that accepts and stays silent, and uses it again when it answers": async () => {
    const { lab } = stage;
    const now = await aFlow();
    pause(lab, now.carrier);
    const next = await untilAnother(now);
    const { reason } = await untilPath(lab, "a", now.carrier, ({ state }) => state !== "up");
    expect(reason).toBeTruthy();
    await talk(next, "through the other");
    await heal(lab);
    await untilAllUp(lab, ["a", "b"]);
  },
  "with everything lost in one direction (in), no path stays up, and all recover": () => lost("in"),
  "with everything lost in one direction (out), no path stays up, and all recover": () => lost("out"),
  "skips a gateway that the destination does not reach, though the source does": async () => {
    const { lab } = stage;
    const now = await aFlow();
    const address = lab.addressOf(now.carrier);
    const rule = ["nft", "add", "rule", "inet", "lab", "leaving", "ip", "daddr", address, "drop"];
    execFileSync("ip", [...lab.network.on("site-b").slice(1), ...rule]);
    await untilPath(lab, "b", now.carrier, ({ state }) => state !== "up");
    expect((await pathsOf(lab, "a")).every(({ state }) => state === "up")).toBe(true);
    await untilAnother(now);
  },
  "an edge with a changed public address abandons half-open tunnels, and continues on new ones": async () => {
    const { lab } = stage;
    const now = await aFlow();
    const address = roam(lab, "a");
    await untilAnother(now);
    await untilAllUp(lab, ["a", "b"]);
    await waitFor("the gateway has it from there", async () => {
      const peer = await peerOf(lab, now.carrier, "a");
      return peer?.client?.remote?.ip === address;
    });
  },
  "a restarted gateway has its paths again": async () => {
    const { lab } = stage;
    const now = await aFlow();
    await lab.restart("overlay", now.carrier);
    await untilAnother(now);
    await untilAllUp(lab, ["a", "b"]);
  },
  "dials a gateway that moved at its new address": async () => {
    const { lab } = stage;
    const now = await aFlow();
    const host = roam(lab, now.carrier);
    const next = await untilAnother(now);
    await lab.call("PUT", `/node/{${now.carrier}}/config/gateway`, {
      enabled: true,
      type: "public",
      host,
      port: GATEWAY_PORT,
    });
    await untilPath(lab, "a", now.carrier, ({ state, remote }) => state === "up" && remote?.ip === host);
    await untilPath(lab, "b", now.carrier, ({ state, remote }) => state === "up" && remote?.ip === host);
    await talk(next, "untouched by it");
  },
  "a gateway whose clock is wrong by years serves like any other": async () => {
    const { lab } = stage;
    const now = await aFlow();
    await lab.endAgent(now.carrier);
    const [overlay] = [lab.pidOf(now.carrier, "overlay")];
    process.kill(overlay ?? 0, "SIGKILL");
    await waitFor("its overlay has ended", () => lab.pidOf(now.carrier, "overlay") === undefined);
    await lab.startAgent(now.carrier, shifted("+900d"));
    await untilAnother(now);
    await untilAllUp(lab, ["a", "b"]);
    cut(lab, now.other);
    await waitFor(`${now.carrier} carries`, async () => (await carrierOf(lab, "a")) === now.carrier);
    await untilServed(lab, "a", PORT);
  },
  // The last one: for a while after it the path that carries may change.
  "with a fifth of all packets lost in both directions, flows pass": async () => {
    const { lab } = stage;
    const now = await aFlow();
    drop(lab, "a", 20, "both");
    for (let i = 0; i < 5; i += 1) {
      const flow = await untilServed(lab, "a", PORT);
      flow.send("x".repeat(100_000));
      await waitFor("all of it, or an end", () => flow.text().length >= 100_000 || flow.fate() !== undefined);
    }
    now.flow.kill();
  },
};

test.each(sampleOf(Object.entries(FAULTS), 2, "faults of gateways"))("%s", (_, suffer) => suffer());

async function lost(way: "in" | "out"): Promise<void> {
  const { lab } = stage;
  const now = await aFlow();
  drop(lab, "a", 100, way);
  await untilPath(lab, "a", now.carrier, ({ state }) => state !== "up");
  await untilPath(lab, "a", now.other, ({ state }) => state !== "up");
  await untilOver(now.flow);
  await heal(lab);
  await untilAllUp(lab, ["a", "b"]);
  await untilServed(lab, "a", PORT);
}

test("no restart of a killed agent or controller cuts a flow", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  const flow = await untilServed(lab, "a", PORT);
  for (const node of sampleOf(["a", "b", "gw1", "gw2"], 2, "killed agents")) {
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

// The last one, since it leaves the lab without B.
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
