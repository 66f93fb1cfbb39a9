import { describe, expect, it } from "vitest";
import { ClusterSection, keepRole, roleOf } from "../../../../../src/protocol/sections/cluster/cluster.ts";
import { APPLIANCE } from "../../../../support/control-plane/example-documents.ts";
import { closedSection } from "../../../../support/sections.ts";

const MACHINE = "must be the IPv4 address of a machine";
const COUNT = "must be a whole number of at least 0";
const on = { enabled: true, host: "192.168.10.2" };

describe("the section cluster", () => {
  closedSection("cluster", ClusterSection, {
    good: [
      APPLIANCE.cluster,
      {},
      { enabled: true, host: "10.0.0.2", port: 9000, master: false },
      { enabled: false, host: "", port: 0, statusHost: null, statusPort: 0, master: null },
      { ...on, port: null, statusPort: 80 },
      { ...on, statusHost: "192.168.10.2", statusPort: 80 },
      { ...on, statusHost: "198.51.100.10", statusPort: 9000 },
      { ...on, shared: "10.0.0.50", versionCounter: 3, masterVersion: 3, updateTime: 1_764_000_000 },
    ],
    bad: [
      [{ enabled: 1 }, "cluster.enabled: must be true or false"],
      [{ enabled: true }, "cluster.host: is required with enabled"],
      [{ enabled: true, host: "" }, "cluster.host: is required with enabled"],
      [{ ...on, host: "node-a" }, `cluster.host: ${MACHINE}`],
      [{ ...on, host: "0.0.0.0" }, `cluster.host: ${MACHINE}`],
      [{ ...on, host: "127.0.0.1" }, `cluster.host: ${MACHINE}`],
      [{ ...on, host: "2001:db8::1" }, `cluster.host: ${MACHINE}`],
      [{ ...on, host: "192.168.10.2/24" }, `cluster.host: ${MACHINE}`],
      [{ ...on, port: 65_536 }, "cluster.port: must be 1..65535"],
      [{ ...on, port: "9000" }, "cluster.port: is text, and must be a whole number, 1..65535"],
      [{ ...on, statusHost: "224.0.0.1" }, `cluster.statusHost: ${MACHINE}`],
      [{ ...on, statusPort: -1 }, "cluster.statusPort: must be 1..65535"],
      [
        { ...on, statusHost: "192.168.10.2", statusPort: 9000 },
        "cluster.statusPort: 9000 is the port of the heartbeat on this address",
      ],
      [
        { ...on, port: 80, statusHost: "192.168.10.2", statusPort: 80 },
        "cluster.statusPort: 80 is the port of the heartbeat on this address",
      ],
      [{ ...on, shared: 7 }, "cluster.shared: must be text"],
      [{ master: "true" }, "cluster.master: must be true or false"],
      [{ versionCounter: -1 }, `cluster.versionCounter: ${COUNT}`],
      [{ masterVersion: 1.5 }, `cluster.masterVersion: ${COUNT}`],
      [{ updateTime: "now" }, "cluster.updateTime: is text, and must be a whole number, 0..9007199254740991"],
      [{ active: true }, "cluster.active: is not a known field"],
    ],
  });
});

describe("the role of a member", () => {
  const hint = "PUT /cluster/{clusterFQDN}/active/{nodeID} makes a member the active one";
  const master = `cluster.master: cannot be written: ${hint}`;
  const other = (field: string) =>
    `cluster.${field}: cannot be written: only the promotion of a member changes it; leave it out`;
  const active = { enabled: true, master: true, versionCounter: 3, masterVersion: 3, updateTime: 9 };

  it.each([
    [{ master: true }, undefined, [master]],
    [{ master: true }, { master: false }, [master]],
    [{ versionCounter: 1 }, undefined, [other("versionCounter")]],
    [{ ...active, versionCounter: 4 }, active, [other("versionCounter")]],
    [{ masterVersion: 1, updateTime: 2 }, { master: true }, [other("masterVersion"), other("updateTime")]],
  ])("cannot be written: %j over %j", (body, stored, lines) => {
    expect(keepRole(body, stored).refused).toEqual(lines);
  });

  it.each([
    ["absent", { enabled: false }, active, { ...active, enabled: false }],
    ["as it was read", { ...active, port: 9000 }, active, { ...active, port: 9000 }],
    ["not set", { enabled: true, master: false, versionCounter: 0, updateTime: null }, active, active],
    ["not set, and never was", { master: false, versionCounter: 0 }, undefined, { master: false, versionCounter: 0 }],
    ["not set over a cleared one", { master: false }, { master: false, host: "192.0.2.1" }, { master: false }],
  ])("is kept if it is %s", (_, body, stored, section) => {
    expect(keepRole(body, stored)).toEqual({ section, refused: [] });
  });

  it("is the only thing of a section that outlives it", () => {
    expect(roleOf(active)).toEqual({ master: true, versionCounter: 3, masterVersion: 3, updateTime: 9 });
    expect(roleOf({ enabled: true, master: false, versionCounter: 0 })).toEqual({});
    expect(roleOf(undefined)).toEqual({});
  });
});
