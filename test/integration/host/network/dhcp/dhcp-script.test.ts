import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { DHCP_SCRIPT } from "../../../../../src/host/network/dhcp/dhcp-script.ts";
import { networkMachine } from "../../../../support/network/network-machine.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

/** A link `cl`, and the function that runs the script for it. */
async function link() {
  const dir = tempDir();
  writeFileSync(join(dir, "script"), DHCP_SCRIPT, { mode: 0o700 });
  const machine = await networkMachine(dir, {}, "ip link add cl type veth peer name sv && ip link set sv up");
  const common = `interface=cl HOLDFAST_METRIC=307 HOLDFAST_LEASE=${dir}/lease`;
  const run = (environment: string, event = ""): string =>
    machine.sh(
      `${common} ${environment} ${dir}/script ${event} 2>&1; ip -4 -o address show cl | tr -s ' ' | cut -d' ' -f4`,
    );
  return {
    run,
    routes: () =>
      machine
        .sh("ip -N -4 route")
        .trim()
        .split("\n")
        .map((line) => line.trim()),
  };
}

describe("the script of the DHCP clients", () => {
  it("obeys udhcpc", async () => {
    const { run, routes } = await link();
    expect(run("", "deconfig")).toBe("");
    expect(run('ip=192.0.2.77 mask=26 router="192.0.2.65 192.0.2.66" lease=60', "bound")).toBe("192.0.2.77/26\n");
    const tail = "dev cl proto 16 ";
    const source = "src 192.0.2.77 metric 307";
    expect(routes()).toStrictEqual([
      `default via 192.0.2.65 ${tail}${source} onlink`,
      `192.0.2.64/26 ${tail}scope 253 ${source}`,
    ]);
    // Another address: the former one is removed with its routes.
    const lease = "ip=198.51.100.7 mask=32 router=203.0.113.1 lease=60";
    expect(run(`${lease} staticroutes='10.0.0.0/8 0.0.0.0 0.0.0.0/0 203.0.113.9'`, "renew")).toBe("198.51.100.7/32\n");
    const other = "src 198.51.100.7 metric 307";
    expect(routes()).toStrictEqual([`default via 203.0.113.1 ${tail}${other} onlink`]);
    expect(run("", "deconfig")).toBe("");
    expect(routes()).toStrictEqual([""]);
  });

  it("obeys dhclient", async () => {
    const { run, routes } = await link();
    expect(run("reason=PREINIT")).toBe("");
    const lease = "new_ip_address=192.0.2.77 new_subnet_mask=255.255.255.0 new_dhcp_lease_time=60";
    const classless = "new_rfc3442_classless_static_routes='17 10 1 128 192 0 2 9 0 192 0 2 1'";
    expect(run(`reason=BOUND ${lease} ${classless} new_routers=192.0.2.200`)).toBe("192.0.2.77/24\n");
    const tail = "dev cl proto 16 ";
    const source = "src 192.0.2.77 metric 307";
    expect(routes()).toStrictEqual([
      `default via 192.0.2.200 ${tail}${source} onlink`,
      `192.0.2.0/24 ${tail}scope 253 ${source}`,
    ]);
    expect(run(`reason=RENEW ${lease} ${classless}`)).toBe("192.0.2.77/24\n");
    expect(run("reason=EXPIRE")).toBe("");
  });

  it("skips the default route completely if it is not wanted", async () => {
    const { run, routes } = await link();
    const lease = "reason=BOUND HOLDFAST_GATEWAY=0 new_ip_address=192.0.2.77 new_routers=192.0.2.1";
    const halves = "1 0 192 0 2 66 1 128 192 0 2 66 0 192 0 2 66 8 10 192 0 2 66";
    const own = "src 192.0.2.77 metric 307";
    expect(run(`${lease} new_subnet_mask=255.255.255.0 new_rfc3442_classless_static_routes='${halves}'`)).toBe(
      "192.0.2.77/24\n",
    );
    expect(routes()).toStrictEqual([`192.0.2.0/24 dev cl proto 16 scope 253 ${own}`]);
    for (const mask of ["0.0.0.0", "128.0.0.0"]) {
      run("reason=EXPIRE");
      run(`${lease} new_subnet_mask=${mask}`);
      expect(routes()).toStrictEqual([""]);
    }
  });
});
