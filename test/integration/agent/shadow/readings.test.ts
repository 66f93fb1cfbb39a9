import { execFileSync } from "node:child_process";
import { hostname } from "node:os";
import { expect, test } from "vitest";
import { shadowFacts } from "../../../../src/agent/shadow/facts.ts";
import { readMachine } from "../../../../src/agent/shadow/readings.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import { linkFiles, machineRoot } from "../../../support/machine/machine-root.ts";
import { node } from "../../../support/network/machine-readings.ts";
import { MEMINFO, ROUTES, STAT } from "../../../support/machine/proc-texts.ts";

test("a machine of files becomes its shadow", () => {
  const { reader } = machineRoot({
    "/proc/meminfo": MEMINFO,
    "/proc/stat": STAT,
    "/proc/net/route": ROUTES,
    "/proc/sys/kernel/hostname": "edge-1\n",
    "/etc/os-release": "ID=ubuntu\n",
    "/etc/resolv.conf": "nameserver 192.0.2.53\n",
    ...linkFiles("eth0", { speed: "1000" }),
    "/sys/class/net/eth0/device/vendor": "",
  });
  const addresses = () => [{ link: "eth0", family: 4, address: "192.0.2.2", prefix: 24 } as const];
  expect(shadowFacts(readMachine(reader, { now: () => 0 }, addresses), node())).toMatchObject({
    memory: 7813,
    cores: 2,
    "os.hostname": "edge-1",
    "os.boot.tstamp": 1_795_216_193,
    "os.distro.id": "ubuntu",
    "os.dns1": "192.0.2.53",
    "nic.eth0.ip": "192.0.2.2/24",
    "nic.eth0.gateway": "192.0.2.1",
    "nic.eth0.speed": "1000",
  });
});

test("an empty root yields no facts about the machine and no error", () => {
  const readings = readMachine(machineRoot({}).reader, { now: () => 0 }, () => []);
  expect(
    Object.keys(shadowFacts(readings, node())).filter((key) => /^(?:memory|cores|nic|os\.(?!arch))/.test(key)),
  ).toEqual([]);
});

test("this machine: host name, architecture and the default gateway", () => {
  const facts = shadowFacts(readMachine(hostReader(), { now: Date.now }), node());
  expect(facts["os.hostname"]).toBe(hostname());
  expect(facts["os.arch"]).toBe(execFileSync("dpkg", ["--print-architecture"], { encoding: "utf8" }).trim());
  const routes = JSON.parse(execFileSync("ip", ["-j", "-4", "route", "show", "default"], { encoding: "utf8" })) as {
    dev: string;
    gateway?: string;
  }[];
  for (const { dev, gateway } of routes.slice(0, 1)) expect(facts[`nic.${dev}.gateway`]).toBe(gateway);
});
