import { describe, expect, it } from "vitest";
import { describeIssues } from "../../../../src/protocol/envelope.ts";
import { NetworkSection } from "../../../../src/protocol/sections/network.ts";
import { readNetwork, type NetworkContext } from "../../../../src/protocol/sections/read-network.ts";

const nic = (more = {}) => ({ nic: "eth1", ip: "10.0.0.2/24", ...more });
const vlan = (more = {}) => ({ vlanID: 5, ip: "10.5.0.2/24", ...more });
const acl = (more = {}) => ({ protocol: "tcp", source: "10.0.0.0/8", dest: "10.0.0.0/8", action: "allow", ...more });
const ipsec = (more = {}) => ({
  type: "ipsec",
  name: "ips0",
  enabled: true,
  mtu: 1436,
  destination: "203.0.113.7",
  ikeCipher: "aes256-sha256",
  ikeGroup: 14,
  ipsecCipher: "aes256-sha256",
  psk: "s3cret",
  ...more,
});
const KEY = Buffer.alloc(32, 7).toString("base64");
const wg = (more = {}) => ({
  type: "wireguard",
  name: "wg0",
  enabled: true,
  mtu: 1400,
  ip: "10.9.0.1/30",
  publicKey: KEY,
  ...more,
});

interface Case {
  readonly name: string;
  /** The section, and what is known beside it. */
  readonly given: readonly [section: unknown, context?: Partial<NetworkContext>];
  /** What a node leaves out, and what it goes on with otherwise. */
  readonly rejected?: readonly string[];
  readonly notices?: readonly string[];
  /** What the API answers. */
  readonly refused?: readonly string[];
}

const CASES: readonly Case[] = [
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
    name: "a tunnel in no VRF that exists",
    given: [{ tunnels: [ipsec({ vrf: "no" })] }],
    rejected: ["E_REF_UNKNOWN tunnels.0.vrf: there is no VRF no; the tunnel is held down"],
  },
  {
    name: "a rule to no VRF that exists",
    given: [{ rules: [{ ...acl(), action: "forward", vrf: "no" }] }],
    rejected: ["E_REF_UNKNOWN rules.0.vrf: there is no VRF no; the rule is left out"],
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
        interfaces: [nic({ subInterfaces: [0, 4095, "x", undefined, 7, 7].map((vlanID) => ({ ...vlan(), vlanID })) })],
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
    name: "a virtual network that is not attached",
    given: [
      { tunnels: [{ type: "vnet", name: "v0", enabled: true, mtu: 1430, networkId: "41" }] },
      { attached: new Set([7]) },
    ],
    notices: ["E_DEPENDENCY tunnels.0.networkId: vpn does not attach the virtual network 41; the tunnel is down"],
    refused: ["tunnels.0.networkId: is text, and must be a whole number, 0..2147483647"],
  },
  {
    name: "no virtual network",
    given: [
      {
        tunnels: [
          { type: "vnet", name: "v0", enabled: true, mtu: 1430 },
          { type: "vnet", name: "v1", enabled: true, mtu: 1430, networkId: 0 },
        ],
      },
    ],
    rejected: [
      "E_REQUIRED tunnels.0.networkId: is required with type vnet",
      "E_RANGE tunnels.1.networkId: 0 is no virtual network",
    ],
    refused: ["tunnels.0.networkId: is required with type vnet", "tunnels.1.networkId: 0 is no virtual network"],
  },
  {
    name: "no WireGuard endpoint",
    given: [{ tunnels: [wg()] }, { hasWireguard: false }],
    notices: ["E_DEPENDENCY tunnels.0.type: apigw has no WireGuard endpoint; the tunnel is down"],
  },
  {
    name: "keys that are none",
    given: [
      {
        tunnels: [
          wg({ publicKey: "short" }),
          wg({ name: "wg1", presharedKey: "A".repeat(44) }),
          wg({ name: "wg2", publicKey: undefined }),
        ],
      },
    ],
    rejected: [
      "E_KEY_FORMAT tunnels.0.publicKey: must be 32 bytes in base64",
      "E_KEY_FORMAT tunnels.1.presharedKey: must be 32 bytes in base64",
      "E_REQUIRED tunnels.2.publicKey: is required with type wireguard",
    ],
    refused: [
      "tunnels.0.publicKey: must be 32 bytes in base64",
      "tunnels.1.presharedKey: must be 32 bytes in base64",
      "tunnels.2.publicKey: is required with type wireguard",
    ],
  },
  {
    name: "IPsec with a wrong cipher",
    given: [{ tunnels: [ipsec({ destination: undefined, ikeGroup: "", psk: undefined, ipsecCipher: "des" })] }],
    rejected: ["E_ENUM tunnels.0.ipsecCipher: must be one of aes128-sha1, aes128-sha256, aes256-sha1, aes256-sha256"],
    refused: [
      "tunnels.0.ikeGroup: must be one of 2, 5, 14, 15, 16",
      "tunnels.0.ipsecCipher: must be one of aes128-sha1, aes128-sha256, aes256-sha1, aes256-sha256",
    ],
  },
  {
    name: "IPsec without what it needs",
    given: [{ tunnels: [ipsec({ destination: undefined, ikeGroup: undefined, psk: "" })] }],
    rejected: [
      "E_REQUIRED tunnels.0.destination: is required with type ipsec",
      "E_REQUIRED tunnels.0.ikeGroup: is required with type ipsec",
      "E_REQUIRED tunnels.0.psk: is required with type ipsec",
    ],
    refused: ["tunnels.0.destination: is required with type ipsec", "tunnels.0.ikeGroup: is required with type ipsec"],
  },
  {
    name: "a secret that is too long",
    given: [{ tunnels: [ipsec({ psk: "hunter2".repeat(200) })] }],
    rejected: ["E_SECRET_LENGTH tunnels.0.psk: must have at most 1024 characters"],
    refused: ["tunnels.0.psk: must have at most 1024 characters"],
  },
  {
    name: "other fields of tunnels",
    given: [
      {
        tunnels: [
          ipsec({ type: "l2tp" }),
          ipsec({ mtu: 10, replayWindow: 65, auto: "now" }),
          ipsec({ networkId: 0, ikeGroup: "14", name: "a" }),
          ipsec({ enabled: false, name: "b" }),
          ipsec({ name: "a" }),
        ],
      },
    ],
    rejected: [
      "E_ENUM tunnels.0.type: must be one of ipsec, gre, vnet, wireguard",
      "E_RANGE tunnels.1.mtu: must be a whole number, 1000..10000",
      "E_ENUM tunnels.1.replayWindow: must be one of 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192",
      "E_ENUM tunnels.1.auto: must be one of add, start",
      "E_NAME_DUPLICATE tunnels.4.name: a is in network.tunnels.2 already",
    ],
    notices: ["E_UNSUPPORTED tunnels.2.type: tunnels of type ipsec are not supported: it is stored and not made"],
    refused: [
      "tunnels.0.type: must be one of ipsec, gre, vnet, wireguard",
      "tunnels.1.mtu: must be a whole number, 1000..10000",
      "tunnels.1.replayWindow: must be one of 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192",
      "tunnels.1.auto: must be one of add, start",
      "tunnels.2.ikeGroup: must be one of 2, 5, 14, 15, 16",
    ],
  },
  {
    name: "ports where there are none",
    given: [
      {
        acls: [acl({ protocol: "icmp", ports: "443" })],
        rules: [acl({ protocol: "any", ports: "443", action: "accept" })],
      },
    ],
    notices: [
      "E_DEPENDENCY rules.0.ports: only tcp and udp have ports; ignored with any",
      "E_DEPENDENCY acls.0.ports: only tcp and udp have ports; ignored with icmp",
    ],
    refused: ["rules.0.ports: only tcp and udp have ports", "acls.0.ports: only tcp and udp have ports"],
  },
  {
    name: "ports that are none",
    given: [{ acls: ["0", "70000", "20-10", "a", "1-2-3"].map((ports) => acl({ ports })) }],
    rejected: [
      "E_PORT_RANGE acls.0.ports: must be a port or a range such as 1000-2000, within 1..65535",
      "E_PORT_RANGE acls.1.ports: must be a port or a range such as 1000-2000, within 1..65535",
      "E_PORT_RANGE acls.2.ports: must be a port or a range such as 1000-2000, within 1..65535",
      "E_PORT_RANGE acls.3.ports: must be a port or a range such as 1000-2000, within 1..65535",
      "E_PORT_RANGE acls.4.ports: must be a port or a range such as 1000-2000, within 1..65535",
    ],
    refused: [
      "acls.0.ports: must be a port or a range such as 1000-2000, within 1..65535",
      "acls.1.ports: must be a port or a range such as 1000-2000, within 1..65535",
      "acls.2.ports: must be a port or a range such as 1000-2000, within 1..65535",
      "acls.3.ports: must be a port or a range such as 1000-2000, within 1..65535",
      "acls.4.ports: must be a port or a range such as 1000-2000, within 1..65535",
    ],
  },
  { name: "a port as a number", given: [{ acls: [acl({ ports: 443 })] }], refused: ["acls.0.ports: must be text"] },
  {
    name: "a translation with host bits",
    given: [{ nats: [{ source: "10.0.0.8/8", toSource: "11.0.0.0/8" }] }],
    notices: ["E_CIDR_HOSTBITS nats.0.source: 10.0.0.8/8 has host bits; taken as 10.0.0.0/8"],
    refused: ["nats.0.source: 10.0.0.8/8 has host bits"],
  },
  {
    name: "networks with host bits, or without a length",
    given: [
      {
        interfaces: [nic({ routes: [{ route: "10.10.10.10/24" }] })],
        routes: [{ dest: "10.9.9.9/16", via: "10.0.0.1" }],
        acls: [acl({ source: "10.1.1.1" })],
      },
    ],
    notices: [
      "E_CIDR_HOSTBITS interfaces.0.routes.0.route: 10.10.10.10/24 has host bits; taken as 10.10.10.0/24",
      "E_CIDR_HOSTBITS routes.0.dest: 10.9.9.9/16 has host bits; taken as 10.9.0.0/16",
      "E_CIDR_INVALID acls.0.source: 10.1.1.1 has no prefix length; taken as 10.1.1.1/32",
    ],
    refused: ["acls.0.source: must be an IPv4 network such as 192.0.2.0/24"],
  },
  {
    name: "translations that cannot be",
    given: [
      {
        nats: [
          { source: "10.0.0.0/24", toSource: "10.1.0.0/25" },
          { dest: "10.0.0.0/24", toDest: "10.1.0.0/23" },
          { toSource: "10.1.0.0/24" },
          { masquerade: true, toSource: "10.1.0.1/32" },
          { source: "10.0.0.0/24" },
        ],
      },
    ],
    rejected: [
      "E_PREFIX_MISMATCH nats.0.toSource: 10.1.0.0/25 has another prefix length than 10.0.0.0/24; only one address may stand for many",
      "E_PREFIX_MISMATCH nats.1.toDest: 10.1.0.0/23 has another prefix length than 10.0.0.0/24; only one address may stand for many",
      "E_PREFIX_MISMATCH nats.2.toSource: 10.1.0.0/24 has another prefix length than any; only one address may stand for many",
      "E_DEPENDENCY nats.3.toSource: has no place beside masquerade",
      "E_REQUIRED nats.4: translates nothing: it needs toSource, toDest or masquerade",
    ],
    refused: [
      "nats.0.toSource: 10.1.0.0/25 has another prefix length than 10.0.0.0/24; only one address may stand for many",
      "nats.1.toDest: 10.1.0.0/23 has another prefix length than 10.0.0.0/24; only one address may stand for many",
      "nats.2.toSource: 10.1.0.0/24 has another prefix length than any; only one address may stand for many",
      "nats.3.toSource: has no place beside masquerade",
      "nats.4: translates nothing: it needs toSource, toDest or masquerade",
    ],
  },
  {
    name: "metrics and lines out of range",
    given: [
      {
        routes: [
          { dest: "10.1.0.0/16", via: "10.0.0.1", metric: 0 },
          { dest: "10.2.0.0/16", via: "10.0.0.1", metric: 900 },
          { dest: "10.3.0.0/16", via: "10.0.0.1", metric: "low" },
        ],
        acls: [acl({ line: 0 }), acl({ line: 99999 }), acl({ line: 1.5 })],
      },
    ],
    rejected: [
      "E_RANGE routes.2.metric: is text, and must be a whole number, 1..200",
      "E_RANGE acls.2.line: must be a whole number, 1..32768",
    ],
    notices: [
      "E_RANGE routes.0.metric: 0 is not 1..200; taken as 1",
      "E_RANGE routes.1.metric: 900 is not 1..200; taken as 200",
      "E_RANGE acls.0.line: 0 is not 1..32768; taken as 1",
      "E_RANGE acls.1.line: 99999 is not 1..32768; taken as 32768",
    ],
    refused: [
      "routes.0.metric: must be a whole number, 1..200",
      "routes.1.metric: must be a whole number, 1..200",
      "routes.2.metric: is text, and must be a whole number, 1..200",
      "acls.0.line: must be a whole number, 1..32768",
      "acls.1.line: must be a whole number, 1..32768",
      "acls.2.line: must be a whole number, 1..32768",
    ],
  },
  {
    name: "routes that cannot be",
    given: [
      {
        routes: [
          { dest: "10.1.0.0/16" },
          { via: "10.0.0.1" },
          { dest: "10.4.0.0/16", via: "10.0.0.1" },
          { dest: "10.4.1.1/16", via: "10.0.0.3" },
          { dest: "10.5.0.0/16", dev: "eth7" },
        ],
      },
    ],
    rejected: [
      "E_REQUIRED routes.0.dev: is required without via",
      "E_REQUIRED routes.1.dest: is required",
      "E_NAME_DUPLICATE routes.3.dest: 10.4.0.0/16 with this metric is in network.routes.2 already",
    ],
    notices: [
      "E_CIDR_HOSTBITS routes.3.dest: 10.4.1.1/16 has host bits; taken as 10.4.0.0/16",
      "E_REF_UNKNOWN routes.4.dev: no entry of this section is eth7",
    ],
    refused: ["routes.1.dest: is required"],
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
  {
    name: "rules that cannot be",
    given: [
      {
        rules: [
          acl({ action: "forward" }),
          acl({ action: "dnat" }),
          acl({ action: "dnat", dnat: "10.0.0.1:99999" }),
          acl({ action: "teleport" }),
          acl({ action: "drop", source: "everybody" }),
          acl({ action: "accept", in: "eth9", iface: "eth8", dmac: "zz" }),
          acl({ action: "accept", in: "eth9", iface: "eth8" }),
        ],
      },
    ],
    rejected: [
      "E_REQUIRED rules.0.iface: is required with action forward, or vrf",
      "E_REQUIRED rules.1.dnat: is required with action dnat",
      "E_CIDR_INVALID rules.2.dnat: must be an IPv4 address, or one with a port such as 192.0.2.1:8080",
      "E_ENUM rules.3.action: must be one of accept, drop, reject, forward, dnat, mirror, log",
      "E_CIDR_INVALID rules.4.source: must be an IPv4 network, public or private",
      "E_ENUM rules.5.dmac: must be a MAC address such as 02:00:5e:00:53:01",
    ],
    notices: [
      "E_REF_UNKNOWN rules.6.in: no entry of this section is eth9",
      "E_REF_UNKNOWN rules.6.iface: no entry of this section is eth8",
    ],
    refused: [
      "rules.2.dnat: must be an IPv4 address, or one with a port such as 192.0.2.1:8080",
      "rules.3.action: must be one of accept, drop, reject, forward, dnat, mirror, log",
      "rules.4.source: must be an IPv4 network, public or private",
      "rules.5.dmac: must be a MAC address such as 02:00:5e:00:53:01",
    ],
  },
  {
    name: "what is no list",
    given: [{ vrfs: { a: 1 }, tunnels: 5, routes: "x", nats: {}, rules: 7 }],
    rejected: [
      "E_ENUM tunnels: must be an array",
      "E_ENUM vrfs: must be an array",
      "E_ENUM rules: must be an array",
      "E_ENUM routes: must be an array",
      "E_ENUM nats: must be an array",
    ],
    refused: [
      "tunnels: must be an array",
      "vrfs: must be an array",
      "routes: must be an array",
      "nats: must be an array",
      "rules: must be an array",
    ],
  },
  {
    name: "a feature that is not there",
    given: [
      {
        interfaces: [nic({ requires: ["warp"] })],
        routes: [{ dest: "10.1.0.0/16", via: "10.0.0.1", requires: ["warp"] }],
      },
    ],
    rejected: [
      "E_DEPENDENCY interfaces.0.requires: not supported: warp",
      "E_DEPENDENCY routes.0.requires: not supported: warp",
    ],
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
];

const short = (issues: readonly { readonly code: string; readonly message: string }[]): string[] =>
  issues.map(({ code, message }) => `${code} ${message.replace("network.", "")}`);

describe("every rule of the section", () => {
  it.each(CASES)("$name", ({ given: [section, context], rejected = [], notices = [], refused = [] }) => {
    const before = structuredClone(section);
    const read = readNetwork(section, { nodeType: "Node", isMember: false, ...context });
    expect({ rejected: short(read.rejected), notices: short(read.notices) }).toEqual({ rejected, notices });
    const parsed = NetworkSection.safeParse(section);
    const lines = parsed.success ? [] : describeIssues(parsed.error, "network");
    expect(lines.map((line) => line.replace("network.", ""))).toEqual(refused);
    expect(section).toEqual(before);
  });

  it("says nothing of the secret that is wrong", () => {
    const section = { tunnels: [ipsec({ psk: "hunter2".repeat(200) }), wg({ presharedKey: "hunter2" })] };
    const read = readNetwork(section, { nodeType: "Node", isMember: false });
    expect(read.rejected).toHaveLength(2);
    expect(JSON.stringify(read)).not.toContain("hunter2");
    expect(JSON.stringify(NetworkSection.safeParse(section))).not.toContain("hunter2");
  });
});
