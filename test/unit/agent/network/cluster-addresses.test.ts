import { expect, test } from "vitest";
import { clusterAddresses } from "../../../../src/agent/network/cluster-addresses.ts";
import { readNetwork } from "../../../../src/protocol/sections/network/read.ts";

test("lists the cluster's addresses of interfaces and VLANs only", () => {
  const raw = {
    interfaces: [
      {
        nic: "eth1",
        ip: "10.0.0.1/24",
        clusterIP: "10.0.0.9",
        subInterfaces: [{ vlanID: 10, ip: "10.1.0.1/24", clusterIPs: ["10.1.0.9/24"] }],
      },
      { nic: "eth2", ip: "10.2.0.1/24" },
    ],
  };
  const { config } = readNetwork(raw, { nodeType: "Node", isMember: true });
  expect(clusterAddresses(config)).toEqual([
    { link: "eth1", address: "10.0.0.9" },
    { link: "eth1.10", address: "10.1.0.9" },
  ]);
});
