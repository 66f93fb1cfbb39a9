import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { freePort } from "../../support/free-port.ts";
import { isDue } from "../../support/sample.ts";

const root = join(import.meta.dirname, "../../..");
const guide = join(root, "docs/guide");

/** A block of commands after the comment `<!-- run -->`, which may contain `exit 0 or 5` and, in quotes, a part of the output. */
interface Marked {
  readonly page: string;
  readonly script: string;
  readonly exits: readonly number[];
  readonly sees: readonly string[];
}

const marked: readonly Marked[] = globSync("*.md", { cwd: guide })
  .toSorted()
  .flatMap((page) =>
    [...readFileSync(join(guide, page), "utf8").matchAll(/<!-- run(?:: (.*?))? -->\n\n```sh\n([\s\S]*?)```/g)]
      .filter(([, how]) => how === undefined || /^(?:exit|")/.test(how))
      .map(([, how = "", script = ""]) => ({
        page,
        script,
        exits: [0, ...[...how.matchAll(/\b\d\b/g)].map(([digit]) => Number(digit))],
        sees: [...how.matchAll(/"([^"]+)"/g)].map(([, text]) => text ?? ""),
      })),
  );

const dir = join(tmpdir(), `hf-guide-${process.pid}`);
/** The built program, as installed by a package. */
const holdfast = join(dir, "bin/holdfast");
const children: ChildProcess[] = [];
let env: NodeJS.ProcessEnv = {};

/** Runs commands as the guide's reader would: `holdfast` is the built program, `api` the function of the page on the API. */
function run(script: string) {
  const [, api = ""] = /(api\(\) \{.*\})/.exec(readFileSync(join(guide, "api.md"), "utf8")) ?? [];
  return spawnSync("bash", ["--norc", "-c", `${api}\n${script}`], {
    cwd: dir,
    encoding: "utf8",
    timeout: 120_000,
    env,
  });
}

function start(...args: readonly string[]): void {
  children.push(spawn(holdfast, args, { stdio: "ignore", env }));
}

beforeAll(async () => {
  mkdirSync(join(dir, "bin"), { recursive: true, mode: 0o700 });
  const [flags, bundle] = ["--disable-sigusr1 --disable-warning=ExperimentalWarning", join(root, "dist/holdfast.mjs")];
  writeFileSync(holdfast, `#!/bin/sh\nexec "${process.execPath}" ${flags} "${bundle}" "$@"\n`, { mode: 0o755 });
  const port = await freePort();
  env = {
    ...process.env,
    PATH: `${join(dir, "bin")}:${process.env["PATH"] ?? ""}`,
    CONTROLLER: `http://127.0.0.1:${port}`,
    TARGET_PORT: String(port),
    FREE_PORT: String(await freePort()),
    HOLDFAST_STATE: join(dir, "node"),
    HOLDFAST_RUN: join(dir, "run"),
  };
  start("controller", "--listen", `127.0.0.1:${port}`, "--data", join(dir, "controller"));
  const { status, stderr } = run(
    `curl -s --retry 60 --retry-connrefused --retry-delay 1 $CONTROLLER/healthz &&
     curl -fsg -H "Authorization: $(cat controller/admin.key)" "$CONTROLLER/node/license?name=guide" > license &&
     holdfast register license`,
  );
  expect({ status, stderr }).toMatchObject({ status: 0 });
  env["KEY"] = readFileSync(join(dir, "controller/admin.key"), "utf8").trim();
  start("agent");
  const uid = run(
    `until holdfast status > /dev/null; do sleep 1; done
     until api GET '/node?projection[0][0]=shadow&projection[0][1]=reported&projection[0][2]=memory' | grep -q memory; do sleep 1; done
     holdfast status --json | grep -o '"uid":"[^"]*"' | head -n 1 | cut -d '"' -f 4`,
  );
  env["NODE"] = uid.stdout.trim();
  expect(env["NODE"], uid.stderr).not.toBe("");
});

afterAll(async () => {
  for (const child of children.reverse()) {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    if (child.exitCode === null && child.kill("SIGTERM")) await ended;
  }
  // The first signal lets flows end, the second does not.
  run("pid=$(cat run/overlay.pid) && while kill $pid; do sleep 0.1; done");
  rmSync(dir, { recursive: true, force: true, maxRetries: 10 });
});

test("the guide has commands to run", () => {
  expect(marked.length).toBeGreaterThanOrEqual(12);
});

test.each(marked.map((block) => [block.page, block.script.split("\n")[0], block] as const))(
  "%s: %s",
  (_page, _line, { script, exits, sees }) => {
    const { status, stdout, stderr } = run(`set -e\n${script}`);
    expect(exits, `exit status ${status}\n${stdout}${stderr}`).toContain(status);
    for (const text of sees) expect(stdout).toContain(text);
  },
);

test.runIf(isDue("by hand"))("a control plane and a node run by hand as in the guide", () => {
  const [, byHand = ""] =
    /<!-- run: by itself -->\n\n```sh\n([\s\S]*?)```/.exec(readFileSync(join(guide, "try-it.md"), "utf8")) ?? [];
  const made = join(root, ".demo/hand");
  onTestFinished(() => rmSync(made, { recursive: true, force: true }));
  rmSync(made, { recursive: true, force: true });
  const { status, stdout, stderr } = spawnSync("bash", ["--norc", "-m", "-c", byHand], {
    cwd: root,
    encoding: "utf8",
    timeout: 250_000,
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
});

test("every mark precedes a block of commands", () => {
  // A mark elsewhere has no effect.
  const marks = globSync("*.md", { cwd: guide }).flatMap((page) =>
    /<!-- run\b[^\n]*-->\n(?!\n```sh\n)/.test(readFileSync(join(guide, page), "utf8")) ? [page] : [],
  );
  expect(marks).toEqual([]);
});
