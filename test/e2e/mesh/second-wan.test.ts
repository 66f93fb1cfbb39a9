import { expect, test } from "vitest";
import { gatewaysOf } from "../../../scripts/labs/ask-agent.ts";
import { cut, heal } from "../../../scripts/labs/faults.ts";
import { openGateways } from "../../../scripts/labs/furnish.ts";
import { GATEWAY_PORT } from "../../../scripts/labs/layout.ts";
import type { EdgeMachine } from "../../support/network/edge-machine.ts";
import { hastened } from "../../support/fake-time.ts";
import { ECHO_PORT, healAfter, startEcho, talk, untilServed } from "../../support/overlay/mesh-stage.ts";
import { networkStage } from "../../support/network/network-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const PORT = 7001;
/** The second provider: its end of the line, and the router that A's second WAN leads to. */
const [PROVIDER, UPLINK] = ["198.51.100.241", "198.51.100.242"];
const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1", dns: ["192.168.1.1"] };
const second = (ip: string) => ({ interfaces: [WAN, { nic: "eth1", ip: `${ip}/24`, gateway: "10.9.0.2" }] });
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

test("a path leaves by the interface of its local address, carries when the other WAN is cut, and follows a changed address", async () => {
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
  const path = { id: "second", node: "gw1", host: lab.addressOf("gw1"), port: GATEWAY_PORT };
  const local = (address: string): Promise<unknown> =>
    lab.call("PUT", "/node/{a}/config/gateway", { enabled: false, paths: [{ ...path, local: address }] });
  await local("10.9.0.1");
  await untilState("", true);
  await untilState("second", true);
  const dialled = (): string => machine.sh(`ss -Htn state established dport = :${GATEWAY_PORT}`);
  const through = (address: string): string => machine.sh(`ip -4 route get ${lab.addressOf("gw1")} from ${address}`);
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

  await machine.apply(second("10.9.0.7"));
  await local("10.9.0.7");
  await waitFor("the path leaves from its new address", () => dialled().includes("10.9.0.7:"), 120_000);
  expect(through("10.9.0.7")).toContain("via 10.9.0.2 dev eth1");
  expect(machine.sh("ip -4 rule show")).not.toContain("10.9.0.1 ");
  cut(lab, "a");
  await untilCarries("second");
  await untilServed(lab, "a", PORT, 120_000);
  await heal(lab);

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
}, 600_000);
