import { expect, test } from "vitest";
import { gatewaysOf } from "../../../scripts/labs/ask-agent.ts";
import { cut, heal } from "../../../scripts/labs/faults.ts";
import { openGateways } from "../../../scripts/labs/furnish.ts";
import { GATEWAY_PORT } from "../../../scripts/labs/layout.ts";
import type { EdgeMachine } from "../../support/network/edge-machine.ts";
import { hastened } from "../../support/fake-time.ts";
import { ECHO_PORT, healAfter, startEcho, talk, untilServed } from "../../support/overlay/mesh-stage.ts";
import { differences } from "../../support/network/machine-state.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { isDue } from "../../support/sample.ts";
import { waitFor } from "../../support/wait-for.ts";

const PORT = 7001;
/** The second provider: its end of the line, and the router that A's second WAN leads to. */
const [PROVIDER, UPLINK] = ["198.51.100.241", "198.51.100.242"];
const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };
const second = (ip: string) => ({
  interfaces: [
    { ...WAN, dns: ["192.168.1.1"] },
    { nic: "eth1", ip: `${ip}/24`, gateway: "10.9.0.2" },
  ],
});
const stage = networkStage({ a: [], b: [] }, { gateways: ["gw1"] });

/** Makes the host on the second interface of a machine the router of another provider. */
function secondProvider(machine: EdgeMachine): void {
  const [internet, lan] = [machine.lab.network.on("internet").at(-1) ?? "", machine.lan.at(-1) ?? ""];
  machine.sh(
    `ip link add name second netns ${internet} type veth peer name wan netns ${lan}
    ip -n ${internet} address add ${PROVIDER}/30 dev second && ip -n ${internet} link set second up
    ip -n ${lan} address add ${UPLINK}/30 dev wan && ip -n ${lan} link set wan up
    ip -n ${lan} route replace default via ${PROVIDER}`,
    ["env"],
  );
  machine.sh("echo 1 >/proc/sys/net/ipv4/ip_forward", machine.lan);
  machine.sh(
    "nft 'table ip wan { chain nat { type nat hook postrouting priority srcnat; oifname wan masquerade; }; }'",
    machine.lan,
  );
}

const pathOf = async (id: string) =>
  (await gatewaysOf(stage.lab, "a")).gateways.flatMap(({ paths }) => paths).find((path) => path.id === id);
const untilState = (id: string, isUp: boolean): Promise<unknown> =>
  waitFor(
    `path "${id}" is ${isUp ? "" : "not "}up`,
    async () => ((await pathOf(id))?.state === "up") === isUp,
    120_000,
  );
const untilCarries = (id: string): Promise<unknown> =>
  waitFor(`path "${id}" carries`, async () => (await gatewaysOf(stage.lab, "a")).carrier?.path === id, 120_000);

test("a change is confirmed when control plane and gateway are reached, and persists", async () => {
  const machine = stage.machine("a");
  const begun = machine.state();
  // A second path out, which the site's router has too.
  machine.sh("ip address add 192.168.1.254/24 dev lan", machine.router);
  await machine.apply({ ...lanSection({ ...WAN, gateway: "192.168.1.254", addIps: ["192.168.1.20/24"] }) });
  const good = machine.state();
  const change = differences(begun, good).join("\n");
  expect(change).toMatch(/routes: \+ .*gateway=192\.168\.1\.254/);
  expect(machine.sh("ip route get 203.0.113.10")).toContain("via 192.168.1.254");
  expect((await machine.reported())["document.node.refused"]).toBeUndefined();

  await machine.lab.restart("agent", "a", "SIGKILL");
  await machine.untilOnline();
  expect(differences(good, machine.state())).toEqual([]);
});

test("a control plane that restarts at the wrong moment does not make the node refuse a good change indefinitely", async () => {
  const machine = stage.machine("a");
  const { documents } = await machine.status();
  await machine.put(lanSection({ ...WAN, addIps: ["192.168.1.30/24"] }));
  await waitFor(
    "the node has the document",
    async () => (await machine.status()).documents.node?.version !== documents.node?.version,
  );
  await machine.lab.restart("controller", "controller", "SIGKILL");
  await machine.untilSettled((documents.node?.version ?? 0) + 1);
  expect(machine.paths().addresses.join("\n")).toContain("192.168.1.30");
  expect((await machine.status()).documents.node?.refused).toBeUndefined();
});

/** Gives A a second path, from this address. */
function setLocal(address: string): Promise<unknown> {
  const path = { id: "second", node: "gw1", host: stage.lab.addressOf("gw1"), port: GATEWAY_PORT, local: address };
  return stage.lab.call("PUT", "/node/{a}/config/gateway", { enabled: false, paths: [path] });
}
const dialled = (): string => stage.machine("a").sh(`ss -Htn state established dport = :${GATEWAY_PORT}`);
const through = (address: string): string =>
  stage.machine("a").sh(`ip -4 route get ${stage.lab.addressOf("gw1")} from ${address}`);

// The tests after it have both paths.
test("a path leaves by the interface of its local address, and carries when the other WAN is cut", async () => {
  const { lab } = stage;
  healAfter(lab);
  await openGateways(lab, true);
  const machine = stage.machine("a");
  secondProvider(machine);
  await machine.apply(second("10.9.0.1"));
  await startEcho(lab, "b");
  await lab.call("POST", "/v2/node/{b}/config/services", {
    name: "echo",
    protocol: "tcp",
    host: "127.0.0.1",
    port: ECHO_PORT,
  });
  await lab.call("POST", "/v2/node/{a}/config/connectors", { node: "b", service: "echo", protocol: "tcp", port: PORT });
  await setLocal("10.9.0.1");
  await untilState("", true);
  await untilState("second", true);
  expect(through("10.9.0.1")).toContain("via 10.9.0.2 dev eth1");
  expect(through("192.168.1.2")).toContain("dev eth0");
  expect(dialled()).toContain("10.9.0.1:");
  // The route of the subnet goes first.
  expect(machine.sh("ip -4 route get 192.168.1.1 from 10.9.0.1")).toContain("dev eth0");
  await untilServed(lab, "a", PORT);

  cut(lab, "a");
  await untilState("", false);
  await untilCarries("second");
  const flow = await untilServed(lab, "a", PORT, 120_000);
  await heal(lab);
  await untilState("", true);
  await machine.untilOnline();
  await talk(flow, "still over the second WAN");

  machine.sh("ip link set wan down", machine.lan);
  await untilState("second", false);
  await untilCarries("");
  await untilServed(lab, "a", PORT, 120_000);
  machine.sh(`ip link set wan up && ip route replace default via ${PROVIDER}`, machine.lan);
  await untilState("second", true);
}, 600_000);

test.runIf(isDue("a changed address of a path"))(
  "a path follows its changed address",
  async () => {
    const { lab } = stage;
    healAfter(lab);
    const machine = stage.machine("a");
    await machine.apply(second("10.9.0.7"));
    await setLocal("10.9.0.7");
    await waitFor("the path leaves from its new address", () => dialled().includes("10.9.0.7:"), 120_000);
    expect(through("10.9.0.7")).toContain("via 10.9.0.2 dev eth1");
    expect(machine.sh("ip -4 rule show")).not.toContain("10.9.0.1 ");
    cut(lab, "a");
    await untilCarries("second");
    await untilServed(lab, "a", PORT, 120_000);
  },
  600_000,
);

test.runIf(isDue("hops of two WANs"))(
  "the control plane has the hops of both paths",
  async () => {
    const { lab } = stage;
    const machine = stage.machine("a");
    // Hops are reported once a minute.
    await lab.endAgent("a");
    await lab.kill("overlay", "a");
    await machine.start(hastened(5));
    const span = "startDate=0&endDate=4000000000";
    await waitFor(
      "hops of both paths are with the controller",
      async () => {
        const found = JSON.stringify(await lab.call("GET", `/v2/node/{a}/plugin-logs/gateway-details?${span}`));
        return ["192.168.1.1", "10.9.0.2"].every((ip) => found.includes(`"hops":[{"hop":1,"ip":"${ip}"`));
      },
      180_000,
    );
  },
  600_000,
);
