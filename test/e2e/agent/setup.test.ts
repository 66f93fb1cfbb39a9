import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { SetupReport } from "../../../src/protocol/local/setup.ts";
import { onTerminal } from "../../support/terminal/answered-terminal.ts";
import { runVerb } from "../../support/run-verb.ts";
import { someLicense } from "../../support/control-plane/license.ts";
import { fileEnd } from "../../support/file-end.ts";
import {
  freePort,
  holdfast,
  startAgent,
  startController,
  type ControllerProgram,
} from "../../support/machine/programs.ts";
import type { Finished } from "../../support/run-holdfast.ts";
import { untilOnline } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

/** Directories of a machine with a setup file. */
function machine(dir: string) {
  const config = join(dir, "etc/agent.json");
  const node = join(dir, "node");
  const where = ["--config", config, "--state", join(node, "state"), "--run", join(node, "run")];
  const file = join(dir, "setup.json");
  const write = (value: unknown): void =>
    writeFileSync(file, typeof value === "string" ? value : JSON.stringify(value));
  const run = (...more: readonly string[]) => holdfast(["setup", "--file", file, ...where, ...more]);
  const settings = (): unknown => JSON.parse(readFileSync(config, "utf8"));
  return { config, node, where, file, write, run, settings };
}

/** One control plane, which the last two tests do without. */
let controller: ControllerProgram;
let unused: string;
const onFinished = fileEnd();

beforeAll(async () => {
  controller = await startController(tempDir(onFinished), await freePort(), [], { onFinished });
  unused = await controller.license("unused");
});

test("a file sets a machine up at first boot, once, and the license is removed from it", async () => {
  const dir = tempDir();
  const license = await controller.license("edge");
  const { node, write, run, settings, file } = machine(dir);
  write({ license, profile: "appliance", noProxy: ["127.0.0.1"], settings: { logLevel: "debug" } });

  const dry = await run("--dry-run");
  expect(dry).toMatchObject({ code: 0, stdout: expect.stringContaining("this node would become edge.") as string });
  expect(existsSync(join(dir, "etc"))).toBe(false);

  const first = await run("--once", "--json");
  expect(first.code, first.stderr).toBe(0);
  const report = SetupReport.parse(JSON.parse(first.stdout));
  expect(report.node?.name).toBe("edge");
  expect(report.steps.map(({ step, state }) => `${step} ${state}`)).toEqual([
    "settings done",
    "register done",
    "erase done",
  ]);
  expect(settings()).toEqual({ logLevel: "debug", noProxy: ["127.0.0.1"] });
  expect(JSON.parse(readFileSync(file, "utf8"))).not.toHaveProperty("license");
  for (const { stdout, stderr } of [dry, first]) expect(stdout + stderr).not.toContain(license.slice(-40));

  const agent = await startAgent(node);
  await untilOnline(agent);
  const again = await run("--once");
  expect(again).toMatchObject({ code: 0, stdout: expect.stringContaining("there is nothing to do") as string });

  // The same with the license in use changes nothing either.
  write({ license, noProxy: ["127.0.0.1"], settings: { logLevel: "debug" } });
  const same = await run("--wait", "--json");
  expect(same.code, same.stderr).toBe(0);
  expect(SetupReport.parse(JSON.parse(same.stdout)).steps.map(({ step, state }) => `${step} ${state}`)).toEqual([
    "settings unchanged",
    "register unchanged",
    "online done",
  ]);
  const other = await controller.license("other");
  write({ license: other });
  expect(await run()).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("license: this node is edge.") as string,
  });
  // A license left by a power cut is erased all the same, but not by a dry run.
  expect(await run("--once", "--dry-run")).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("would-do   erase") as string,
  });
  expect(readFileSync(file, "utf8")).toContain(other);
  await run("--once");
  expect(readFileSync(file, "utf8")).not.toContain(other);
});

const SECRET = "hunter2hunter2";
const signed = (license: string): string => `${license.split(".").slice(0, 2).join(".")}.${"s".repeat(86)}`;

test.each<[string, unknown, string]>([
  ["is no JSON", `{"license": "${SECRET}`, "is not JSON"],
  ["is a list", "[]", "must be an object"],
  ["has an unknown member", { colour: SECRET }, "colour"],
  ["has a proxy over TLS", { proxy: `https://u:${SECRET}@x` }, "proxy: must be an http:// proxy address"],
  ["has noProxy as text", { noProxy: SECRET }, "noProxy: must be a list"],
  [
    "has a license that was cut",
    { license: signed(someLicense()).slice(0, -20) },
    "license: the license is wrong: its signature (part 3 of 3) is cut short",
  ],
  ["has a license of two parts", { license: "a.b" }, "license: the license is wrong: it must have three parts"],
  [
    "has a license that expired",
    { license: signed(someLicense({ exp: 1 })) },
    "license: the license is wrong: it expired at 1970-01-01",
  ],
  [
    "has a license for the other profile",
    { license: signed(someLicense({ exp: 4_000_000_000 })), profile: "appliance" },
    "it is for an agent",
  ],
  [
    "names a license that is not there",
    { licenseFile: "/nowhere/license" },
    "licenseFile: file /nowhere/license does not exist",
  ],
  ["has two licenses", { license: SECRET, licenseFile: "/x" }, "licenseFile: has no place beside license"],
  ["has a third profile", { profile: "router" }, "profile"],
  [
    "has a wrong address",
    { network: { interfaces: [{ nic: "eth0", ip: "192.0.2.300/24" }] } },
    "network.interfaces.0.ip",
  ],
  ["has a network for an agent", { network: { interfaces: [] }, profile: "agent" }, "network: is of an appliance"],
])("refuses a file that %s, and changes nothing", (_, content, why) =>
  isRefused(content, why, (...args) => runVerb(args)),
);

// Only the program can change settings.
test.each<[string, unknown, string]>([
  ["has a wrong setting", { settings: { logLevel: "loud" } }, "logLevel"],
  ["has an unknown setting", { settings: { colour: 1 } }, "colour: is no setting"],
  ["has the proxy at another place", { settings: { proxy: null } }, "settings.proxy: belongs beside settings"],
])("refuses a file that %s, and changes nothing", (_, content, why) =>
  isRefused(content, why, (...args) => holdfast(args)),
);

async function isRefused(
  content: unknown,
  why: string,
  setup: (...args: readonly string[]) => Promise<Finished>,
): Promise<void> {
  const dir = tempDir();
  const { write, file, where, config } = machine(dir);
  write(content);
  const { code, stdout, stderr } = await setup("setup", "--file", file, ...where);
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining(why) as string });
  expect(stdout + stderr).not.toContain(SECRET);
  expect(existsSync(config)).toBe(false);
  expect(existsSync(join(dir, "node"))).toBe(false);
}

test("an operator at a terminal registers a node, and repeats it later", async () => {
  const dir = tempDir();
  const license = await controller.license("second");
  const { node, where, settings } = machine(dir);
  const agent = await startAgent(node);

  const first = onTerminal(["setup", ...where]);
  await first.answer("Interface of the WAN", "\r");
  await first.answer("Proxy, such as", "https://192.0.2.9\r");
  await first.answer("a proxy is an http:// address", "");
  await first.answer("Proxy, such as", "http://u:secret@192.0.2.9:3128\r");
  await first.answer("Hosts to reach without it", "127.0.0.1\r");
  await first.answer("Enter if that is right", "\r");
  await first.answer("License: ", `${license.slice(0, -3)}\r`);
  await first.answer("is cut short", "");
  await first.answer("License: ", `${license}\r`);
  await first.answer("PASS http", "");
  await first.answer("No check failed.", "");
  await first.answer("Do it now? [Y/n]: ", "\r");
  await first.answer("registered second.", "");
  await first.answer("online", "");
  expect(await first.ended).toBe(0);
  expect(settings()).toEqual({ proxy: "http://u:secret@192.0.2.9:3128", noProxy: ["127.0.0.1"] });
  expect(first.shown.text).not.toContain("\u001b");
  await untilOnline(agent);

  const second = onTerminal(["setup", ...where]);
  await second.answer("second.", "");
  await second.answer("Interface of the WAN", "\r");
  await second.answer("Enter keeps http://u:***@192.0.2.9:3128", "\u0003");
  expect(await second.ended).toBe(130);
  expect(second.shown.text).not.toContain("secret");
  expect(settings()).toEqual({ proxy: "http://u:secret@192.0.2.9:3128", noProxy: ["127.0.0.1"] });
});

test("a running agent registers with it, and --wait ends when nothing answers", async () => {
  const dir = tempDir();
  const { node, write, run, where } = machine(dir);
  writeFileSync(join(dir, "license.jwt"), `${await controller.license("third")}\n`);
  const agent = await startAgent(node);
  write({ licenseFile: join(dir, "license.jwt") });
  expect(await run("--wait")).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("connected to ws://127.0.0.1") as string,
  });
  await controller.end();
  await waitFor("the node has lost its session", async () => (await agent.status()).session.state !== "online");
  const waited = await run("--wait", "--timeout", "1");
  expect(waited).toMatchObject({ code: 6, stdout: expect.stringContaining("no session within 1 s") as string });
  expect(await holdfast(["setup", "--wait", ...where])).toMatchObject({ code: 2 });
});

test("an operator at a terminal learns why the control plane does not answer, and may quit", async () => {
  const dir = tempDir();
  const license = join(dir, "license.jwt");
  writeFileSync(license, unused);
  await controller.end();
  const { where, config, node } = machine(dir);
  const { answer, ended } = onTerminal(["setup", ...where]);
  await answer("It cannot be set here: no agent runs", "");
  await answer("Proxy, such as", "\r");
  await answer("Enter if that is right", "\r");
  await answer("License: ", `${license}\r`);
  await answer("FAIL tcp", "");
  await answer("fix: see that it runs", "");
  await answer("checks failed", "");
  await answer("Do it now?", "n\r");
  await answer("Nothing of it was done.", "");
  expect(await ended).toBe(0);
  expect(existsSync(config) || existsSync(join(node, "state/identity/registration.json"))).toBe(false);
});
