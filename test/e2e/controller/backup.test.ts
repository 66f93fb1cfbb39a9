import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parseStoreUrl } from "../../../src/controller/store/postgres-settings.ts";
import type { Place } from "../../../src/controller/maintenance/places.ts";
import { peekClaims } from "../../../src/protocol/channel/jws.ts";
import type { DocumentVersions } from "../../../src/protocol/documents/claims.ts";
import { makeIdentity, register, TestNode } from "../../support/control-plane/node-client.ts";
import { startPostgres, type TestPostgres } from "../../support/control-plane/postgres.ts";
import { contentOf, keysOf } from "../../support/control-plane/store-content.ts";
import { startController, type AgentProgram, type ControllerProgram } from "../../support/machine/programs.ts";
import { holdfast } from "../../support/run-holdfast.ts";
import { eventsOf, startStage, statusWhere, untilOnline, wake } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";

let server: TestPostgres;
beforeAll(async () => {
  server = await startPostgres();
});
afterAll(() => server.remove());

const sessionsOf = (agent: AgentProgram): number => agent.log().split('"msg":"session opened"').length - 1;

async function rawNode(controller: ControllerProgram, name: string): Promise<TestNode> {
  const license = await controller.license(name);
  const { jti, iss } = peekClaims("holdfast-license+jwt", license);
  const identity = await makeIdentity();
  expect((await register(iss, license, identity)).status).toBe(200);
  return new TestNode(iss, jti, identity);
}

/** Connects a node that has these documents, and returns the versions that it is told. */
async function greet(node: TestNode) {
  const session = await node.connect();
  const { versions } = peekClaims("holdfast-server-proof+jwt", session.serverProof);
  session.raw.socket.terminate();
  return versions;
}

test("a store moves from SQLite to PostgreSQL and back; nodes notice one reconnect each time, and a backup restores it", async () => {
  const dir = tempDir();
  const { agent, controller, uid, port, options } = await startStage(dir);
  const raw = [await rawNode(controller, "raw1"), await rawNode(controller, "raw2")];
  await controller.call("PUT", `/node/${uid}/tag/site`, { value: "first" });
  const { documents } = await statusWhere(
    agent,
    "the tag and all documents arrived",
    ({ tags, documents: { domain, keys } }) => tags["site"] === "first" && domain !== undefined && keys !== undefined,
  );
  const versions: DocumentVersions[] = [];
  for (const node of raw) versions.push(await greet(node));

  const backup = join(dir, "x.backup");
  const data = ["--data", controller.dir];
  const saved = await holdfast(["controller", "backup", backup, ...data]);
  expect(saved).toMatchObject({ code: 0, stderr: "" });
  expect(statSync(backup).mode & 0o777).toBe(0o600);

  const { address } = await server.createDatabase();
  const store = `postgres://${address.user}@127.0.0.1:${server.port}/${address.database}`;
  const sqlite: Place = { dataDir: controller.dir, postgres: undefined };
  const postgres: Place = { dataDir: controller.dir, postgres: { address: parseStoreUrl(store) } };
  const keys = await keysOf(controller.dir);

  let current = controller;
  const move = async (from: Place, to: Place, more: readonly string[]) => {
    const before = sessionsOf(agent);
    await current.end();
    const content = await contentOf(from);
    expect(content["nodes"]).toHaveLength(3);
    const names = [from, to].map(({ postgres: there }) => (there === undefined ? "sqlite" : store));
    const args = ["--from", names[0] ?? "", "--to", names[1] ?? "", ...data, ...more];
    expect(await holdfast(["controller", "migrate", ...args])).toMatchObject({ code: 0, stderr: "" });
    expect(await contentOf(to)).toEqual(content);
    current = await startController(dir, port, [...options, "--store", names[1] ?? ""]);
    wake(agent);
    await statusWhere(agent, "a session with the moved controller", () => sessionsOf(agent) > before);
    expect((await untilOnline(agent)).documents).toEqual(documents);
    for (const [at, node] of raw.entries()) expect(await greet(node)).toEqual(versions[at]);
    const ping = await current.call("POST", `/node/${uid}/trigger/tg-ping?wait=1`, { host: "127.0.0.1", count: 1 });
    expect(ping).toMatchObject({ status: 200 });
    expect(sessionsOf(agent)).toBe(before + 1);
  };
  await move(sqlite, postgres, []);
  await move(postgres, sqlite, ["--replace"]);
  expect(await keysOf(controller.dir)).toEqual(keys);
  expect((await eventsOf(current, uid)).map(({ eventType }) => eventType)).not.toContain("Control Plane Restored");

  // What came after the backup is gone, under versions that nodes take.
  await current.call("PUT", `/node/${uid}/tag/site`, { value: "lost" });
  await statusWhere(agent, "the second tag arrived", ({ tags }) => tags["site"] === "lost");
  await current.end();
  expect(await holdfast(["controller", "restore", backup, ...data, "--replace"])).toMatchObject({
    code: 0,
    stderr: "",
  });
  current = await startController(dir, port, options);
  wake(agent);
  const restored = await statusWhere(agent, "the first tag is back", ({ tags }) => tags["site"] === "first");
  expect(restored.documents.node?.version).toBeGreaterThan((documents.node?.version ?? 0) + 1000);
  await current.call("PUT", `/node/${uid}/tag/site`, { value: "after" });
  await statusWhere(agent, "changes arrive again", ({ tags }) => tags["site"] === "after");
  expect(readFileSync(join(controller.dir, "admin.key"), "utf8").trim()).toBe(current.key());
});
