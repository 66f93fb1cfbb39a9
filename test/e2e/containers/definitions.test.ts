import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { startContainerStage, type ContainerStage } from "../../support/containers/container-stage.ts";
import { holdfast } from "../../support/run-holdfast.ts";
import { isDue } from "../../support/sample.ts";
import { waitFor } from "../../support/wait-for.ts";

let stage: ContainerStage;

/** A directory that local policy allows to bind; it does not exist at first. */
let shared: string;

beforeAll(async () => {
  shared = join(mkdtempSync(join(tmpdir(), "hf-bind-")), "shared");
  stage = await startContainerStage({ policy: { allowBinds: [shared] } });
});

afterAll(async () => {
  await stage.close();
  rmSync(dirname(shared), { recursive: true });
});

/** Puts a definition that is removed at the end of the test. */
async function put(name: string, definition?: Readonly<Record<string, unknown>>): Promise<void> {
  const answer = await stage.put(name, definition);
  expect(answer).toMatchObject({ status: 200 });
  onTestFinished(async () => {
    await stage.remove(name);
    await stage.untilGone(name);
  });
}

const bind = (source: string) => ({ mounts: [{ mountType: "bind", source, dest: "/mnt" }] });

test.runIf(isDue("crash loop"))(
  "reports a crash loop, which affects no other container and ends when the definition is disabled",
  async () => {
    await put("crashing", { command: "sh -c 'exit 3'" });
    await put("beside");
    await stage.untilRuns("beside");
    await stage.untilWhy(/^backoff .*crashing/);
    expect(await stage.put("crashing", { command: "sh -c 'exit 3'", enabled: false })).toMatchObject({ status: 200 });
    await waitFor("it has ended", async () => {
      const all = await stage.containers("crashing");
      return all.every(({ State }) => State !== "restarting" && State !== "running");
    });
    await waitFor("nothing is wrong", async () => (await stage.why()).every(({ notice }) => notice === true));
    for (const { State } of await stage.containers("crashing")) expect(State).toBe("exited");
    await stage.untilRuns("beside");
  },
);

test("a container removed by hand returns, a renamed one gets its name back, one stopped by hand stays stopped", async () => {
  await put("handled");
  const first = await stage.untilRuns("handled");
  await stage.engine.call("DELETE", `/containers/${first.Id}?force=1`);
  const second = await stage.untilRuns("handled");
  expect(second.Id).not.toBe(first.Id);
  await stage.engine.call("POST", `/containers/${second.Id}/rename?name=mine`);
  expect((await stage.untilRuns("handled")).Id).toBe(second.Id);
  await stage.engine.call("POST", `/containers/${second.Id}/stop?t=1`);
  await put("after");
  await stage.untilRuns("after");
  expect((await stage.inspect(second.Id)).State.Status).toBe("exited");
  // A new definition is not the stopped one any more.
  await stage.put("handled", { hostname: "another" });
  await stage.untilRuns("handled");
});

test("a bind with a missing source waits for it, and starts once it exists", async () => {
  await put("bound", bind(shared));
  await put("unbound");
  expect(await stage.untilWhy(/bound: .*does not exist/)).toContain(shared);
  await stage.untilRuns("unbound");
  expect(existsSync(shared)).toBe(false);
  mkdirSync(shared);
  await stage.untilRuns("bound", undefined);
});

test("the API refuses limits that contradict each other, are absurd or unknown, each with its reason", async () => {
  const cases: readonly (readonly [object, RegExp])[] = [
    [{ limits: { limits: [{ type: "nofile", soft: 200, hard: 100 }] } }, /soft/],
    [{ limits: { limits: [{ type: "files", soft: 1, hard: 1 }] } }, /must be one of core, cpu/],
    [{ limits: { memMax: 1 } }, /limits\.memMax/],
    [{ limits: { memMax: 64, memHigh: 128 } }, /memHigh/],
    [{ limits: { cpuMax: -1 } }, /limits\.cpuMax/],
    [{ limits: { ioRbps: -1 } }, /limits\.ioRbps/],
    [{ capabilities: { addCaps: ["FLYING"] } }, /must be the name of a capability/],
    [{ capabilities: { addCaps: ["ALL"] } }, /must be the name of a capability/],
    [{ stopTime: -1 }, /stopTime/],
    [bind("/etc/../etc/shadow"), /without \.\./],
    [bind("relative"), /absolute path/],
  ];
  for (const [definition, reason] of cases) {
    const { status, body } = await stage.put("absurd", { ...definition });
    expect({ status, body, definition }).toMatchObject({ status: 422 });
    expect(body).toEqual(expect.arrayContaining([expect.stringMatching(reason)]));
  }
  for (const name of ["tg-ping", "container-status", "container-exec", "node-reboot"]) {
    const { status, body } = await stage.put(name);
    expect({ name, status }).toEqual({ name, status: 422 });
    expect(body).toEqual([expect.stringMatching(/^name: /)]);
  }
  expect(await stage.containers("absurd")).toEqual([]);
});

test("accepts limits at the edge of the machine, and the engine has them", async () => {
  const limits = { cpuMax: 102_400, memMax: 6, memHigh: 6, limits: [{ type: "NOFILE", soft: 64, hard: 64 }] };
  await put("narrow", { limits });
  const { Id } = await stage.untilRuns("narrow");
  expect((await stage.inspect(Id)).HostConfig).toMatchObject({
    Memory: 6 * 1024 * 1024,
    MemorySwap: 6 * 1024 * 1024,
    Ulimits: [{ Name: "nofile", Soft: 64, Hard: 64 }],
  });
});

test("refuses what local policy forbids with its reason, and runs it if the owner of the machine allows it", async () => {
  const { socketPath } = stage.engine;
  await put("mighty", { privileged: true });
  await put("snooping", bind(stage.proxy.socketPath));
  await put("thieving", bind(stage.stateDir));
  await put("planning", bind("/etc/cron.d"));
  await put("loading", { capabilities: { addCaps: ["SYS_MODULE"] } });
  await put("harmless");
  await stage.untilRuns("harmless");
  expect(await stage.untilWhy(/mighty: /)).toMatch(/privileged: forbidden by local policy.*allowPrivileged/);
  expect(await stage.untilWhy(/snooping: /)).toMatch(/the socket of a container engine.*allowBinds/);
  expect(await stage.untilWhy(/thieving: /)).toMatch(/belongs to Holdfast itself, and no setting allows it/);
  expect(await stage.untilWhy(/planning: /)).toMatch(/`containers.allowBinds` of the node's agent.json has no entry/);
  expect(await stage.untilWhy(/loading: /)).toMatch(/SYS_MODULE forbidden by local policy.*allowCapabilities/);
  for (const name of ["mighty", "snooping", "thieving", "planning", "loading"])
    expect(await stage.containers(name)).toEqual([]);

  await stage.endAgent();
  const allowBinds = [stage.proxy.socketPath, socketPath, stage.dir];
  stage.setPolicy({ allowPrivileged: true, allowBinds, allowCapabilities: ["SYS_MODULE"] });
  await stage.startAgent();
  await stage.untilRuns("snooping");
  // An engine without the privileges itself reports it in its own words.
  for (const name of ["mighty", "loading"]) {
    const isTried = async (): Promise<boolean> => {
      const [one] = await stage.containers(name);
      return one?.State === "running" || JSON.stringify(await stage.why()).includes(`${name}: cannot start container`);
    };
    await waitFor(`${name} is allowed`, isTried);
  }
  expect(await stage.untilWhy(/thieving: /)).toMatch(/no setting allows it/);
  expect(await stage.containers("thieving")).toEqual([]);

  // A successor without the bind and with an unavailable image: the former stays as long as allowed.
  await stage.put("snooping", { image: { repository: "local/none", tag: "1" }, mounts: [] });
  await stage.untilWhy(/snooping: .*local\/none/);
  await stage.untilRuns("snooping");
  await stage.endAgent();
  stage.setPolicy({});
  await stage.startAgent();
  await waitFor("what was allowed more is stopped before its successor is there", async () => {
    return (await stage.containers("snooping")).every(({ State }) => State !== "running");
  });
  expect(await stage.untilWhy(/snooping: /)).toMatch(/local\/none|mounts: bind of /);
  await stage.untilWhy(/mighty: /);
  await waitFor("the privileged one is stopped", async () => {
    return (await stage.containers("mighty")).every(({ State }) => State !== "running");
  });
});

test("a container with an encrypted volume reports why this machine does not support it, or runs; others run anyway", async () => {
  const volume = `/v2/node/${stage.uid}/exec/volume`;
  for (const body of [{ name: "secret", encrypted: true }, { name: "plain" }]) {
    expect((await stage.call("POST", volume, body)).status).toBeLessThan(300);
  }
  const mount = (source: string) => ({ mounts: [{ mountType: "volume", source, dest: "/data" }] });
  await put("locked", mount("secret"));
  await put("open", mount("plain"));
  const { Id } = await stage.untilRuns("open");
  expect((await stage.inspect(Id)).State.Status).toBe("running");

  // The engine loses container and volume without the agent's knowledge: both return, with the node's own directory.
  const [name] = (await volumesOf(Id)).map(({ Name }) => Name);
  process.kill(stage.pid, "SIGSTOP");
  try {
    await stage.engine.call("DELETE", `/containers/${Id}?force=true`);
    await stage.engine.call("DELETE", `/volumes/${name}`);
  } finally {
    process.kill(stage.pid, "SIGCONT");
  }
  await waitFor("another container runs", async () => (await stage.untilRuns("open")).Id !== Id);
  const { body } = await stage.engine.call("GET", `/volumes/${name}`);
  expect(body).toMatchObject({ Options: { o: "bind", device: join(stage.stateDir, "data-store/volumes/plain") } });

  const output = await Promise.race([
    stage.untilWhy(/locked: |secret: /).catch(() => "runs"),
    stage.untilRuns("locked").then(
      () => "runs",
      () => new Promise<string>(() => undefined),
    ),
  ]);
  if (output !== "runs") {
    expect(output).toMatch(/unsupported|dm-crypt|cryptsetup|device mapper|key/);
    expect(await stage.containers("locked")).toEqual([]);
  }
});

async function volumesOf(id: string) {
  const { body } = await stage.engine.call("GET", `/containers/${id}/json`);
  return z.object({ Mounts: z.array(z.object({ Name: z.string() })) }).parse(body).Mounts;
}

test("the value of a variable reaches the container, and no label, log, report or reason", async () => {
  const secret = "correct-horse-battery-staple";
  await put("secretive", { variables: [{ name: "PASSWORD", value: secret }] });
  const { Id, Labels } = await stage.untilRuns("secretive");
  const { body } = await stage.engine.call("GET", `/containers/${Id}/json`);
  expect(JSON.stringify(body)).toContain(`PASSWORD=${secret}`);
  expect(JSON.stringify(Labels)).not.toContain(secret);
  await stage.put("secretive", { variables: [{ name: "PASSWORD", value: secret }], command: "/no/such/program" });
  await stage.untilWhy(/secretive: /);
  expect(JSON.stringify(await stage.why())).not.toContain(secret);
  expect(JSON.stringify(await stage.reported())).not.toContain(secret);
  expect(stage.agentLog()).not.toContain(secret);
  expect(readFileSync(join(stage.dir, "controller.log"), "utf8")).not.toContain(secret);
});

// The last of this file, since the node is another one after it.
test("a reset removes the containers and their network, and keeps the contents of volumes", async () => {
  expect((await stage.call("POST", `/v2/node/${stage.uid}/exec/volume`, { name: "kept" })).status).toBeLessThan(300);
  await put("holding", { mounts: [{ mountType: "volume", source: "kept", dest: "/data" }] });
  await stage.untilRuns("holding");
  const { code, stdout, stderr } = await holdfast(["reset", "--yes", "--json", "--run", stage.runDir]);
  expect(stderr).toBe("");
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ by: "agent", isReported: true, left: [] });
  expect(await stage.containers("holding")).toEqual([]);
  const { body } = await stage.engine.call("GET", "/networks");
  expect(JSON.stringify(body)).not.toContain("io.holdfast.owner");
  expect(existsSync(join(stage.stateDir, "data-store/volumes/kept"))).toBe(true);
  expect(existsSync(join(stage.stateDir, "identity/keys.json"))).toBe(false);
});
