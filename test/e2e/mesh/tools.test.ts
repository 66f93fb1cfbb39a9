import { expect, test } from "vitest";
import { cut } from "../../../scripts/labs/faults.ts";
import type { Lab } from "../../../scripts/labs/lab.ts";
import { NetworkReport } from "../../../src/cli/netcheck/result.ts";
import { carrierOf, untilAllUp } from "../../support/overlay/mesh-paths.ts";
import { ECHO_PORT, healAfter, meshStage } from "../../support/overlay/mesh-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const stage = meshStage(async ({ service, connector }) => {
  await service("b", { name: "echo", protocol: "tcp", host: "127.0.0.1", port: ECHO_PORT });
  await connector("a", { node: "b", service: "echo", port: 7001 });
});

/** Returns the answer of a node's event to a waiting caller. */
async function triggered(lab: Lab, node: string, event: string, body: unknown): Promise<unknown> {
  return lab.call("POST", `/node/{${node}}/trigger/${event}?wait=1`, body);
}

const messageOf = (answer: unknown): string => (answer as { output: { message: string } }).output.message;

test("pings and traces another node through the tunnel, and names the path", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  const carrier = await carrierOf(lab, "a");
  const pinged = await lab.holdfast("a", "ping", "-c", "2", "b");
  expect(pinged).toMatch(new RegExp(`seq=1 time=[\\d.]+ ms by ${carrier}\\.lab\\.example \\(default path\\)`));
  expect(pinged).toContain("2 sent, 2 answered, 0% lost");
  expect(messageOf(await triggered(lab, "a", "tg-ping", { host: "b", count: 1 }))).toContain(
    `by ${carrier}.lab.example, default path`,
  );
  const hops = messageOf(await triggered(lab, "a", "tg-traceroute", { host: "b.lab.example" })).split("\n");
  expect(hops[1]).toMatch(
    new RegExp(`^ 1 {2}${carrier}\\.lab\\.example \\(default path, [\\d.]+:\\d+\\)( {2}[\\d.]+ ms){3}$`),
  );
  expect(hops[2]).toMatch(/^ 2 {2}b\.lab\.example( {2}[\d.]+ ms){3}$/);
  // The gateway reaches its clients, and both list each other.
  expect(messageOf(await triggered(lab, carrier, "gateway-ping", { dest: "a", interval: 1, count: 1 }))).toContain(
    "64 bytes from a.lab.example: seq=0  time=",
  );
  expect(messageOf(await triggered(lab, "a", "gateway-perf", { dest: "b", bytes: 3_000_000 }))).toMatch(
    /^Sending 3000000 bytes to b\.lab\.example\n\.\.\.\nby .*\n3000000 bytes in \d+\.\d{3} seconds, rate=[\d.]+ Mbps\n$/,
  );
  const { output } = (await triggered(lab, "a", "gateway-routes", {})) as { output: Record<string, unknown> };
  expect(output).toMatchObject({ available: 2, connected: 2, domains: [{ name: "lab.example" }] });
  const listed = await triggered(lab, carrier, "gateway-routes", {});
  expect(JSON.stringify(listed)).toContain('"name":"a"');
});

test("netcheck passes, and names the lost gateway while ping continues through the other", async () => {
  const { lab } = stage;
  healAfter(lab);
  await untilAllUp(lab, ["a", "b"]);
  expect(await lab.holdfast("a", "netcheck")).toMatch(/PASS tls +it has the gateway's key[^]*no check failed\n$/);
  const carrier = await carrierOf(lab, "a");
  cut(lab, carrier);
  const other = carrier === "gw1" ? "gw2" : "gw1";
  await waitFor("the other gateway answers for b", async () =>
    (await lab.holdfast("a", "ping", "-c", "1", "b").catch(() => "")).includes(`by ${other}.lab.example`),
  );
  await waitFor("the path is known to be down", async () => {
    const checked = await lab.holdfast("a", "netcheck", "--json").catch(String);
    const { checks } = NetworkReport.parse(JSON.parse(/\{.*\}/.exec(checked)?.[0] ?? "{}"));
    const failures = checks.filter(({ status }) => status === "fail");
    expect(failures.every(({ name }) => name === `${carrier}.lab.example`)).toBe(true);
    return failures.map(({ check }) => check).join() === "tcp,tunnel";
  });
});
