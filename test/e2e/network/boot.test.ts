import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { cut, heal } from "../../../scripts/labs/faults.ts";
import { differences } from "../../support/network/machine-state.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { UNDER_UNITS } from "../../support/machine/real-units.ts";
import { untilAttached } from "../../support/kills/strace.ts";
import { waitFor } from "../../support/wait-for.ts";

const stage = networkStage({ a: [] });
const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };

test("a machine that starts without its control plane has the last confirmed network, and changes nothing when that is back", async () => {
  const machine = stage.machine("a");
  await machine.apply({
    ...lanSection({ ...WAN, addIps: ["192.168.1.20/24"] }),
    routes: [{ dest: "10.30.0.0/16", dev: "eth1", via: "10.9.0.2" }],
    nats: [{ source: "10.9.0.0/24", masquerade: true }],
  });
  const confirmed = machine.state();
  await machine.cutPower();
  cut(machine.lab, "a");
  machine.boot();
  expect(differences(confirmed, machine.state())).not.toEqual([]);
  await machine.start();
  await waitFor("the confirmed network is applied", () => machine.differsFrom(confirmed).length === 0);
  expect((await machine.status()).session.state).not.toBe("online");
  await heal(machine.lab, "a");
  await machine.untilOnline();
  expect(differences(confirmed, machine.state())).toEqual([]);
});

test("an agent that starts repairs the network before it tries to connect", async () => {
  const machine = stage.machine("a");
  await machine.apply({ ...lanSection({ ...WAN, addIps: ["192.168.1.20/24"] }) });
  const confirmed = machine.state();
  await machine.lab.endAgent("a");
  machine.sh("ip address delete 192.168.1.20/24 dev eth0");
  cut(machine.lab, "a");
  const trace = join(machine.lab.dir, "boot.strace");
  const options = ["-f", "-qq", "-e", "trace=execve,connect", "-e", "signal=none", "-o", trace];
  if (UNDER_UNITS) {
    // The service manager starts the agent, so it must be traced.
    const tracer = spawn("strace", [...options.filter((option) => option !== "-qq"), "-p", "1"], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    onTestFinished(() => void tracer.kill("SIGTERM"));
    await untilAttached(tracer, 1);
    await machine.start();
  } else await machine.start(["strace", ...options]);
  const calls = (): readonly string[] => readFileSync(trace, "utf8").split("\n");
  const isDialled = (line: string): boolean => /connect\(.*AF_INET6?,/.test(line);
  await waitFor("it tries to connect", () => calls().some(isDialled));
  const made = calls().findIndex((line) => /execve\(".*\/ip", \[/.test(line) && !line.includes("-json"));
  expect(made).toBeGreaterThan(-1);
  expect(made).toBeLessThan(calls().findIndex(isDialled));
  expect(differences(confirmed, machine.state())).toEqual([]);
  await heal(machine.lab, "a");
  await machine.untilOnline();
  expect(differences(confirmed, machine.state())).toEqual([]);
});
