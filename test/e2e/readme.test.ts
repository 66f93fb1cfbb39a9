import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");

test("the README's commands are programs of this checkout, and the tests run as CI runs them", () => {
  const readme = readFileSync(join(root, "README.md"), "utf8");
<<<<<<< HEAD
  const blocks = [...readme.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, text]) => text ?? "");
  const byHand = blocks.find((text) => text.includes(".demo/hand"));
  // The demo, the tests, an installation, the lab's tour, which its check runs, the demo of containers, and this.
  expect(blocks.length).toBe(6);
  onTestFinished(() => rmSync(join(root, ".demo/hand"), { recursive: true, force: true }));
  rmSync(join(root, ".demo/hand"), { recursive: true, force: true });
  const { status, stdout, stderr } = spawnSync("bash", ["--norc", "-m", "-c", byHand ?? ""], {
    cwd: root,
    encoding: "utf8",
    timeout: 300_000,
    env: { ...process.env, PS4: "+ " },
  });
  expect({ status, stderr }).toMatchObject({ status: 0 });
  for (const part of [
    '"status":"ok"',
    "registered office",
    "control-plane",
    '"memory":',
    '"exitCode":"0"',
    "Node Connect",
    "listening tcp 127.0.0.1:8488 → local/api",
  ]) {
    expect(stdout).toContain(part);
  }
  // From the control plane, through the connector, and through it again without the agent.
  expect(stdout.split('{"status":"ok"}').length - 1).toBe(3);
  // Everything else the README names exists.
  for (const [, path] of readme.matchAll(/\]\(([^)#:]+)\)/g)) expect(existsSync(join(root, path ?? ""))).toBe(true);
=======
  const blocks = [...readme.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, text]) => text?.trim());
  expect(blocks).toEqual([
    "scripts/demo",
    "scripts/test",
    "sh dist/release/install.sh --license license\nholdfast status",
  ]);
  for (const [program] of readme.matchAll(/scripts\/[a-z-]+/g)) expect(existsSync(join(root, program))).toBe(true);
  expect(readFileSync(join(root, ".ci/run"), "utf8")).toContain("exec scripts/test\n");
>>>>>>> 79dd9bc7 (docs: write a guide by task, the architecture and how to contribute)
});
