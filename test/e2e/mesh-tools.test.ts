import { expect, test } from "vitest";
import { cut } from "../../scripts/labs/faults.ts";
import { carrierOf, untilAllUp, untilPath } from "../support/mesh-paths.ts";
import { ECHO_PORT, healAfter, meshStage } from "../support/mesh-stage.ts";
import { waitFor } from "../support/wait-for.ts";

const stage = meshStage(async ({ service, connector }) => {
  await service("b", { name: "echo", protocol: "tcp", host: "127.0.0.1", port: ECHO_PORT });
  // Whoever has nothing to do with another node does not know it.
  await connector("a", { node: "b", service: "echo", port: 7001 });
});

/** What a trigger event of node A printed and answered. */
function trigger(event: string, body: unknown): Promise<string> {
  return stage.lab.call("POST", `/node/{a}/trigger/${event}?wait=1`, body).then((answer) => JSON.stringify(answer));
}

test("a node is pinged through the tunnel, from the command line and by trigger events, and they say which path answered", async () => {
  const { lab } = stage;
  healAfter(lab);
  await untilAllUp(lab, ["a", "b"]);
  const carrier = await carrierOf(lab, "a");
  const other = carrier === "gw1" ? "gw2" : "gw1";
  expect(await lab.holdfast("a", "ping", "b", "--count", "2")).toMatch(
    new RegExp(`from b\\.lab\\.example: seq=1 time=[\\d.]+ ms by ${carrier}[^]*2 answered, 0% lost`),
  );
  expect(await trigger("gateway-ping", { dest: "b", count: 2, interval: 1 })).toContain(`by ${carrier}`);
  expect(await trigger("tg-ping", { host: "b.lab.example" })).toContain(carrier);
  expect(await trigger("gateway-perf", { dest: "b", bytes: 1_000_000 })).toMatch(/1000000|Mb|succeeded/);
  cut(lab, carrier);
  await untilPath(lab, "a", carrier, ({ state }) => state !== "up");
  expect(await lab.holdfast("a", "ping", "b", "--count", "1")).toContain(`by ${other}`);
  await expect(lab.holdfast("a", "ping", "nobody", "--count", "1")).rejects.toThrow(/nobody/);
});

test("gateway-routes lists every way with its gateway, connected or not", async () => {
  const { lab } = stage;
  healAfter(lab);
  await untilAllUp(lab, ["a", "b"]);
  const { output } = JSON.parse(await trigger("gateway-routes", {})) as { output: Record<string, unknown> };
  expect(output).toMatchObject({ available: 2, connected: 2, domains: [{ name: "lab.example" }] });
  cut(lab, "gw2");
  await untilPath(lab, "a", "gw2", ({ state }) => state !== "up");
  const { output: after } = JSON.parse(await trigger("gateway-routes", {})) as { output: Record<string, unknown> };
  expect(after).toMatchObject({ available: 2, connected: 1 });
  expect(JSON.stringify(after)).toMatch(/"name":"gw2"[^}]*"connected":false|"connected":false[^}]*"name":"gw2"/);
});

test("a changed gateway section reaches every node it concerns, and no overlay is started anew for it", async () => {
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
  const hasPath = (node: string, gateway: string): Promise<boolean> =>
    lab.holdfast(node, "gateways").then(
      (text) => text.includes(`${gateway}.`),
      (error: Error) => error.message.includes(`${gateway}.`),
    );

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
