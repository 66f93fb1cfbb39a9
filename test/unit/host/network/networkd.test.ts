import { expect, test } from "vitest";
import { readLink } from "../../../../src/host/network/ip/links.ts";
import { isLeased, networkUsesDhcp, readLinkConfiguration } from "../../../../src/host/network/networkd.ts";
import { linkFiles, machineRoot } from "../../../support/machine/machine-root.ts";

const NOW = Date.UTC(2026, 5, 1);

function configurationOf(files: Record<string, string>) {
  const { reader } = machineRoot({ ...linkFiles("eth0.5", { ifindex: "2" }), ...files });
  const link = readLink(reader, "eth0.5");
  if (link === undefined) throw new Error("no link");
  return readLinkConfiguration(reader, link, NOW);
}

test("systemd-networkd: a lease, a static network, and the servers of the link", () => {
  const state =
    "ADMIN_STATE=configured\nNETWORK_FILE=/run/systemd/network/10-netplan-eth0.network\nDNS=192.0.2.53 fd00::53\n";
  const unit = { "/run/systemd/network/10-netplan-eth0.network": "[Match]\nName=eth0\n\n[Network]\nDHCP=no\n" };
  expect(configurationOf({ "/run/systemd/netif/links/2": state, "/run/systemd/netif/leases/2": "", ...unit })).toEqual({
    usesDhcp: true,
    nameServers: ["192.0.2.53", "fd00::53"],
  });
  expect(configurationOf({ "/run/systemd/netif/links/2": state, ...unit }).usesDhcp).toBe(false);
});

test("unknown without a source", () => {
  expect(configurationOf({})).toEqual({ usesDhcp: undefined, nameServers: [] });
  expect(configurationOf({ "/run/systemd/netif/links/2": "ADMIN_STATE=unmanaged\n" }).usesDhcp).toBeUndefined();
});

test("the last DHCP= of the [Network] section counts", () => {
  expect(networkUsesDhcp("[Network]\nDHCP=yes\n[DHCP]\nUseDNS=no\n")).toBe(true);
  expect(networkUsesDhcp("[Network]\nDHCP=ipv6\n")).toBe(false);
  expect(networkUsesDhcp("[Network]\nDHCP=no\nDHCP=ipv4\n")).toBe(true);
  expect(networkUsesDhcp("[Link]\nDHCP=yes\n")).toBe(false);
  expect(networkUsesDhcp(undefined)).toBeUndefined();
});

test("dhclient: a lease counts for its link until it expires", () => {
  const lease = (link: string, expire: string): string =>
    `lease {\n  interface "${link}";\n  fixed-address 192.0.2.5;\n  expire ${expire};\n}\n`;
  expect(isLeased(lease("eth0", "2 2026/06/02 10:00:00"), "eth0", NOW)).toBe(true);
  expect(isLeased(lease("eth0", "2 2026/05/02 10:00:00"), "eth0", NOW)).toBe(false);
  expect(isLeased(lease("eth0", "never"), "eth0", NOW)).toBe(true);
  expect(isLeased(lease("eth0", `epoch ${NOW / 1000 + 5}`), "eth0", NOW)).toBe(true);
  expect(isLeased(lease("eth1", "never"), "eth0", NOW)).toBe(false);
  expect(isLeased("lease {", "eth0", NOW)).toBe(false);
  expect(configurationOf({ "/var/lib/dhcp/dhclient.leases": lease("eth0.5", "never") }).usesDhcp).toBe(true);
});

test("our own client on any link: a unit, or a running process", () => {
  const networkd = {
    "/run/systemd/netif/links/2": "NETWORK_FILE=/x.network\nDNS=192.0.2.53\n",
    "/x.network": "[Network]\nDHCP=no\n",
  };
  expect(configurationOf({ ...networkd, "/run/systemd/transient/holdfast-dhcp@eth0.5.service": "" })).toEqual({
    usesDhcp: true,
    nameServers: ["192.0.2.53"],
  });
  expect(configurationOf({ ...networkd, "/run/systemd/transient/holdfast-dhcp@eth0.service": "" }).usesDhcp).toBe(
    false,
  );
  const pid = { "/run/holdfast/dhcp-eth0.5.pid": "77 (udhcpc) S 1 77" };
  expect(configurationOf({ ...pid, "/proc/77/comm": "udhcpc\n" }).usesDhcp).toBe(true);
  expect(configurationOf(pid).usesDhcp).toBeUndefined();
});

test("NetworkManager: the connection of the device names the method", () => {
  const uuid = "0b1c6c9e-5a2f-4a63-9d0e-4f8f6f3a0001";
  const device = { "/run/NetworkManager/devices/2": `[device]\nmanaged=true\nconnection-uuid=${uuid}\n` };
  const connection = (method: string, id = uuid): Record<string, string> => ({
    "/etc/NetworkManager/system-connections/wan.nmconnection": `[connection]\nid=wan\nuuid=${id}\n\n[ipv4]\ndns=192.0.2.1;192.0.2.2;nonsense;\nmethod=${method}\n\n[ipv6]\nmethod=auto\n`,
  });
  expect(configurationOf({ ...device, ...connection("auto") })).toEqual({
    usesDhcp: true,
    nameServers: ["192.0.2.1", "192.0.2.2"],
  });
  expect(configurationOf({ ...device, ...connection("manual") }).usesDhcp).toBe(false);
  expect(configurationOf({ ...device, ...connection("auto", "another") }).usesDhcp).toBeUndefined();
  expect(configurationOf({ "/run/NetworkManager/devices/2": "[device]\nmanaged=false\n" }).usesDhcp).toBeUndefined();
});
