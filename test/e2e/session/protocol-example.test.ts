import { spawn } from "node:child_process";
import { existsSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { holdfast, freePort, startAgent } from "../../support/machine/programs.ts";
import { tempDir } from "../../support/temp-dir.ts";

const EXAMPLE = "docs/protocol/example/control-plane.mjs";

test("a page of plain Node drives a node: registration, session, a connector, tg-ping", async () => {
  const source = readFileSync(EXAMPLE, "utf8");
  expect(source.split("\n").length - 1).toBeLessThan(200);
  const imported = [...source.matchAll(/from "([^"]+)"/g)].map(([, name]) => name);
  expect(new Set(imported.filter((name) => name?.startsWith("node:") !== true))).toEqual(new Set(["jose", "ws"]));

  const dir = tempDir();
  const port = await freePort();
  const log = join(dir, "control-plane.log");
  const license = join(dir, "license");
  const out = openSync(log, "a");
  const child = spawn(process.execPath, [EXAMPLE, String(port), license], { stdio: ["ignore", out, out] });
  onTestFinished(() => void child.kill("SIGKILL"));
  await expect.poll(() => existsSync(license)).toBe(true);

  const agent = await startAgent(join(dir, "node"));
  const registered = await holdfast(["register", license, "--state", agent.stateDir, "--run", agent.runDir]);
  expect(registered.code, registered.stderr).toBe(0);
  await expect.poll(() => readFileSync(log, "utf8")).toContain("tg-ping ended with 0:\n");
  expect(readFileSync(log, "utf8")).toMatch(/^document node 1: converged$/m);
  expect(readFileSync(log, "utf8")).toContain("2 packets transmitted, 2 received");

  // The connector leads to the control plane itself.
  const answer = await fetch(`http://127.0.0.1:${port + 1}/no-such-path`);
  expect(await answer.json()).toMatchObject({ code: "not-found" });

  // The same license with other keys.
  const other = await holdfast(["register", license, "--state", join(dir, "other"), "--run", join(dir, "none")]);
  expect({ code: other.code, isNamed: other.stderr.includes("with other keys") }).toEqual({ code: 1, isNamed: true });
});
