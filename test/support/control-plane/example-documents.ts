/** Configuration of a standalone appliance: V2 connectors beside legacy services. */
export const APPLIANCE = {
  connectors: {
    enabled: true,
    version: 2,
    items: {
      "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d01": {
        enabled: true,
        index: 0,
        protocol: "tcp",
        nic: "ens192",
        port: 11433,
        node: "branch-b",
        service: "core-db",
        maxmbps: 20,
        sourceBlock: "192.168.10.0/24,192.168.11.5/32",
        description: "core database",
      },
      "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d02": {
        enabled: true,
        index: 1,
        protocol: "udp",
        port: 5514,
        node: "logs-cluster",
        service: "10.9.0.15:514",
      },
    },
  },
  services: {
    enabled: true,
    services: [
      {
        id: "a1c7f3f0-5f0a-4a0b-8a7d-0d6c6d1b2e11",
        enabled: true,
        name: "files",
        protocol: "ftp",
        host: "files.lan.example",
        port: 21,
        description: "",
      },
    ],
  },
  gateway: {
    enabled: false,
    type: "private",
    udpEnabled: true,
    connectToPublic: true,
    maxmbps: 500,
    maxClientWriteMbps: 200,
    monitorHops: false,
    clients: [],
    paths: [
      {
        id: "hq-mpls",
        node: "hq-gw",
        host: "10.200.0.1",
        port: 8443,
        local: "10.200.7.2",
        default: false,
        enabled: true,
      },
    ],
    routes: [{ route: "branch-b.example.net", dest: "hq-gw.example.net", metric: 10 }],
  },
  network: {
    darkMode: false,
    forwarding: false,
    interfaces: [
      {
        nic: "ens160",
        dhcp: false,
        ip: "198.51.100.10/28",
        gateway: "198.51.100.1",
        dns: ["192.0.2.53", "192.0.2.54"],
        mode: "auto",
        mtu: 1500,
      },
      {
        nic: "ens192",
        ip: "192.168.10.2/24",
        gateway: "192.168.10.1",
        routes: [{ route: "192.168.11.0/24" }, { route: "172.30.0.0/16", next: "192.168.10.254" }],
        subInterfaces: [
          {
            vlanID: 30,
            ip: "192.168.30.2/24",
            addIps: ["192.168.30.3/32"],
            vrf: "guest",
            routes: [{ route: "192.168.31.0/24", next: "192.168.30.1" }],
          },
        ],
      },
    ],
    tunnels: [
      { type: "vnet", name: "corp0", enabled: true, mtu: 1430, networkId: 41, vrf: "partner" },
      {
        type: "ipsec",
        name: "ips0",
        enabled: true,
        mtu: 1436,
        iface: "ens160",
        ip: "10.255.0.1/30",
        destination: "203.0.113.77",
        ike: 2,
        ikeCipher: "aes256-sha256",
        ikeGroup: 14,
        ipsecCipher: "aes256-sha256",
        pfs: 14,
        psk: "********",
        localSubnet: "192.168.10.0/24",
        remoteSubnet: "10.77.0.0/16",
        dpdInterval: 10,
        dpdRetries: 3,
        rekeyInterval: 3600,
        replayWindow: 64,
        auto: "start",
        vrf: "partner",
      },
    ],
    vrfs: [
      {
        name: "partner",
        forwarding: true,
        routes: [
          { dest: "10.77.0.0/16", dev: "ips0", metric: 10 },
          { dest: "10.50.0.0/16", dev: "corp0", metric: 10 },
        ],
        nats: [{ source: "10.50.1.0/24", dest: "10.77.0.0/16", toSource: "10.78.1.0/24" }],
        acls: [
          { line: 10, protocol: "tcp", source: "10.50.0.0/16", dest: "10.77.0.0/16", ports: "443", action: "allow" },
        ],
        rules: [],
      },
      { name: "guest", forwarding: false, acls: [] },
    ],
  },
  _bgp: {
    enabled: true,
    id: "192.168.10.2",
    asn: 65010,
    client: false,
    groups: [
      {
        _id: "g1",
        name: "core",
        peers: [{ _id: "p1", name: "sw1", ip: "192.168.10.1", asn: 65001, secret: "********" }],
        imports: [
          {
            _id: "i1",
            name: "site",
            match: { prefixes: [{ _id: "x1", prefix: "10.30.0.0/16", exact: false }] },
            action: { action: "allow" },
          },
        ],
        exports: [
          {
            _id: "e1",
            name: "overlay",
            match: { cluster: true },
            action: { action: "allow", prefixes: [{ _id: "y1", prefix: "10.50.0.0/16" }] },
          },
        ],
      },
    ],
  },
  cluster: {
    enabled: true,
    host: "192.168.10.2",
    port: 9000,
    statusHost: "198.51.100.10",
    statusPort: 80,
    master: true,
    versionCounter: 3,
  },
  alert: {
    enabled: true,
    thresholds: [
      { id: "t1", name: "disk", telemetry: "disk", max: 85, exceededWindow: 5, exceededWindowUnit: "minutes" },
    ],
  },
  snmp: {
    enabled: true,
    interface: "ens192",
    port: 161,
    engineId: "9b1f04a7c2e",
    username: "nms",
    authProtocol: "SHA",
    authPassphrase: "********",
    privacyProtocol: "AES128",
    privacyPassphrase: "********",
  },
  apigw: { enabled: false, wireguardEnabled: true, wireguardEndpoint: "wg.example.net", wireguardPort: 51820 },
  vpn: {
    networks: [
      {
        id: 41,
        name: "corp",
        ip: "10.50.1.250",
        route: "10.50.1.0/24",
        interfaces: [
          {
            name: "ens192",
            inDefaultRoute: false,
            outDefaultRoute: false,
            insideNats: [{ localCidr: "192.168.10.0/24", networkCidr: "10.50.1.0/24" }],
            outsideNats: [
              { localCidr: "10.50.2.0/24", networkCidr: "10.50.2.0/24", proxyArp: false },
              { localCidr: "192.168.10.77/32", networkGroup: "branches", proxyArp: true },
            ],
          },
        ],
        routes: [
          {
            uid: "r1",
            node: "branch-b",
            networkCidr: "10.50.2.0/24",
            metric: 5,
            path: "hq-mpls",
            monitors: [
              {
                name: "db",
                enabled: true,
                protocol: "tcp",
                dest: "10.50.2.20",
                port: 443,
                interval: 5,
                count: 3,
                maxLatency: 500,
              },
            ],
          },
        ],
        exportRoutes: [],
        importRoutes: [],
        services: [{ uid: "s1", name: "192.168.10.20:443", ip: "10.50.1.251", port: 443 }],
        dns: { enabled: true, upstream: [{ ip: "192.168.10.53", port: 53 }] },
        wireguard: { enabled: false },
      },
    ],
  },
} as const;

/** Configuration of an agent. */
export const AGENT = {
  connectors: { enabled: true, version: 2, items: {} },
  services: {
    enabled: true,
    version: 2,
    items: {
      "0d8c5a52-57a6-4a55-9d0b-6a1d5d0f9c01": {
        enabled: true,
        name: "ssh-local",
        protocol: "ssh",
        host: "127.0.0.1",
        port: 22,
      },
    },
  },
  gateway: { enabled: false, udpEnabled: true, connectToPublic: true },
  vpn: { networks: [{ name: "default", ip: "100.64.0.9", forwarding: false, nats: [], routes: [] }] },
} as const;

/** A cluster with every section that clusters may have. */
export const CLUSTER = {
  mode: "manualFailback",
  config: {
    core: { clusterTimeout: 30 },
    network: {
      interfaces: [
        {
          nic: "ens192",
          clusterIP: "192.168.10.50",
          routes: [{ route: "192.168.99.0/24", next: "192.168.10.1" }],
          cloudRoutes: [],
          clusterRouteTables: [],
        },
      ],
    },
    services: {
      enabled: true,
      version: 2,
      items: {
        "7f1d6f0e-93f4-4f2a-8b36-6d2b7b6d3a10": {
          enabled: true,
          name: "core-db",
          protocol: "tcp",
          host: "172.16.5.20",
          port: 1433,
          sourceInterface: "ens192",
          sourceFromClusterIP: true,
        },
      },
    },
    vpn: { networks: [{ name: "corp", route: "10.50.3.0/24", interfaces: [], routes: [] }] },
  },
} as const;
