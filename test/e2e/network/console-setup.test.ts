import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { onTerminal } from "../../support/terminal/answered-terminal.ts";
import { isDue } from "../../support/sample.ts";
import { BUNDLE, FLAGS, startAgent, type AgentProgram } from "../../support/machine/programs.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

/** A network namespace with a WAN that leads nowhere, and its kernel files. */
const MACHINE =
  'mount -t sysfs sysfs /sys && ip link set lo up && ip link add wan0 type veth peer name far0 && ip link set far0 up && exec "$0" "$@"';
const within = ["unshare", "-n", "-m", "sh", "-c", MACHINE];

async function startMachine() {
  expect(process.getuid?.(), "this test needs root, since it makes a network namespace").toBe(0);
  const dir = tempDir();
  const node = join(dir, "node");
  const config = join(dir, "agent.json");
  mkdirSync(node);
  writeFileSync(config, "{}");
  const start = (): Promise<AgentProgram> => startAgent(node, { within, more: ["--config", config] });
  const where = ["--config", config, "--state", join(node, "state"), "--run", join(node, "run")];
  return { dir, node, config, where, start, settings: (): unknown => JSON.parse(readFileSync(config, "utf8")) };
}

const inside = (agent: AgentProgram): string[] => ["nsenter", "-t", String(agent.pid), "-n", "-m"];
const addressesOf = (agent: AgentProgram): string => {
  const [command, ...args] = [...inside(agent), "ip", "-4", "-br", "address", "show", "wan0"];
  return execFileSync(command, args, { encoding: "utf8" });
};

async function untilKeep({ answer }: ReturnType<typeof onTerminal>): Promise<void> {
  await answer("Interface of the WAN", "wan0\r");
  await answer("dhcp, static", "static\r");
  await answer("IPv4 address", "192.0.2.10\r");
  await answer("Mask", "255.255.255.0\r");
  await answer("Gateway", "192.0.2.1\r");
  await answer("Name servers", "\r");
  await answer("Keep it?", "");
}

test("a machine that is not registered gets its network from the console, on trial, and has it after a restart", async () => {
  const { where, start, settings } = await startMachine();
  const agent = await start();
  const dialogue = onTerminal(["setup", ...where], inside(agent));
  await untilKeep(dialogue);
  expect(addressesOf(agent)).toContain("192.0.2.10/24");
  expect(settings()).toEqual({});
  await dialogue.answer("[y/N]: ", "y\r");
  await dialogue.answer("Kept", "");
  await dialogue.answer("Proxy", "\u0003");
  expect(await dialogue.ended).toBe(130);
  expect(settings()).toEqual({ network: { interfaces: [{ nic: "wan0", ip: "192.0.2.10/24", gateway: "192.0.2.1" }] } });

  // Another machine, as after a reboot: only files remain of the network.
  await agent.end();
  const again = await start();
  await waitFor("the address exists again", () => addressesOf(again).includes("192.0.2.10/24"));
  // A confirmed trial needs no further confirmation.
  expect((await again.status()).pendingChange).toBeUndefined();
});

test.each([
  ["that is not kept", "n\r"],
  ...(isDue("a network that Ctrl-C leaves open") ? [["that Ctrl-C leaves open", "\u0003"] as const] : []),
] as const)("a network %s is rolled back", async (_, keys) => {
  const { where, start, settings } = await startMachine();
  const agent = await start();
  const dialogue = onTerminal(["setup", ...where], inside(agent));
  await untilKeep(dialogue);
  expect(addressesOf(agent)).toContain("192.0.2.10/24");
  await dialogue.answer("[y/N]: ", keys);
  if (keys !== "\u0003") {
    await dialogue.answer("The network is as it was", "");
    await dialogue.answer("Interface of the WAN", "\u0003");
  }
  expect(await dialogue.ended).toBe(130);
  await waitFor("the address is removed", () => !addressesOf(agent).includes("192.0.2.10"));
  expect(settings()).toEqual({});
  expect((await agent.status()).pendingChange).toBeUndefined();
});

test("a file applies a network at once if an agent runs, and changes nothing the second time", async () => {
  const { dir, where, start, settings } = await startMachine();
  const agent = await start();
  const network = { interfaces: [{ nic: "wan0", ip: "192.0.2.20/24" }] };
  const file = join(dir, "setup.json");
  writeFileSync(file, JSON.stringify({ network }));
  const [command = "", ...args] = [
    ...inside(agent),
    process.execPath,
    ...FLAGS,
    BUNDLE,
    "setup",
    "--file",
    file,
    ...where,
  ];
  expect(execFileSync(command, args, { encoding: "utf8" })).toContain("in force now");
  expect(addressesOf(agent)).toContain("192.0.2.20/24");
  expect(settings()).toEqual({ network });
  expect(existsSync(`${dir}/agent.json.previous`)).toBe(true);
  const before = readFileSync(`${dir}/agent.json`);
  expect(execFileSync(command, args, { encoding: "utf8" })).toContain("unchanged  network");
  expect(readFileSync(`${dir}/agent.json`).equals(before)).toBe(true);
});
