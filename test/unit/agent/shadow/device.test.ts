import { describe, expect, test } from "vitest";
import { deviceOf } from "../../../../src/agent/shadow/device.ts";
import type { Dmi } from "../../../../src/host/machine/dmi.ts";
import { Device } from "../../../../src/protocol/documents/claims.ts";
import { link, machine } from "../../../support/network/machine-readings.ts";

const NOTHING: Dmi = {
  systemVendor: undefined,
  productName: undefined,
  boardName: undefined,
  assetTag: undefined,
  hypervisor: undefined,
};

test("an appliance reports its maker, its model and its links", () => {
  const readings = machine({
    links: [link("enp1s0", { mac: "02:00:00:00:00:01" }), link("enp2s0", { mac: "02:00:00:00:00:ab" }), link("enp3s0")],
    routes: [{ link: "enp2s0", family: 4, destination: "0.0.0.0", prefix: 0, gateway: "192.0.2.1", metric: 0 }],
  });
  const device = deviceOf("Node", { ...NOTHING, systemVendor: "Protectli", productName: "FW2B" }, readings);
  expect(device).toEqual({
    vendor: "protectli",
    model: "fw2b",
    mac: "02:00:00:00:00:AB",
    wan: "enp2s0",
    lan: ["enp1s0", "enp3s0"],
  });
  expect(Device.parse(device)).toEqual(device);
});

test("an agent reports its operating system as the model", () => {
  const device = deviceOf("Agent", NOTHING, machine({ os: { id: "debian", version: undefined } }));
  expect(device).toEqual({ vendor: "agent", model: "debian", mac: "" });
});

describe("makers and models", () => {
  const azure = "7783-7084-3265-9085-8269-3286-77";
  test.each<[Partial<Dmi>, string | undefined, string, string]>([
    [{ systemVendor: "VMware, Inc.", productName: "VMware Virtual Platform" }, undefined, "vmware", "esx"],
    [{ systemVendor: "Amazon EC2", productName: "c5n.large" }, undefined, "aws", "c5n"],
    [{ systemVendor: "Google", productName: "Google Compute Engine" }, undefined, "gcp", "google-compute-engine"],
    [{ systemVendor: "Microsoft Corporation", productName: "Virtual Machine" }, undefined, "hyperv", "virtual-machine"],
    [{ systemVendor: "Microsoft Corporation", assetTag: azure }, undefined, "azure", "azure"],
    [{ systemVendor: "QEMU", productName: "Standard PC (Q35 + ICH9, 2009)" }, undefined, "kvm", "kvm"],
    [{ systemVendor: "Dell Inc.", productName: "PowerEdge R340" }, undefined, "dell", "poweredge-r340"],
    [{ systemVendor: "innotek GmbH", productName: "VirtualBox" }, undefined, "vagrant", "virtualbox"],
    [{ systemVendor: "Some Maker Ltd", boardName: "X-1" }, undefined, "some-maker-ltd", "x-1"],
    [{}, "KVM", "kvm", "kvm"],
    [{}, undefined, "unknown", "unknown"],
    [{ systemVendor: "★" }, undefined, "unknown", "unknown"],
  ])("%o on %s", (dmi, virtualHost, vendor, model) => {
    expect(deviceOf("Node", { ...NOTHING, ...dmi }, machine(), virtualHost)).toMatchObject({ vendor, model });
  });
});
