import { describe } from "vitest";
import { checkCases, nic, vlan, wg } from "../../../support/network/network-cases.ts";

const NO_HOST = "must be the address of a machine, not the first (network) or last (broadcast) of its network";
const WHOLE = "must have a prefix length of 1 to 32: a network of length 0 is the whole internet";

describe("every rule of interfaces", () => {
  checkCases([
    {
      name: "two entries for one interface",
      given: [{ interfaces: [nic(), nic({ ip: "10.1.0.2/24" })] }],
      rejected: ["E_NAME_DUPLICATE interfaces.1.nic: eth1 is in network.interfaces.0 already"],
      refused: ["interfaces.1.nic: eth1 is in network.interfaces.0 already"],
    },
    {
      name: "an interface without a name",
      given: [{ interfaces: [{ ip: "10.0.0.2/24" }] }],
      rejected: ["E_REQUIRED interfaces.0.nic: is required"],
      refused: ["interfaces.0.nic: is required"],
    },
    {
      name: "what is no name of an interface",
      given: [{ interfaces: [nic({ nic: "../etc" }), nic({ nic: "-rf" }), nic({ nic: "lo" }), 7] }],
      rejected: [
        "E_ENUM interfaces.3: must be an object",
        "E_NAME_FORMAT interfaces.0.nic: must be the name of a network interface, of at most 15 characters",
        "E_NAME_FORMAT interfaces.1.nic: must be the name of a network interface, of at most 15 characters",
        "E_NAME_FORMAT interfaces.2.nic: lo is a name that Linux keeps for itself",
      ],
      refused: [
        "interfaces.0.nic: must be the name of a network interface, of at most 15 characters",
        "interfaces.1.nic: must be the name of a network interface, of at most 15 characters",
        "interfaces.3: must be an object",
      ],
    },
    {
      name: "addresses that are no machine's",
      given: [
        {
          interfaces: [
            nic({ ip: "10.0.0.0/24" }),
            nic({ nic: "eth2", ip: "10.1.0.255/24" }),
            nic({ nic: "eth3", ip: "10.2.0.1/0" }),
            nic({ nic: "eth4", ip: "10.3.0.0/31", addIps: ["10.4.0.255/32"] }),
            nic({ nic: "eth5", ip: "10.5.0.2/24", addIps: ["10.6.0.127/25"] }),
          ],
        },
      ],
      rejected: [
        `E_CIDR_INVALID interfaces.0.ip: ${NO_HOST}`,
        `E_CIDR_INVALID interfaces.1.ip: ${NO_HOST}`,
        `E_CIDR_INVALID interfaces.2.ip: ${WHOLE}`,
        `E_CIDR_INVALID interfaces.4.addIps.0: ${NO_HOST}`,
      ],
      refused: [
        `interfaces.0.ip: ${NO_HOST}`,
        `interfaces.1.ip: ${NO_HOST}`,
        `interfaces.2.ip: ${WHOLE}`,
        `interfaces.4.addIps.0: ${NO_HOST}`,
      ],
    },
    {
      name: "an address without its prefix length",
      given: [{ interfaces: [nic({ ip: "10.0.0.2" })] }],
      rejected: [
        "E_CIDR_INVALID interfaces.0.ip: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24",
      ],
      refused: ["interfaces.0.ip: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24"],
    },
    {
      name: "a prefix length in the older form, a mask",
      given: [{ interfaces: [nic({ ip: "10.0.0.2", subnet: "255.255.255.0" })] }],
      refused: ["interfaces.0.ip: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24"],
    },
    {
      name: "a prefix length in the older form, a network",
      given: [{ interfaces: [nic({ ip: "10.0.0.2", subnet: "10.0.0.0/24" })] }],
      refused: ["interfaces.0.ip: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24"],
    },
    {
      name: "a mask with a hole",
      given: [{ interfaces: [nic({ ip: "10.0.0.2", subnet: "255.0.255.0" })] }],
      rejected: [
        "E_CIDR_INVALID interfaces.0.ip: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24",
      ],
      refused: ["interfaces.0.ip: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24"],
    },
    {
      name: "an interface without an address",
      given: [{ interfaces: [{ nic: "eth1" }] }],
      notices: ["E_REQUIRED interfaces.0.ip: is required without dhcp: the interface has no address"],
    },
    { name: "an interface of VLANs alone", given: [{ interfaces: [{ nic: "eth1", subInterfaces: [vlan()] }] }] },
    {
      name: "an address beside DHCP",
      given: [{ interfaces: [nic({ dhcp: true })] }],
      notices: ["E_DEPENDENCY interfaces.0.ip: has no place beside dhcp, which gives the address; ignored"],
      refused: ["interfaces.0.ip: has no place beside dhcp, which gives the address"],
    },
    {
      name: "an address of IPv6",
      given: [{ interfaces: [nic({ ip: "2001:db8::1/64" })] }],
      rejected: [
        "E_CIDR_INVALID interfaces.0.ip: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24",
      ],
      refused: ["interfaces.0.ip: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24"],
    },
    {
      name: "addresses that no machine has",
      given: [{ interfaces: [nic({ ip: "224.0.0.1/24", gateway: "0.0.0.0", dns: ["127.0.0.1", "192.0.2.53"] })] }],
      rejected: [
        "E_CIDR_INVALID interfaces.0.ip: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24",
        "E_CIDR_INVALID interfaces.0.gateway: must be the IPv4 address of a machine",
        "E_CIDR_INVALID interfaces.0.dns.0: must be the IPv4 address of a machine",
      ],
      refused: [
        "interfaces.0.ip: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24",
        "interfaces.0.gateway: must be the IPv4 address of a machine",
        "interfaces.0.dns.0: must be the IPv4 address of a machine",
      ],
    },
    {
      name: "a gateway elsewhere",
      given: [{ interfaces: [nic({ gateway: "10.1.0.1" })] }],
      notices: ["E_RANGE interfaces.0.gateway: 10.1.0.1 is in no network of this interface"],
    },
    {
      name: "what is a cluster's",
      given: [
        { interfaces: [nic({ clusterIP: "10.0.0.9", cloudRoutes: [], clusterRoutes: [{ route: "10.0.0.0/8" }] })] },
      ],
      notices: [
        "E_CLUSTER_FIELD interfaces.0.clusterIP: is only for the configuration of a cluster; ignored",
        "E_CLUSTER_FIELD interfaces.0.clusterRoutes: is only for the configuration of a cluster; ignored",
      ],
      refused: [
        "interfaces.0.clusterIP: is only for the configuration of a cluster",
        "interfaces.0.clusterRoutes: is only for the configuration of a cluster",
      ],
    },
    {
      name: "a cluster address with a prefix length",
      given: [{ interfaces: [nic({ clusterIP: "10.0.0.9/24" })] }, { isMember: true }],
      rejected: ["E_CIDR_INVALID interfaces.0.clusterIP: must be the IPv4 address of a machine"],
      refused: [
        "interfaces.0.clusterIP: must be the IPv4 address of a machine",
        "interfaces.0.clusterIP: is only for the configuration of a cluster",
      ],
    },
    {
      name: "a cluster address elsewhere",
      given: [{ interfaces: [nic({ clusterIP: "10.1.0.9" })] }, { isMember: true }],
      notices: ["E_RANGE interfaces.0.clusterIP: 10.1.0.9 is in no network of this interface"],
      refused: ["interfaces.0.clusterIP: is only for the configuration of a cluster"],
    },
    {
      name: "a manual mode without a speed",
      given: [{ interfaces: [nic({ mode: "manual", duplex: "full" })] }],
      notices: ["E_REQUIRED interfaces.0.speed: is required with mode manual; speed and duplex are negotiated"],
      refused: ["interfaces.0.speed: is required with mode manual"],
    },
    {
      name: "a manual mode with negotiated duplex",
      given: [{ interfaces: [nic({ mode: "manual", speed: 100, duplex: "auto" })] }],
      notices: ["E_REQUIRED interfaces.0.duplex: is required with mode manual; speed and duplex are negotiated"],
      refused: ["interfaces.0.duplex: is required with mode manual"],
    },
    {
      name: "a speed that does not exist",
      given: [{ interfaces: [nic({ mode: "manual", speed: 42, duplex: "full" })] }],
      rejected: ["E_ENUM interfaces.0.speed: must be one of 10, 100, 1000, 2500, 5000, 10000"],
      notices: ["E_REQUIRED interfaces.0.speed: is required with mode manual; speed and duplex are negotiated"],
      refused: ["interfaces.0.speed: must be one of 10, 100, 1000, 2500, 5000, 10000"],
    },
    {
      name: "an MTU out of range",
      given: [{ interfaces: [nic({ mtu: 576 }), nic({ nic: "eth2", ip: "10.1.0.1/24", mtu: "65536" })] }],
      notices: [
        "E_RANGE interfaces.0.mtu: 576 is not 1300..9001; taken as 1300",
        "E_RANGE interfaces.1.mtu: 65536 is not 1300..9001; taken as 9001",
      ],
      refused: [
        "interfaces.0.mtu: must be a whole number, 1300..9001",
        "interfaces.1.mtu: is text, and must be a whole number, 1300..9001",
      ],
    },
    {
      name: "an MTU that is no number",
      given: [{ interfaces: [nic({ mtu: "jumbo" })] }],
      rejected: ["E_RANGE interfaces.0.mtu: is text, and must be a whole number, 1300..9001"],
      refused: ["interfaces.0.mtu: is text, and must be a whole number, 1300..9001"],
    },
    {
      name: "addresses inside the network of containers",
      given: [
        {
          interfaces: [
            nic({ ip: "172.18.0.9/24", addIps: ["172.18.1.9/24"] }),
            nic({ nic: "eth2", ip: "10.7.0.1/24", subInterfaces: [vlan({ ip: "172.18.4.1/24" })] }),
          ],
          tunnels: [wg({ ip: "172.18.9.1/30" })],
        },
      ],
      notices: [
        "E_UNSUPPORTED tunnels.0.type: tunnels of type wireguard are not supported: it is stored and not made",
        "E_BRIDGE_OVERLAP interfaces.0.ip: 172.18.0.9/24 is inside bridgeCIDR 172.18.0.0/16; containers cannot reach it",
        "E_BRIDGE_OVERLAP interfaces.0.addIps: 172.18.1.9/24 is inside bridgeCIDR 172.18.0.0/16; containers cannot reach it",
        "E_BRIDGE_OVERLAP interfaces.1.subInterfaces.0.ip: 172.18.4.1/24 is inside bridgeCIDR 172.18.0.0/16; containers cannot reach it",
        "E_BRIDGE_OVERLAP tunnels.0.ip: 172.18.9.1/30 is inside bridgeCIDR 172.18.0.0/16; containers cannot reach it",
      ],
    },
    {
      name: "the network of containers elsewhere",
      given: [{ interfaces: [nic({ ip: "172.18.0.9/24" })], bridgeCIDR: "10.99.0.0/16" }],
    },
    {
      name: "switches that are none",
      given: [{ bridgeCIDR: "10.99.0.0/33", darkMode: "yes", forwarding: 1 }],
      rejected: [
        "E_ENUM darkMode: must be true or false",
        "E_ENUM forwarding: must be true or false",
        "E_CIDR_INVALID bridgeCIDR: must be an IPv4 network such as 192.0.2.0/24",
      ],
      refused: [
        "forwarding: must be true or false",
        "darkMode: must be true or false",
        "bridgeCIDR: must be an IPv4 network such as 192.0.2.0/24",
      ],
    },
    {
      name: "networks that overlap",
      given: [
        {
          interfaces: [
            nic(),
            nic({ nic: "eth2", ip: "10.0.0.130/25" }),
            nic({ nic: "eth3", ip: "10.0.0.9/32" }),
            nic({ nic: "eth4", ip: "10.0.0.3/24", vrf: "a" }),
          ],
          vrfs: [{ name: "a" }],
        },
      ],
      notices: ["E_SUBNET_OVERLAP interfaces.1.ip: 10.0.0.130/25 overlaps 10.0.0.2/24 of eth1"],
    },
    {
      name: "an interface in no VRF that exists",
      given: [{ interfaces: [nic({ vrf: "no" })] }],
      rejected: ["E_REF_UNKNOWN interfaces.0.vrf: there is no VRF no; the interface is held down"],
    },
    {
      name: "a VLAN in no VRF that exists",
      given: [{ interfaces: [nic({ subInterfaces: [vlan({ vrf: "no" })] })] }],
      rejected: ["E_REF_UNKNOWN interfaces.0.subInterfaces.0.vrf: there is no VRF no; the VLAN is held down"],
    },
    {
      name: "VRFs that cannot be",
      given: [
        {
          interfaces: [nic({ vrf: "a b" }), nic({ nic: "eth2", vrf: "sixteencharacter" })],
          vrfs: [{ name: "a b" }, {}, { name: "default" }, { name: "eth1" }, { name: "ok" }, { name: "ok" }],
        },
      ],
      rejected: [
        "E_NAME_FORMAT vrfs.0.name: must be 1..15 letters, digits, dots, dashes and underscores",
        "E_REQUIRED vrfs.1.name: is required",
        "E_NAME_FORMAT vrfs.2.name: default is a name that Linux keeps for itself",
        "E_NAME_DUPLICATE vrfs.3.name: eth1 is the name of an interface already",
        "E_NAME_DUPLICATE vrfs.5.name: ok is in network.vrfs.4 already",
        "E_REF_UNKNOWN interfaces.0.vrf: there is no VRF a b; the interface is held down",
        "E_REF_UNKNOWN interfaces.1.vrf: there is no VRF sixteencharacter; the interface is held down",
      ],
      refused: [
        "interfaces.0.vrf: must be 1..15 letters, digits, dots, dashes and underscores",
        "interfaces.1.vrf: must be 1..15 letters, digits, dots, dashes and underscores",
        "vrfs.0.name: must be 1..15 letters, digits, dots, dashes and underscores",
        "vrfs.1.name: is required",
      ],
    },
    {
      name: "a route of a VLAN without next",
      given: [
        {
          interfaces: [
            nic({
              subInterfaces: [vlan({ routes: [{ route: "10.6.0.0/16" }, { route: "10.7.0.0/16", next: "10.5.0.1" }] })],
            }),
          ],
        },
      ],
      rejected: ["E_REQUIRED interfaces.0.subInterfaces.0.routes.0.next: is required"],
      refused: ["interfaces.0.subInterfaces.0.routes.0.next: is required"],
    },
    {
      name: "numbers of VLANs",
      given: [
        {
          interfaces: [nic({ subInterfaces: [0, 4095, "x", undefined, 7, 7].map((vlanID) => vlan({ vlanID })) })],
        },
      ],
      rejected: [
        "E_RANGE interfaces.0.subInterfaces.0.vlanID: must be a whole number, 1..4094",
        "E_RANGE interfaces.0.subInterfaces.1.vlanID: must be a whole number, 1..4094",
        "E_RANGE interfaces.0.subInterfaces.2.vlanID: is text, and must be a whole number, 1..4094",
        "E_REQUIRED interfaces.0.subInterfaces.3.vlanID: is required",
        "E_NAME_DUPLICATE interfaces.0.subInterfaces.5.vlanID: 7 is in network.interfaces.0.subInterfaces.4 already",
      ],
      refused: [
        "interfaces.0.subInterfaces.0.vlanID: must be a whole number, 1..4094",
        "interfaces.0.subInterfaces.1.vlanID: must be a whole number, 1..4094",
        "interfaces.0.subInterfaces.2.vlanID: is text, and must be a whole number, 1..4094",
        "interfaces.0.subInterfaces.3.vlanID: is required",
      ],
    },
    {
      name: "a VLAN without an address",
      given: [{ interfaces: [nic({ subInterfaces: [{ vlanID: 9 }] })] }],
      rejected: ["E_REQUIRED interfaces.0.subInterfaces.0.ip: is required"],
      refused: ["interfaces.0.subInterfaces.0.ip: is required"],
    },
    {
      name: "a VLAN with the name of an interface",
      given: [{ interfaces: [nic({ subInterfaces: [vlan()] }), nic({ nic: "eth1.5", ip: "10.8.0.1/24" })] }],
      rejected: ["E_NAME_DUPLICATE interfaces.0.subInterfaces.0.vlanID: eth1.5 is the name of an interface already"],
      refused: ["interfaces.0.subInterfaces.0.vlanID: eth1.5 is the name of an interface already"],
    },
    {
      name: "an address without its length beside DHCP",
      given: [{ interfaces: [nic({ ip: "10.0.0.2", dhcp: true })] }],
      rejected: [
        "E_CIDR_INVALID interfaces.0.ip: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24",
      ],
      refused: ["interfaces.0.ip: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24"],
    },
    {
      name: "fields that nothing hangs on",
      given: [
        {
          interfaces: [
            nic({
              description: 7,
              addIps: ["10.0.0.3/24", "x"],
              dhcp: "",
              virtual: "no",
              ignoreHealthCheck: 1,
              gateway: "",
              vrf: "",
              subnet: 4,
              dhcpPool: [],
            }),
          ],
        },
      ],
      rejected: [
        "E_RANGE interfaces.0.description: must be text",
        "E_ENUM interfaces.0.subnet: must be text",
        "E_ENUM interfaces.0.virtual: must be true or false",
        "E_ENUM interfaces.0.dhcpPool: must be text",
        "E_CIDR_INVALID interfaces.0.addIps.1: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24",
        "E_ENUM interfaces.0.ignoreHealthCheck: must be true or false",
      ],
      refused: [
        "interfaces.0.description: must be text",
        "interfaces.0.dhcp: must be true or false",
        "interfaces.0.subnet: must be text",
        "interfaces.0.gateway: must be the IPv4 address of a machine",
        "interfaces.0.vrf: must be 1..15 letters, digits, dots, dashes and underscores",
        "interfaces.0.virtual: must be true or false",
        "interfaces.0.dhcpPool: must be text",
        "interfaces.0.addIps.1: must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24",
        "interfaces.0.ignoreHealthCheck: must be true or false",
      ],
    },
    {
      name: "routes of an interface that cannot be",
      given: [
        {
          interfaces: [
            nic({
              routes: [
                { route: "10.1.0.0/16" },
                { route: "10.1.2.0/16" },
                { route: "x" },
                { route: "10.3.0.0/16", next: "fe80::1" },
              ],
            }),
          ],
        },
      ],
      rejected: [
        "E_CIDR_INVALID interfaces.0.routes.2.route: must be an IPv4 network such as 192.0.2.0/24",
        "E_CIDR_INVALID interfaces.0.routes.3.next: must be the IPv4 address of a machine",
        "E_NAME_DUPLICATE interfaces.0.routes.1.route: 10.1.0.0/16 is in network.interfaces.0.routes.0 already",
      ],
      notices: ["E_CIDR_HOSTBITS interfaces.0.routes.1.route: 10.1.2.0/16 has host bits; taken as 10.1.0.0/16"],
      refused: [
        "interfaces.0.routes.2.route: must be an IPv4 network such as 192.0.2.0/24",
        "interfaces.0.routes.3.next: must be the IPv4 address of a machine",
        "interfaces.0.routes.1.route: 10.1.0.0/16 is in network.interfaces.0.routes.0 already",
      ],
    },
    {
      name: "two default routes",
      given: [
        {
          interfaces: [
            nic({ routes: [{ route: "0.0.0.0/0", next: "10.0.0.1" }] }),
            nic({
              nic: "eth2",
              ip: "10.2.0.1/24",
              routes: [{ route: "0.0.0.0/0", next: "10.2.0.9" }, { route: "10.3.0.0/16" }],
            }),
          ],
        },
      ],
      rejected: ["E_DEFAULT_ROUTE_BOTH interfaces.1.routes: eth1 has a default route already"],
      refused: ["interfaces.1.routes: eth1 has a default route already"],
    },
  ]);
});
