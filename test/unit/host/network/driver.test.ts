import { describe, expect, it } from "vitest";
import { networkMachine } from "../../../support/network-machine.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const PAIR = "ip link add va type veth peer name vb && ip link set va up && ip link set vb up";
const route = { table: 254, kind: "unicast", metric: 0, scope: "global", isOnLink: false } as const;

describe("observing", () => {
  it("sees what there is, in two processes", async () => {
    const machine = await networkMachine(tempDir(), {}, PAIR);
    machine.sh(
      "ip address add 192.0.2.1/24 dev va; ip route add 10.0.0.0/8 via 192.0.2.9; ip rule add priority 77 from 10.0.0.0/8 table 5",
    );
    const state = await machine.observe(["net.ipv4.ip_forward", "net.ipv4.conf.va.forwarding", "net.no.such"]);
    expect(machine.ran()).toStrictEqual(["ip", "nft"]);
    expect(state.links.map(({ name }) => name)).toStrictEqual(expect.arrayContaining(["lo", "va", "vb"]));
    expect(state.links.find(({ name }) => name === "va")).toMatchObject({
      kind: "veth",
      mtu: 1500,
      isUp: true,
      hasCarrier: true,
      isOurs: false,
    });
    expect(state.addresses).toContainEqual({ link: "va", address: "192.0.2.1/24", isOurs: false, isDynamic: false });
    expect(state.routes).toContainEqual({
      ...route,
      destination: "10.0.0.0/8",
      via: "192.0.2.9",
      link: "va",
      protocol: 3,
    });
    expect(state.rules).toContainEqual({ priority: 77, protocol: 0, from: "10.0.0.0/8", table: 5 });
    expect(state.sysctls).toStrictEqual({ "net.ipv4.ip_forward": "0", "net.ipv4.conf.va.forwarding": "0" });
    expect(state).not.toHaveProperty("firewall");
    expect(state).not.toHaveProperty("nameServers");
    expect(state.dhcp).toStrictEqual([]);
  });
});
