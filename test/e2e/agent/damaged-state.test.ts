import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { changeLocal, readLocal } from "../../support/control-plane/exchange.ts";
import { fileEnd } from "../../support/file-end.ts";
import { holdfast, startAgent, type AgentProgram } from "../../support/machine/programs.ts";
import { DAMAGES, onDisk, setTag, stateFiles, tagged } from "../../support/machine/state-disk.ts";
import { isDue, sampleOf, TESTS_ALL } from "../../support/sample.ts";
import { eventsOf, untilOnline } from "../../support/stage.ts";
import { waitFor } from "../../support/wait-for.ts";

/** One node for all tests: each damages its state, and the last one its identity. */
let node: Awaited<ReturnType<typeof onDisk>>;
let running: AgentProgram;
const onFinished = fileEnd();

async function restart(between: () => void, signal?: NodeJS.Signals): Promise<AgentProgram> {
  await running.end(signal);
  between();
  running = await startAgent(node.home, { onFinished });
  return running;
}

beforeAll(async () => {
  node = await onDisk("8m", { onFinished });
  running = node.agent;
  await setTag(node.controller, node.uid, "second");
  await tagged(running, "second");
  // With one more start every file has a previous copy, and the database itself has the data of the first.
  await untilOnline(await restart(() => undefined));
});

test("sets any damaged file aside, reports it, and comes back online by itself", async () => {
  const { controller, uid, state } = node;
  const files = stateFiles(state);
  expect(files.length).toBeGreaterThan(15);
  // Each damage costs a restart, so several share one, but never a file and its previous copy.
  const copies = [...Map.groupBy(files, (file) => file.replace(/\.previous$/, "")).values()];
  const chosen = TESTS_ALL
    ? files
    : sampleOf(copies, 6, "damaged files").flatMap((pair) => sampleOf(pair, 1, pair.join()));
  const cases = chosen.flatMap((file) =>
    sampleOf(DAMAGES, 1, file).map(([how, spoil]) => ({ file, path: join(state, file), how, spoil })),
  );
  const rounds = TESTS_ALL ? cases.map((one) => [one]) : [cases];
  for (const spoiled of rounds) {
    const what = spoiled.map(({ file, how }) => `${file} ${how}`).join(", ");
    await restart(() => {
      for (const { path, spoil } of spoiled) writeFileSync(path, spoil(readFileSync(path)));
    });
    await untilOnline(running);
    const faults = await waitFor(`${what}: rebuilt`, async () => {
      const { faults: all } = await running.status();
      return all.every(({ mendedAt }) => mendedAt !== undefined) && all;
    });
    expect(faults, what).toHaveLength(spoiled.length);
    for (const { file, path } of spoiled) {
      expect(faults, what).toContainEqual({
        code: "damaged-file",
        message: expect.stringContaining(`${file} was damaged`) as string,
        since: expect.any(Number) as number,
        mendedAt: expect.any(Number) as number,
      });
      expect(existsSync(`${path}.damaged`), what).toBe(true);
      rmSync(`${path}.damaged`);
    }
    await tagged(running, "second");
  }
  const startups = async () =>
    (await eventsOf(controller, uid)).filter(({ eventType }) => eventType === "Node Startup Error");
  // It stays open until a start without faults.
  const [startup] = await waitFor("the damage is an event", async () => {
    const found = await startups();
    return found.length === 1 && found;
  });
  expect(JSON.stringify(startup?.details)).toContain(cases[0]?.file);
  await untilOnline(await restart(() => undefined));
  expect((await running.status()).faults).toEqual([]);

  // The record of the event's end must stay intact, or the event is new.
  const newest = files.filter((file) => file.endsWith(".json") && file !== "reported/open-events.json");
  await restart(() => newest.forEach((file) => writeFileSync(join(state, file), "damaged")));
  const all = await waitFor("all damage is an event", async () => {
    const found = await startups();
    return found.length > 2 && JSON.stringify(found.map(({ details }) => details));
  });
  for (const file of newest) expect(all).toContain(`${file} was damaged`);
  expect((await eventsOf(controller, uid)).map(({ eventType }) => eventType)).not.toContain("Identity Shared");
}, 600_000);

test.runIf(isDue("damaged copies"))(
  "reports a damaged write-ahead log, which SQLite ignores, and with both copies of a file damaged, recovers what it can and reports the rest",
  async () => {
    const { controller, home, uid, state } = node;
    await untilOnline(running);
    const ping = () => controller.call("POST", `/node/${uid}/trigger/tg-ping?wait=1`, { host: "127.0.0.1", count: 1 });
    for (let i = 0; i < 3; i += 1) expect((await ping()).status).toBe(200);
    const spoil = (...names: readonly string[]): void => {
      for (const name of names)
        for (const copy of [name, `${name}.previous`]) writeFileSync(join(state, copy), "damaged");
    };
    const path = join(state, "state.db-wal");
    let log = Buffer.alloc(0);
    await restart(() => {
      log = readFileSync(path);
      // The first byte of the first page, after the headers of the log and of the frame.
      log[32 + 24] = ~(log[32 + 24] ?? 0);
      writeFileSync(path, log);
      spoil("desired/node.json", "desired/floors.json", "reported/shadow.json", "identity/counter.json");
    }, "SIGKILL");
    const { faults } = await untilOnline(running);
    expect(faults.map(({ code }) => code)).toEqual(Array(5).fill("damaged-file"));
    expect(faults.map(({ message }) => message.slice(0, 25))).toContain("state.db-wal was damaged;");
    expect(readFileSync(`${path}.damaged`).equals(log)).toBe(true);
    await tagged(running, "second");

    // Without its registration the node registers with the same license again, as the same node.
    const nameless = await restart(() => spoil("identity/registration.json"));
    expect((await nameless.status()).node).toBeNull();
    const license = join(home, "node.license");
    const registered = await changeLocal(nameless.runDir, "/v1/register", { license: readFileSync(license, "utf8") });
    expect(registered.status).toBe(200);
    expect((await untilOnline(nameless)).node?.uid).toBe(uid);

    // Without its private keys nothing can be this node: it reports it and keeps running.
    const keyless = await restart(() => spoil("identity/keys.json"));
    expect((await keyless.status()).faults.map(({ code }) => code)).toEqual(["damaged-file", "identity-lost"]);
    expect(await keyless.status()).toMatchObject({ node: { uid }, session: { reason: { code: "identity-lost" } } });
    expect(await readLocal(keyless.runDir, "/v1/why")).toMatchObject({
      reasons: [{ section: "node", code: "identity-lost" }, {}],
    });
    const refused = await holdfast(["register", license, "--state", state, "--run", keyless.runDir]);
    expect(refused.stderr).toMatch(/identity-lost[\s\S]*holdfast reset/);
    expect((await controller.call("GET", `/node/${uid}`)).body).toMatchObject({ online: false });
  },
);
