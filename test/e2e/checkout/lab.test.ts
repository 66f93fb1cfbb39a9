import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { blockUdp, cut, drop, heal, lag, pause, resume, roam } from "../../../scripts/labs/faults.ts";
import { Lab } from "../../../scripts/labs/lab.ts";
import { FULL, GATEWAY_PORT, layoutOf, namesOf } from "../../../scripts/labs/layout.ts";
import { Network } from "../../../scripts/labs/network.ts";
import { newState } from "../../../scripts/labs/state.ts";
import { aTalker, startEcho, talk, untilOver } from "../../support/overlay/mesh-stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { someTurns } from "../../support/until-still.ts";
import { waitFor } from "../../support/wait-for.ts";

/** A lab without programs. */
function bareLab(): Lab {
  const dir = join(tempDir(), "lab");
  mkdirSync(dir);
  const lab = new Lab(dir, newState(FULL));
  onTestFinished(() => Lab.down(dir));
  lab.network.build(lab.state);
  return lab;
}

/** Reports whether one host gets a ping reply from another. */
function reaches(lab: Lab, from: string, address: string): boolean {
  return countPings(lab, from, address, 1) === 1;
}

/** Returns the number of replies to this number of pings. */
function countPings(lab: Lab, from: string, address: string, count: number): number {
  const ping = ["ping", "-c", String(count), "-i", "0.01", "-W", "0.5", address];
  const { stdout } = spawnSync("ip", [...lab.network.on(from).slice(1), ...ping], { encoding: "utf8" });
  return Number(/(\d+) received/.exec(stdout)?.[1]);
}

/** Returns the processes with a directory in their command line. */
function processesOf(dir: string): readonly string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && existsSync(`/proc/${name}/cmdline`))
    .filter((name) => {
      try {
        return readFileSync(`/proc/${name}/cmdline`, "utf8").includes(dir);
      } catch {
        return false;
      }
    });
}

test("sites reach the internet through NAT and are unreachable from it, and each fault has its effect", async () => {
  const lab = bareLab();
  const gateway = lab.addressOf("gw1");
  expect(reaches(lab, "a", gateway)).toBe(true);
  expect(reaches(lab, "client", gateway)).toBe(true);
  expect(reaches(lab, "b", lab.addressOf("a"))).toBe(false);
  expect(reaches(lab, "gw1", lab.addressOf("a"))).toBe(false);

  cut(lab, "gw1");
  expect(reaches(lab, "a", gateway)).toBe(false);
  expect(reaches(lab, "gw2", gateway)).toBe(false);
  expect(reaches(lab, "a", lab.addressOf("gw2"))).toBe(true);
  cut(lab, "client");
  expect(reaches(lab, "client", lab.addressOf("gw2"))).toBe(false);
  await heal(lab);
  await waitFor("the client is back", () => reaches(lab, "client", gateway));

  for (const direction of ["in", "out"] as const) {
    drop(lab, "a", 100, direction);
    expect(reaches(lab, "a", gateway)).toBe(false);
    expect(reaches(lab, "b", gateway)).toBe(true);
    drop(lab, "a", 0, direction);
    expect(reaches(lab, "a", gateway)).toBe(true);
  }

  drop(lab, "a", 40, "both");
  const count = countPings(lab, "a", gateway, 60);
  expect(count).toBeGreaterThan(0);
  expect(count).toBeLessThan(60);
  drop(lab, "a", 0, "both");

  await startEcho(lab, "gw1", 9000);
  const asker = aTalker(lab, "a", 9000, gateway, "ask");
  const asks = (): boolean => {
    asker.send("?");
    return asker.text() !== "";
  };
  blockUdp(lab, "a");
  for (let i = 0; i < 10; i += 1) {
    expect(asks()).toBe(false);
    await someTurns();
  }
  await heal(lab, "a");
  await waitFor("datagrams pass again", asks);

  const before = lab.addressOf("a");
  const flow = aTalker(lab, "a", 9000, gateway);
  await talk(flow, "from the old address");
  expect(roam(lab, "a")).not.toBe(before);
  expect(reaches(lab, "a", gateway)).toBe(true);
  expect(reaches(lab, "gw1", before)).toBe(false);
  expect(() => roam(lab, "controller")).toThrow("stays");
  expect(() => cut(lab, "nobody")).toThrow("no host is called nobody");
  expect(() => drop(lab, "gw1", 5, "in")).toThrow("no edge is called gw1");
});

test("a lag is added to each round trip, and ends earlier connections", async () => {
  const lab = bareLab();
  await startEcho(lab, "gw1", GATEWAY_PORT);
  const gateway = lab.addressOf("gw1");
  const before = aTalker(lab, "a", GATEWAY_PORT, gateway);
  await talk(before, "near");
  await lag(lab, "a", 150);
  before.send("anybody?");
  expect(await untilOver(before)).toBe("ECONNRESET");
  const far = aTalker(lab, "a", GATEWAY_PORT, gateway);
  await talk(far, "hello");
  const begun = performance.now();
  await talk(far, "far");
  expect(performance.now() - begun).toBeGreaterThanOrEqual(150);
  await lag(lab, "a", 0);
  expect(await untilOver(far)).toBeTruthy();
  await talk(aTalker(lab, "a", GATEWAY_PORT, gateway), "near again");
});

describe("a lab", () => {
  const dir = join(mkdtempSync(join(tmpdir(), "hf-lab-")), "lab");
  let first: Lab;
  beforeAll(async () => void (first = await Lab.up(dir, layoutOf([], { a: [] }))));
  afterAll(async () => {
    await Lab.down(dir);
    rmSync(dirname(dir), { recursive: true });
  });

  test("a call of the API accepts a body larger than any argument, returns any status, and leaves no file", async () => {
    const bodies = (): readonly string[] => readdirSync(dir).filter((name) => name.startsWith("body-"));
    const dest = (at: number): string => `10.${100 + (at >> 8)}.${at & 255}.0/24`;
    const nats = Array.from({ length: 5000 }, (_, at) => ({
      uid: `${at} ${"x".repeat(100)} "\\ü\n`,
      dest: dest(at),
      toDest: "192.168.1.0/24",
    }));
    const section = { interfaces: [{ nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" }], nats };
    const text = JSON.stringify(section);
    // Beyond the limit of one argument or one line of curl's configuration.
    expect(text.length).toBeGreaterThan(512 * 1024);
    for (const body of [section, text]) {
      expect(await first.ask("PUT", "/node/{a}/config/network", body)).toMatchObject({ status: 200 });
      expect(await first.call("GET", "/node/{a}/config/network")).toEqual(section);
    }
    expect((await first.ask("PUT", "/node/{a}/config/network", "{")).status).toBe(422);
    await expect(first.call("GET", "/node/nobody")).rejects.toThrow("HTTP 4");
    await first.kill("controller", "controller");
    await expect(first.ask("PUT", "/node/{a}/config/network", section)).rejects.toThrow("curl");
    expect(bodies()).toEqual([]);
  });

  test("a lab starts whatever the previous one left, and leaves nothing behind", async () => {
    const layout = layoutOf(["gw1"], { a: [] });
    // As if the first had been killed and its files lost.
    const lab = await Lab.up(dir, layout);
    expect(Lab.open(dir).state.uids).toEqual(lab.state.uids);
    expect([...new Network(dir).hosts()].sort()).toEqual([...namesOf(layout)].sort());
    const agent = lab.pidOf("a", "agent");
    await lab.restart("agent", "a", "SIGKILL");
    expect(lab.pidOf("a", "agent")).not.toBe(agent);
    pause(lab, "gw1");
    resume(lab, "gw1");
    pause(lab, "a");
    expect(processesOf(dir).length).toBeGreaterThan(0);
    await Lab.down(dir);
    expect(processesOf(dir)).toEqual([]);
    expect(new Network(dir).hosts()).toEqual([]);
    expect(existsSync(dir)).toBe(false);
    expect(() => Lab.open(dir)).toThrow("no lab is up");
    await Lab.down(dir);
  });
});
