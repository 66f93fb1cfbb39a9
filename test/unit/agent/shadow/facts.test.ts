import { describe, expect, test } from "vitest";
import { reportedLinks, shadowFacts } from "../../../../src/agent/shadow/facts.ts";
import { ShadowMap } from "../../../../src/protocol/values/shadow.ts";
import { link, machine, node } from "../../../support/network/machine-readings.ts";

const route = (name: string, gateway: string | undefined, metric = 100) =>
  ({ link: name, family: 4, destination: "0.0.0.0", prefix: 0, gateway, metric }) as const;

test("does not report what is unknown", () => {
  expect(shadowFacts(machine(), node())).toEqual({
    "os.arch": "amd64",
    "node-core.version": "source",
    "profile.name": "default",
    features: {},
    "updateTime.enabled": "true",
    "tpm.enabled": "false",
  });
});

test("quantities and times are numbers, everything else is text", () => {
  const facts = shadowFacts(
    machine({
      memoryTotalBytes: 8 * 1024 ** 3,
      cores: 4,
      disk: { totalBytes: 250_000_000_000, freeBytes: 83_449_999_999, usedBytes: 100_000_000_000 },
      os: { id: "ubuntu", version: "24.04 LTS" },
      hostname: "edge-1",
      bootedAt: 1_795_216_193,
      hasTpm: true,
      nameServers: ["192.0.2.53", "fd00::53"],
    }),
    node({
      packageVersion: "1.5.20260101-0001",
      builtAt: 1_794_000_000,
      version: 1_795_000_000,
      domainUpdatedAt: 1_795_000_001,
      publishTime: 1_795_000_002_000,
      startupError: false,
      isDnsHealthy: false,
      isRepositoryReachable: true,
      isSshLocal: false,
    }),
  );
  expect(facts).toMatchObject({
    memory: 8192,
    cores: 4,
    storage: 83.4,
    "storage.total": 250,
    "os.distro.id": "ubuntu",
    "os.distro.version": "24.04 LTS",
    "os.hostname": "edge-1",
    "os.boot.tstamp": 1_795_216_193,
    "os.dns1": "192.0.2.53",
    "os.dns2": "fd00::53",
    "tpm.enabled": "true",
    "package.version": "1.5.20260101-0001",
    "package.built.tstamp": 1_794_000_000,
    version: 1_795_000_000,
    "domain.info.lastUpdate": 1_795_000_001,
    publishTime: 1_795_000_002_000,
    "startup.error": "false",
    dnsResolution: "unhealthy",
    repoConnectivity: "true",
    "ssh.local": "false",
  });
  expect(ShadowMap.parse(facts)).toEqual(facts);
});

describe("links", () => {
  test("one with an address, and a dot in its name", () => {
    const facts = shadowFacts(
      machine({
        links: [link("ens192.100", { kind: "vlan", isPhysical: false })],
        addresses: [
          { link: "ens192.100", family: 6, address: "fe80::1", prefix: 64 },
          { link: "ens192.100", family: 4, address: "192.0.2.5", prefix: 20 },
          { link: "other", family: 4, address: "198.51.100.1", prefix: 24 },
        ],
        routes: [route("other", "198.51.100.254", 1), route("ens192.100", "192.0.2.1")],
        linkConfigurations: new Map([["ens192.100", { usesDhcp: false, nameServers: ["192.0.2.53"] }]]),
      }),
      node(),
    );
    const own = Object.entries(facts).filter(([key]) => key.startsWith("nic."));
    expect(Object.fromEntries(own)).toEqual({
      "nic.ens192.100.mac": "02:00:00:00:00:0a",
      "nic.ens192.100.mtu": "1500",
      "nic.ens192.100.speed": "1000",
      "nic.ens192.100.duplex": "full",
      "nic.ens192.100.dhcp": "false",
      "nic.ens192.100.ip": "192.0.2.5/20",
      "nic.ens192.100.netmask": "255.255.240.0",
      "nic.ens192.100.gateway": "192.0.2.1",
      "nic.ens192.100.dns1": "192.0.2.53",
    });
  });

  test("one without an address has the key all the same", () => {
    const facts = shadowFacts(
      machine({ links: [link("eth1", { mac: undefined, mtu: undefined, speedMbps: undefined, duplex: undefined })] }),
      node(),
    );
    expect(Object.entries(facts).filter(([key]) => key.startsWith("nic."))).toEqual([
      ["nic.eth1.dhcp", "false"],
      ["nic.eth1.ip", ""],
    ]);
  });

  test("only those with a device, VLANs, bonds, those of the configuration, and those with a route outward", () => {
    const virtual = { isPhysical: false };
    const links = [
      link("lo", { isLoopback: true }),
      link("ens160"),
      link("bond0", { ...virtual, kind: "bond" }),
      link("docker0", { ...virtual, kind: "bridge" }),
      link("veth1", virtual),
      link("eth0", virtual),
    ];
    const names = reportedLinks({ links, routes: [route("eth0", "192.0.2.1")] }).map(({ name }) => name);
    expect(names).toEqual(["ens160", "bond0", "eth0"]);
    const managed = new Set(["veth1", "lo", "eth9"]);
    expect(reportedLinks({ links, routes: [], managed }).map(({ name }) => name)).toEqual(["ens160", "bond0", "veth1"]);
  });
});
