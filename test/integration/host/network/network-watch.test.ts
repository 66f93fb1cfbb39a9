import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { once } from "node:events";
import { join } from "node:path";
import { writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { watchNetwork } from "../../../../src/host/network/network-watch.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { machineRoot } from "../../../support/machine/machine-root.ts";
import { waitFor } from "../../../support/wait-for.ts";

const PROGRAM = join(import.meta.dirname, "../../../support/network/watch-network.ts");

/** A watcher in a network namespace, which needs no privilege; without the kernel's own IPv6 changes. */
function watcher(engine: string) {
  const quiet = "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6";
  const inside = `mount -t sysfs sysfs /sys && ${quiet} && exec "$0" --disable-warning=ExperimentalWarning "$@"`;
  const child = spawn("unshare", ["-rnm", "sh", "-c", inside, process.execPath, PROGRAM, engine], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => lines.push(line));
  return { child, lines, ip: (command: string) => child.stdin.write(`${command}\n`) };
}

describe.concurrent.each(["netlink", "poll"])("watching by %s", (engine) => {
  test("detects links, addresses and routes that appear and disappear, and ends when closed", async ({
    expect,
    onTestFinished,
  }) => {
    const { child, lines, ip } = watcher(engine);
    onTestFinished(() => void child.kill("SIGKILL"));
    const received = async (...kinds: readonly string[]): Promise<void> => {
      await waitFor(kinds.join(), () => kinds.every((kind) => lines.includes(kind)));
      lines.length = 0;
    };
    await received(`engine ${engine}`);
    ip("link add hf-a type veth peer name hf-b");
    await received("link");
    ip("link set hf-a up");
    await received("link");
    ip("addr add 192.0.2.9/24 dev hf-a");
    // The address adds a connected route, which must not be mistaken for the route below, or that one could be removed before it is seen.
    await received("address", "route");
    ip("route add 198.51.100.0/24 via 192.0.2.1");
    await received("route");
    ip("route del 198.51.100.0/24");
    await received("route");
    child.stdin.end();
    const [code] = (await once(child, "exit")) as [number | null];
    expect(code).toBe(0);
  });
});

test("detects a changed resolver with either engine, and reports nothing twice or after closing", async () => {
  for (const engine of ["netlink", "poll"] as const) {
    const { root, reader } = machineRoot({ "/etc/resolv.conf": "nameserver 192.0.2.1\n" });
    const clock = new FakeClock();
    const seen: string[] = [];
    const watch = watchNetwork({ clock, reader, engine, onChange: (what) => seen.push(what) });
    await clock.advance(2000);
    writeFileSync(join(root, "etc/resolv.conf"), "nameserver 192.0.2.22\n");
    await clock.advance(3000);
    expect(seen.filter((what) => what === "resolver")).toEqual(["resolver"]);
    watch.close();
    watch.close();
    expect(clock.pendingTimers).toBe(0);
  }
});

test("polling does not count moving counters as changed routes", async () => {
  const route = (use: number): string => `eth0\t00000000\t010200C0\t0003\t0\t${use}\t0\t00000000\t0\t0\t0\n`;
  const { root, reader } = machineRoot({ "/proc/net/route": route(1), "/proc/net/ipv6_route": "" });
  const clock = new FakeClock();
  const seen: string[] = [];
  const watch = watchNetwork({ clock, reader, engine: "poll", onChange: (what) => seen.push(what) });
  writeFileSync(join(root, "proc/net/route"), route(2));
  await clock.advance(1000);
  expect(seen).toEqual([]);
  writeFileSync(join(root, "proc/net/route"), "");
  await clock.advance(1000);
  expect(seen).toEqual(["route"]);
  watch.close();
});

test("a wall clock ahead of the monotonic one means that the machine was suspended", async () => {
  const clock = new FakeClock();
  const seen: string[] = [];
  const watch = watchNetwork({ clock, engine: "poll", onChange: (what) => seen.push(what) });
  await clock.advance(5000);
  clock.setWall(clock.now() + 9000);
  await clock.advance(2000);
  expect(seen).not.toContain("resumed");
  clock.setWall(clock.now() + 60_000);
  await clock.advance(3000);
  expect(seen.filter((what) => what === "resumed")).toEqual(["resumed"]);
  watch.close();
  expect(clock.pendingTimers).toBe(0);
});
