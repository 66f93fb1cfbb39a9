import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { peekClaims } from "../../../src/protocol/channel/jws.ts";
import { atOnce } from "../../support/at-once.ts";
import { testCertificate, type TestCertificate } from "../../support/certificates.ts";
import {
  makeIdentity,
  register,
  TestNode,
  type RawSocket,
  type TestSession,
} from "../../support/control-plane/node-client.ts";
import { startPostgres, type TestPostgres } from "../../support/control-plane/postgres.ts";
import { freePort, startController, startProgram, type ControllerProgram } from "../../support/machine/programs.ts";
import { FaultProxy } from "../../support/network/fault-proxy.ts";
import { isDue, sampleOf, TESTS_ALL } from "../../support/sample.ts";
import { startStage, statusWhere } from "../../support/stage.ts";
import { deferred } from "../../support/deferred.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const Refusal = z.object({ code: z.literal("store-unavailable"), message: z.string() });
const Policies = z.array(z.object({ name: z.string() }));

let authority: TestCertificate;
let tls: TestCertificate;
let server: TestPostgres;

beforeAll(async () => {
  authority = await testCertificate({ hosts: [], isAuthority: true });
  tls = await testCertificate({ hosts: ["127.0.0.1"], issuer: authority });
  server = await startPostgres({ tls, access: ["host all secret 127.0.0.1/32 scram-sha-256"] });
});

afterAll(() => server.remove());

/** Makes a database, and returns its name and the option that names it as reached by a port. */
async function database(at: TestPostgres = server) {
  const { database: name } = (await at.createDatabase()).address;
  const store = (port = at.port, user = "holdfast") => ["--store", `postgres://${user}@127.0.0.1:${port}/${name}`];
  return { name, store };
}

/** Opens the session of a scripted node, to which a change has been announced. */
async function rawSession(
  controller: ControllerProgram,
  onTrigger: () => Promise<object> = () => Promise.resolve({}),
): Promise<{ readonly raw: RawSocket; readonly uid: string; readonly peer: TestSession["peer"] }> {
  const license = await controller.license("raw");
  const { iss, jti } = peekClaims("holdfast-license+jwt", license);
  const identity = await makeIdentity();
  expect(await register(iss, license, identity)).toMatchObject({ status: 200 });
  const session = await new TestNode(iss, jti, identity).connect({ handlers: { "trigger.run": onTrigger } });
  await controller.call("PUT", `/node/${jti}/tag/raw`, { value: "open" });
  await waitFor("the change is announced", () => session.changed.length > 0);
  return { raw: session.raw, uid: jti, peer: session.peer };
}

const heartbeat = {
  seq: 1,
  at: 1,
  uptimeSeconds: 1,
  load: 0,
  memory: { totalBytes: 2, availableBytes: 1 },
  disk: { totalBytes: 2, freeBytes: 1, usedRatio: 0.5 },
  queue: { records: 0, dropped: 0 },
};

const policy = (name: string) => ({
  name,
  resources: ["*"],
  statements: [{ effect: "allow", actions: ["nodes::read"] }],
});

/** Waits until a write is refused because the store cannot be used, and returns the reason. */
function untilRefused(controller: ControllerProgram, reason = ""): Promise<string> {
  return waitFor(`a write is refused: ${reason}`, async () => {
    const { status, body } = await controller.call("POST", "/v2/policy", policy(`refused-${Date.now()}`));
    if (status === 200) return undefined;
    expect(status).toBe(503);
    const { message } = Refusal.parse(body);
    return message.includes(reason) ? message : undefined;
  });
}

function untilAccepted(controller: ControllerProgram): Promise<boolean> {
  return waitFor("a write is accepted", async () => {
    const { status } = await controller.call("POST", "/v2/policy", policy(`accepted-${Date.now()}`));
    return status === 200;
  });
}

/** Creates policies one after another until it is stopped. */
function startWriting(controller: ControllerProgram) {
  const acknowledged: string[] = [];
  const prefix = `written-${Date.now()}`;
  const over = new AbortController();
  const writing = (async () => {
    for (let n = 0; !over.signal.aborted; n += 1) {
      const name = `${prefix}-${n}`;
      const answer = await controller.call("POST", "/v2/policy", policy(name)).catch(() => undefined);
      if (answer?.status === 200) acknowledged.push(name);
      else if (answer !== undefined) expect(answer).toMatchObject({ status: 503, body: { code: "store-unavailable" } });
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
  })();
  return {
    acknowledged,
    async stop(): Promise<void> {
      over.abort();
      await writing;
    },
  };
}

/** Returns which of these policies a controller does not have. */
async function lost(controller: ControllerProgram, names: readonly string[]): Promise<readonly string[]> {
  const found = new Set(Policies.parse((await controller.call("GET", "/v2/policy")).body).map(({ name }) => name));
  return names.filter((name) => !found.has(name));
}

/** Resident memory of a program, in bytes. */
function residentBytes({ pid }: ControllerProgram): number {
  const [, kib] = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kib) * 1024;
}

const linesOf = (controller: ControllerProgram): number => controller.log().split("\n").length;

/** Starts a controller that must end, and returns its status and output. */
async function refusedController(dir: string, options: readonly string[]) {
  const data = join(dir, "controller");
  mkdirSync(dir, { recursive: true });
  const args = ["controller", "--listen", `127.0.0.1:${await freePort()}`, "--data", data, ...options];
  const program = startProgram(args, join(dir, "refused.log"));
  const code = await new Promise<number | null>((resolve) => program.process.once("exit", resolve));
  return { code, output: program.log() };
}

describe("while PostgreSQL", () => {
  test("is killed or stopped: sessions stay, writes are refused, nothing acknowledged is lost, and the outcome of an event is stored afterwards", async () => {
    const { store } = await database();
    const { controller, agent, uid } = await startStage(tempDir(), { controller: store() });
    let asked = deferred<void>();
    let gate = deferred<void>();
    const onTrigger = async (): Promise<object> => {
      asked.resolve();
      await gate.promise;
      return {};
    };
    const { raw, peer, uid: other } = await rawSession(controller, onTrigger);
    const { sid } = (await agent.status()).session;
    onTestFinished(() => server.start());
    for (const [index, how] of sampleOf(["kill", "stop"] as const, 1, "end of PostgreSQL").entries()) {
      const writer = startWriting(controller);
      await waitFor("some writes", () => writer.acknowledged.length > 10);
      [asked, gate] = [deferred<void>(), deferred<void>()];
      expect(await controller.call("POST", `/node/${other}/trigger/node-reboot`, {})).toMatchObject({ status: 200 });
      await asked.promise;
      const before = { lines: linesOf(controller), bytes: residentBytes(controller) };
      await server[how]();
      gate.resolve();
      await untilRefused(controller);
      expect((await controller.call("GET", "/healthz")).status).toBe(503);
      const acknowledged = writer.acknowledged.length;
      peer.notify("heartbeat", heartbeat);
      for (let sent = 0; sent < 600; sent += 20)
        await Promise.all(Array.from({ length: 20 }, () => controller.call("GET", `/node/${uid}`)));
      expect(raw.closed).toBeUndefined();
      expect(writer.acknowledged).toHaveLength(acknowledged);
      // At most a hundred lines of a kind in a minute.
      expect(linesOf(controller) - before.lines).toBeLessThan(400);
      expect(residentBytes(controller) - before.bytes).toBeLessThan(128 * 1024 * 1024);
      await server.start();
      await waitFor("writes after the restart", () => writer.acknowledged.length > acknowledged + 10);
      await writer.stop();
      expect(await lost(controller, writer.acknowledged)).toEqual([]);
      const value = `after-${how}`;
      expect(await controller.call("PUT", `/node/${uid}/tag/site`, { value })).toMatchObject({ status: 200 });
      const { session } = await statusWhere(agent, "the tag arrived", ({ tags }) => tags["site"] === value);
      expect(session.sid).toBe(sid);
      await waitFor("the audit of the outcome", async () => {
        const { body } = await controller.call("GET", `/v2/audit/${other}`);
        return JSON.stringify(body).split("node-reboot of admin ended: ok").length === index + 2;
      });
      peer.notify("heartbeat", heartbeat);
      expect(raw.closed).toBeUndefined();
    }
  });

  test("wants another password, it is read anew from its file; shows another certificate, no connection is made", async () => {
    const { store } = await database();
    await server.query("postgres", "CREATE ROLE secret LOGIN SUPERUSER PASSWORD 'first'");
    const [option = "", address = ""] = store(server.port, "secret");
    const dir = tempDir();
    const [caFile, passwordFile] = [join(dir, "ca.pem"), join(dir, "password")];
    writeFileSync(caFile, authority.cert);
    writeFileSync(passwordFile, "first\n");
    const files = ["--store-ca-file", caFile, "--store-password-file", passwordFile];
    const options = [option, `${address}?sslmode=verify-full`, ...files];
    const controller = await startController(dir, await freePort(), options);
    const { raw } = await rawSession(controller);

    await server.query("postgres", "ALTER ROLE secret PASSWORD 'second'");
    await server.disconnect();
    await untilRefused(controller, "password authentication failed");
    expect(controller.log()).not.toContain("first");
    writeFileSync(passwordFile, "second\n");
    await untilAccepted(controller);
    expect(raw.closed).toBeUndefined();

    await server.setCertificate(await testCertificate({ hosts: ["127.0.0.1"] }));
    onTestFinished(() => server.setCertificate(tls));
    await waitFor("the certificate is the reason", async () => {
      await server.disconnect();
      const { status, body } = await controller.call("POST", "/v2/policy", policy(`refused-${Date.now()}`));
      return status === 503 && Refusal.parse(body).message.includes("certificate");
    });
    const second = await refusedController(join(dir, "second"), options);
    expect(second.code).toBe(1);
    expect(second.output).toContain("certificate");
    await server.setCertificate(tls);
    await untilAccepted(controller);
    expect(raw.closed).toBeUndefined();
  });
});

/** Tests that leave the shared server as it is, and mostly wait. */
const BESIDE_EACH_OTHER: Readonly<Record<string, () => Promise<void>>> = {
  "PostgreSQL does not answer, writes are refused; takes two seconds for each answer, it is used; and the session stays":
    async () => {
      const { store } = await database();
      const proxy = await FaultProxy.start(await freePort(), server.port);
      const controller = await startController(tempDir(), await freePort(), store(proxy.port));
      const { raw } = await rawSession(controller);
      const passOn = async (): Promise<void> => {
        await proxy.set({ kind: "pass" });
        proxy.reset();
        await untilAccepted(controller);
        expect(raw.closed).toBeUndefined();
      };
      await proxy.set({ kind: "black-hole", from: "both" });
      await untilRefused(controller);
      expect(raw.closed).toBeUndefined();
      await passOn();

      await proxy.set({ kind: "late", delayMs: 2000 });
      expect(await controller.call("POST", "/v2/policy", policy("slow"))).toMatchObject({ status: 200 });
      expect(raw.closed).toBeUndefined();
      await passOn();
      expect(await lost(controller, ["slow"])).toEqual([]);
    },
  "a full disk of PostgreSQL refuses writes with its reason, and loses nothing": async () => {
    const root = tempDir();
    expect(spawnSync("mount", ["-t", "tmpfs", "-o", "size=160m", "tmpfs", root]).status).toBe(0);
    onTestFinished(() => void spawnSync("umount", ["--lazy", root]));
    const small = await startPostgres({ root, settings: ["max_wal_size=32MB", "min_wal_size=32MB"] });
    onTestFinished(() => small.stop());
    const { store } = await database(small);
    const controller = await startController(tempDir(), await freePort(), store());
    const { raw } = await rawSession(controller);
    const writer = startWriting(controller);
    await waitFor("some writes", () => writer.acknowledged.length > 10);
    const filler = join(root, "filler");
    expect(spawnSync("sh", ["-c", `cat /dev/zero > ${filler}`]).status).not.toBe(0);
    // What is written fills the pages that PostgreSQL has, until it needs another one.
    const description = "x".repeat(1000);
    await waitFor("a write is refused", async () => {
      for (let n = 0; n < 50; n += 1) {
        const name = `large-${Math.random()}`;
        if ((await controller.call("POST", "/v2/policy", { ...policy(name), description })).status === 503) return true;
      }
      return undefined;
    });
    expect(raw.closed).toBeUndefined();
    rmSync(filler);
    // A server that could not write its log has ended, and its administrator starts it again.
    await small.start();
    const { length } = writer.acknowledged;
    await waitFor("writes go on", () => writer.acknowledged.length > length + 10);
    await writer.stop();
    expect(await lost(controller, writer.acknowledged)).toEqual([]);
    expect(raw.closed).toBeUndefined();
  },

  "a controller killed while it writes has lost nothing that it acknowledged": async () => {
    const { store } = await database();
    const dir = tempDir();
    const port = await freePort();
    let controller = await startController(dir, port, store());
    const acknowledged: string[] = [];
    for (let round = 0; round < (TESTS_ALL ? 3 : 1); round += 1) {
      const writers = [startWriting(controller)];
      await waitFor("some writes", () => writers.every((writer) => writer.acknowledged.length > 20));
      await controller.end("SIGKILL");
      for (const writer of writers) {
        await writer.stop();
        acknowledged.push(...writer.acknowledged);
      }
      controller = await startController(dir, port, store());
      expect(await lost(controller, acknowledged)).toEqual([]);
    }
  },

  "a second controller on one PostgreSQL is refused by the name of the first, and starts once that one is dead":
    async () => {
      const { store } = await database();
      const first = await startController(tempDir(), await freePort(), store());
      const dir = tempDir();
      const refused = await refusedController(dir, store());
      expect(refused.code).toBe(1);
      expect(refused.output).toContain(`at ${first.url.replace("http://", "")}`);
      await first.end("SIGKILL");
      const second = await startController(first.dir.replace(/\/controller$/, ""), await freePort(), store());
      await untilAccepted(second);
    },

  "a second controller on one SQLite file is refused": async () => {
    const dir = tempDir();
    const first = await startController(dir, await freePort());
    const refused = await refusedController(dir, []);
    expect(refused.code).toBe(1);
    expect(refused.output).toContain("controller.db");
    await untilAccepted(first);
  },

  "a store of a newer version is refused and left as it is": async () => {
    const { store, name } = await database();
    const dir = tempDir();
    await (await startController(dir, await freePort(), store())).end();
    await server.query(name, "UPDATE holdfast_schema SET version = 999, compatible_from = 999");
    const refused = await refusedController(dir, store());
    expect(refused.code).toBe(1);
    expect(refused.output).toContain("newer version");
    expect(await server.query(name, "SELECT version FROM holdfast_schema")).toEqual([{ version: "999" }]);
  },
};

/** Beginnings of the claims that are proved on every third day. */
const ON_SOME_DAYS = ["PostgreSQL does not answer", "a full disk of PostgreSQL", "a store of a newer version"];

test("at once, each on a store of its own: faults of PostgreSQL, killed and second controllers, and on some days a newer store", async () => {
  await atOnce(
    Object.entries(BESIDE_EACH_OTHER).filter(
      ([claim]) => !ON_SOME_DAYS.some((text) => claim.startsWith(text)) || isDue(claim),
    ),
    ([claim]) => claim,
    ([, proves]) => proves(),
  );
});
