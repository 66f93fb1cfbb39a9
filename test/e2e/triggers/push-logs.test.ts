import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { DataStoreListing } from "../../../src/protocol/triggers/data-store.ts";
import { PushedLogs } from "../../../src/protocol/documents/bundle.ts";
import { fileEnd } from "../../support/file-end.ts";
import {
  freePort,
  holdfast,
  registerNode,
  startAgent,
  startController,
  type AgentProgram,
  type ControllerProgram,
} from "../../support/machine/programs.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const NAME = /^holdfast-edge-\d{8}T\d{6}Z\.tar\.gz$/;
const PROXY_PASSWORD = "CanaryOfTheProxy1xQ7zW9vK3pL5";
const Keys = z.record(z.string(), z.unknown());

interface Edge {
  readonly dir: string;
  readonly uid: string;
  readonly controller: ControllerProgram;
  readonly agent: AgentProgram;
  readonly push: (body: object) => Promise<{ readonly status: number; readonly body: unknown }>;
}

/** A registered node with a secret in its settings, and its controller. */
async function startEdge(): Promise<Edge> {
  const dir = tempDir(onFinished);
  const config = join(dir, "agent.json");
  const proxy = `http://proxyuser:${PROXY_PASSWORD}@127.0.0.1:1`;
  writeFileSync(config, JSON.stringify({ proxy, noProxy: ["127.0.0.1"], dataStore: { reservePercent: 0 } }));
  const controller = await startController(dir, await freePort(), [], { onFinished });
  const agent = await startAgent(join(dir, "node"), { more: ["--config", config], onFinished });
  const uid = await registerNode(controller, agent, "edge");
  const push = (body: object) => controller.call("POST", `/node/${uid}/trigger/node-push-logs?wait=1`, body);
  return { dir, uid, controller, agent, push };
}

/** One node for both tests; the second one stops it. */
let edge: Edge;
const onFinished = fileEnd();

beforeAll(async () => {
  edge = await startEdge();
});

/** Unpacks with the system's own tar, and returns the files by their paths. */
function unpacked(archive: string): ReadonlyMap<string, string> {
  const to = `${archive}.d`;
  mkdirSync(to);
  execFileSync("tar", ["-xzf", archive, "-C", to]);
  const files = readdirSync(to, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return new Map(
    files.map(({ parentPath, name }) => {
      const path = join(parentPath, name);
      return [path.slice(to.length + 1), readFileSync(path, "utf8")];
    }),
  );
}

/** Returns the process that makes a bundle for an agent. */
function bundleProcessOf({ stateDir }: AgentProgram): number | undefined {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).find((pid) => {
    try {
      const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      return words.includes(stateDir) && words.includes("bundle") && words[0]?.endsWith("node") === true;
    } catch {
      // It has exited meanwhile.
      return false;
    }
  });
}

/** Returns every string in the files of keys, and the secret of the settings. */
function secretsOf(agent: AgentProgram): readonly string[] {
  const found: string[] = [PROXY_PASSWORD];
  const walk = (value: unknown, name = ""): void => {
    if (typeof value === "string" && (name === "d" || name === "k")) found.push(value);
    const inner = Keys.safeParse(value);
    if (inner.success) for (const [key, one] of Object.entries(inner.data)) walk(one, key);
  };
  for (const name of readdirSync(join(agent.stateDir, "identity"))) {
    if (name.includes("keys")) walk(JSON.parse(readFileSync(join(agent.stateDir, "identity", name), "utf8")));
  }
  return found;
}

test("an administrator downloads a node's bundle with one call, and nothing of it stays on the node", async () => {
  const { dir, uid, controller, agent } = edge;
  const archive = join(dir, "fetched.tar.gz");
  const head = join(dir, "head");
  const url = `${controller.url}/node/${uid}/bundle`;
  const curl = ["-sS", "-f", "-X", "POST", "-H", `authorization: ${controller.key()}`, "-D", head, "-o", archive, url];
  execFileSync("curl", curl);
  expect(readFileSync(head, "utf8")).toMatch(
    /content-disposition: attachment; filename="holdfast-edge-\d+T\d+Z\.tar\.gz"/,
  );
  const files = unpacked(archive);
  expect(files.get("README")).toContain("What is left out on purpose");
  for (const name of ["doctor.json", "agent/status.json", "state/settings.json", "documents/node.json"])
    expect(files.has(name), name).toBe(true);
  expect(files.get("state/settings.json")).toContain("http://127.0.0.1:1");
  const all = [...files.values()].join("\n");
  const known = secretsOf(agent);
  expect(known.length).toBeGreaterThan(2);
  expect(known.filter((secret) => all.includes(secret))).toEqual([]);
  expect(readdirSync(agent.stateDir)).not.toContain("data-store");
});

test("keeps the newest few in the data store, and writes one to a given path", async () => {
  const { uid, controller, agent, push } = edge;
  const where = ["--state", agent.stateDir, "--run", agent.runDir];
  const store = join(agent.stateDir, "data-store");
  mkdirSync(join(store, "holdfast-bundles"), { recursive: true });
  for (const day of ["01", "02", "03", "04"])
    writeFileSync(join(store, "holdfast-bundles", `holdfast-edge-202601${day}T000000Z.tar.gz`), day);
  writeFileSync(join(store, "holdfast-bundles", "mine.tar.gz"), "mine");

  const { status, body } = await push({});
  expect(status).toBe(200);
  const made = PushedLogs.parse(body);
  expect(made).toMatchObject({ name: expect.stringMatching(NAME) as string, file: `holdfast-bundles/${made.name}` });
  expect(made.archive).toBe(undefined);
  const path = join(store, "holdfast-bundles", made.name);
  expect(statSync(path)).toMatchObject({ size: made.bytes });
  expect(execFileSync("sha256sum", [path], { encoding: "utf8" })).toContain(made.sha256);
  expect(execFileSync("tar", ["-tzf", path], { encoding: "utf8" })).toContain("README\n");
  const listed = DataStoreListing.parse(
    (await controller.call("POST", `/node/${uid}/trigger/datastore-manager?wait=1`, { filename: "holdfast-bundles" }))
      .body,
  );
  expect(listed.files.map(({ name }) => name).sort()).toEqual(
    ["holdfast-edge-20260103T000000Z.tar.gz", "holdfast-edge-20260104T000000Z.tar.gz", made.name, "mine.tar.gz"].sort(),
  );

  const console_ = await holdfast(["bundle", "--to", "store:elsewhere/b.tar.gz", ...where]);
  expect(console_).toMatchObject({ code: 0, stdout: expect.stringContaining("store:elsewhere/b.tar.gz: ") as string });
  expect(execFileSync("tar", ["-tzf", join(store, "elsewhere/b.tar.gz")], { encoding: "utf8" })).toContain("README\n");

  const first = push({ inline: true });
  const making = await waitFor("a bundle is being made", () => bundleProcessOf(agent));
  process.kill(making, "SIGSTOP");
  expect(await push({ inline: true })).toMatchObject({
    status: 422,
    body: [expect.stringContaining("cannot start while node-push-logs is running")],
  });
  process.kill(making, "SIGCONT");
  expect((await first).status).toBe(200);
  expect(await push({ inline: true, file: "x" })).toMatchObject({
    status: 422,
    body: [expect.stringMatching(/^file: /)],
  });
  expect(await push({ maxBytes: 10 })).toMatchObject({ status: 422, body: [expect.stringMatching(/^maxBytes: /)] });
  expect(await push({ file: "../x" })).toMatchObject({ status: 422 });
  await agent.end();
  await waitFor("the node is offline", async () => (await push({})).status === 503);
  expect(await holdfast(["bundle", "--to", "store:x", ...where])).toMatchObject({ code: 3 });
});
