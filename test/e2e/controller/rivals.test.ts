import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { eventLog } from "../../../src/controller/events/service.ts";
import { RequestScope } from "../../../src/controller/http/sources.ts";
import { Images, MAX_IMAGES } from "../../../src/controller/images/service.ts";
import { connectPostgres } from "../../../src/controller/store/postgres.ts";
import { storeIn } from "../../../src/controller/stores.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { readAgentToken } from "../../../src/protocol/channel/activation.ts";
import { ACTIVATION_PATH, REGISTER_PATH, TOKEN_PATH } from "../../../src/protocol/channel/envelope.ts";
import { peekClaims, signJws } from "../../../src/protocol/channel/jws.ts";
import {
  makeIdentity,
  registerJws,
  TestNode,
  type TestIdentity,
  type TestSession,
} from "../../support/control-plane/node-client.ts";
import { startPostgres, type TestPostgres } from "../../support/control-plane/postgres.ts";
import { freePort, startController, type ControllerProgram } from "../../support/machine/programs.ts";
import { TESTS_ALL } from "../../support/sample.ts";

const ROUNDS = TESTS_ALL ? 40 : 2;
const DEVICE = { vendor: "Test", model: "Box", mac: "02:00:00:00:00:01" };

let server: TestPostgres;
/** The controllers of all tests; each test names what it creates in its own way. */
let rivals: Rivals;
const ends: (() => void)[] = [];

beforeAll(async () => {
  server = await startPostgres({ settings: ["max_connections=60"] });
  const dir = mkdtempSync(join(tmpdir(), "hf-rivals-"));
  ends.push(() => rmSync(dir, { recursive: true, force: true }));
  rivals = await startRivals(dir);
});

afterAll(async () => {
  for (const end of ends.reverse()) end();
  await server.remove();
});

interface Answer {
  readonly status: number;
  readonly body: unknown;
}

interface Rivals {
  readonly both: readonly [ControllerProgram, ControllerProgram];
  readonly database: string;
  readonly origin: string;
  /** Restarts the first. */
  readonly restart: () => Promise<void>;
  readonly query: (text: string) => Promise<readonly Record<string, unknown>[]>;
  /** Runs work with both controllers by turns, all at once. Repeats what is refused because of conflicts; a fault fails the test. */
  readonly race: (count: number, work: (call: Call, index: number) => Promise<Answer>) => Promise<Answer[]>;
  /** Registers a node, and returns its UID. */
  readonly node: (name: string) => Promise<string>;
}

/** Sends a call to one of the controllers. */
type Call = (method: string, path: string, body?: unknown) => Promise<Answer>;

/** Starts two controllers of one control plane on one database, whose lock lets everybody in. */
async function startRivals(dir: string): Promise<Rivals> {
  const { database } = (await server.createDatabase()).address;
  const query = (text: string) => server.query(database, text);
  await query(`CREATE FUNCTION pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    ALTER DATABASE ${database} SET search_path = public, pg_catalog`);
  const dirs = ["a", "b"].map((name) => join(dir, name)) as [string, string];
  const ports = [await freePort(), await freePort()] as const;
  const origin = `http://127.0.0.1:${ports[0]}`;
  const options = ["--store", `postgres://holdfast@127.0.0.1:${server.port}/${database}`, "--url", origin];
  const start = (index: 0 | 1): Promise<ControllerProgram> =>
    startController(dirs[index], ports[index], options, { onFinished: (end) => void ends.push(end) });
  const first = await start(0);
  // The keys; what else it has is in the database.
  cpSync(dirs[0], dirs[1], { recursive: true });
  const both: [ControllerProgram, ControllerProgram] = [first, await start(1)];
  const insist = async (work: () => Promise<Answer>): Promise<Answer> => {
    for (;;) {
      const answer = await work();
      if (answer.status !== 503) return answer;
      expect(JSON.stringify(answer.body)).toContain("the store is busy");
    }
  };
  const race: Rivals["race"] = async (count, work) => {
    const works = Array.from({ length: count }, (_, index) =>
      insist(() => work(callOf(both[index % 2 === 0 ? 0 : 1]), index)),
    );
    const answers = await Promise.all(works);
    expect(answers.filter(({ status }) => status >= 500)).toEqual([]);
    return answers;
  };
  return {
    both,
    database,
    origin,
    query,
    race,
    async restart() {
      await both[0].end();
      both[0] = await start(0);
    },
    async node(name) {
      const license = await both[0].license(name);
      const { status } = await register(callOf(both[0]), origin, license, await makeIdentity());
      expect(status).toBe(200);
      return peekClaims("holdfast-license+jwt", license).jti;
    },
  };
}

const callOf =
  (controller: ControllerProgram): Call =>
  (method, path, body) =>
    controller.call(method, path, body);

async function register(call: Call, origin: string, license: string, identity: TestIdentity): Promise<Answer> {
  return call("POST", REGISTER_PATH, { register: await registerJws(origin, license, identity) });
}

const EVENT = {
  eventType: "Disk Almost Full",
  level: "WARNING",
  message: "",
  timestamp: 1_760_000_000,
  details: {},
  state: "EXCEEDED",
};

const outcomeOf = (settled: PromiseSettledResult<unknown>): unknown =>
  settled.status === "fulfilled" ? settled.value : settled.reason;

const statusesOf = (answers: readonly Answer[]): readonly number[] =>
  answers.map(({ status }) => status).sort((a, b) => a - b);
const wins = (answers: readonly Answer[]): number => answers.filter(({ status }) => status === 200).length;
/** One call is done, the others are refused with a status. */
const once = (count: number, status = 422): readonly number[] => [200, ...Array<number>(count - 1).fill(status)];
const policy = (name: string) => ({
  name,
  resources: ["*"],
  statements: [{ effect: "allow", actions: ["nodes::read"] }],
});

describe("two controllers on one PostgreSQL", () => {
  test("give a name once", async () => {
    const { race, origin, both, query } = rivals;
    for (let round = 0; round < ROUNDS; round += 1) {
      const name = `round-${round}`;
      const made = {
        clusters: await race(6, (call) => call("POST", "/cluster", { name })),
        policies: await race(6, (call) => call("POST", "/v2/policy", policy(name))),
        users: await race(6, (call) => call("POST", "/v2/service-user", { name, policies: [name] })),
      };
      for (const answers of Object.values(made)) expect(statusesOf(answers)).toEqual(once(6));

      const shared = `shared-${round}`;
      const licenses = await Promise.all(both.map((one) => one.license(shared)));
      const identities = await Promise.all([makeIdentity(), makeIdentity()]);
      const answers = await race(4, (call, index) => {
        const [license, identity] = [licenses[index], identities[index]];
        if (license === undefined || identity === undefined) return call("POST", "/cluster", { name: shared });
        return register(call, origin, license, identity);
      });
      expect(wins(answers)).toBe(1);
    }
    const names =
      await query(`SELECT fqdn FROM (SELECT name, fqdn FROM nodes UNION ALL SELECT name, fqdn FROM clusters) AS named
      WHERE name LIKE 'round-%' OR name LIKE 'shared-%'`);
    expect(new Set(names.map(({ fqdn }) => fqdn)).size).toBe(names.length);
    expect(names).toHaveLength(2 * ROUNDS);
    expect(await query("SELECT 1 FROM events WHERE message LIKE 'Cluster round-% created'")).toHaveLength(ROUNDS);
    expect(await query("SELECT 1 FROM events WHERE message LIKE 'Policy round-% created'")).toHaveLength(ROUNDS);
  });

  test("take a license, an agent token and an activation code as often as they are worth", async () => {
    const { race, origin, both, query } = rivals;
    const [first] = both;
    for (let round = 0; round < ROUNDS; round += 1) {
      const license = await first.license(`edge-${round}`);
      const identities = await Promise.all(Array.from({ length: 6 }, makeIdentity));
      const of = (index: number): TestIdentity => identities[index] ?? expect.fail();
      const registered = await race(6, (call, index) => register(call, origin, license, of(index)));
      expect(wins(registered)).toBe(1);

      const order = { namePrefix: `agent-${round}`, maxUses: 3, expiresInSeconds: 600 };
      const { token } = z
        .object({ token: z.string() })
        .parse((await first.call("POST", "/v2/agent-token", order)).body);
      const { id = "", secret = "" } = readAgentToken(token) ?? {};
      const exchanged = await race(12, async (call, index) => {
        const { keys, auth } = of(index % 6);
        const claims = { aud: origin, id, secret, keys };
        return call("POST", TOKEN_PATH, { exchange: await signJws("holdfast-token-use+jwt", claims, auth) });
      });
      const licenses = exchanged.flatMap(({ status, body }) => (status === 200 ? [JSON.stringify(body)] : []));
      expect(new Set(licenses).size).toBe(3);
      expect(await query(`SELECT 1 FROM agent_token_uses WHERE token = '${id}'`)).toHaveLength(3);

      const machine = of(0);
      const shown = await first.call("POST", ACTIVATION_PATH, {
        activation: await signJws(
          "holdfast-activation+jwt",
          { aud: origin, seq: round, keys: machine.keys, device: DEVICE },
          machine.auth,
        ),
      });
      const { code } = z.object({ code: z.string() }).parse(shown.body);
      const approved = await race(4, (_, index) =>
        first.call("POST", "/v2/activation", { code, name: `code-${round}-${index}` }),
      );
      expect(wins(approved)).toBe(1);
    }
    const registrations = await query(`SELECT 1 FROM events WHERE message = 'Node registered'
      AND (node_name LIKE 'edge-%' OR node_name LIKE 'agent-%' OR node_name LIKE 'code-%')`);
    expect(registrations).toHaveLength(ROUNDS);
  });

  test("lose no update, and record each change once", async () => {
    const { race, both, query, node, restart } = rivals;
    const uid = await node("one");
    const other = await node("two");
    await both[0].call("POST", "/cluster", { name: "site" });
    const cluster = "site.holdfast.example";
    for (let round = 0; round < ROUNDS; round += 1) {
      const tags = await race(8, (call, index) => call("PUT", `/node/${uid}/tag/t${round}-${index}`, { value: "x" }));
      expect(wins(tags)).toBe(8);
      const inherited = await race(6, (call, index) =>
        call("PUT", `/cluster/${cluster}/tag/t${round}-${index}`, { value: "x" }),
      );
      expect(wins(inherited)).toBe(6);
      const item = (index: number) => ({ name: `s${round}-${index}`, protocol: "tcp", host: "127.0.0.1", port: 80 });
      const items = await race(6, (call, index) => call("POST", `/v2/node/${uid}/config/services`, item(index)));
      expect(wins(items)).toBe(6);
      const connectors = await race(6, (call, index) => {
        const port = 10_000 + 10 * round + index;
        return call("POST", `/v2/node/${index < 3 ? uid : other}/config/connectors`, {
          node: "two",
          service: `s${round}-${index}`,
          protocol: "tcp",
          port,
        });
      });
      expect(wins(connectors)).toBe(6);
      const lifecycleState = round % 2 === 0 ? "maintenance" : "production";
      await race(4, (call) => call("PUT", `/v2/node/${uid}/lifecycle-state`, { lifecycleState }));
      await race(4, (call) => call("PUT", `/node/${uid}/lock`, { addresses: [`192.0.2.${round}/32`] }));
      await race(4, (call) => call("PUT", `/node/${uid}`, { state: round % 2 === 0 ? "INACTIVE" : "ACTIVE" }));
      await race(4, (call) => call("DELETE", `/node/${uid}/lock`));
      await race(4, (call) => call("DELETE", `/node/${uid}/tag/t${round}-0`));
      await race(4, (call) => call("DELETE", `/cluster/${cluster}/tag/t${round}-0`));
    }
    const [row] = await query(`SELECT tags, config FROM nodes WHERE uid = '${uid}'`);
    const { tags, config } = z.object({ tags: z.string(), config: z.string() }).parse(row);
    expect(Object.keys(z.record(z.string(), z.string()).parse(JSON.parse(tags)))).toHaveLength(7 * ROUNDS);
    const services = z
      .object({ services: z.object({ items: z.record(z.string(), z.object({ index: z.number() })) }) })
      .parse(JSON.parse(config));
    const indexes = Object.values(services.services.items).map(({ index }) => index);
    expect(new Set(indexes).size).toBe(6 * ROUNDS);
    for (const [message, count] of [
      ["Tag % set to x", 8],
      ["Tag % removed", 1],
      ["Node locked to %", 1],
      ["Address lock removed", 1],
      ["Node updated: state %", 1],
      ["Lifecycle state set to %", 1],
    ] as const) {
      const found = await query(`SELECT 1 FROM events WHERE node_id = '${uid}' AND message LIKE '${message}'`);
      expect(found, message).toHaveLength(count * ROUNDS);
    }
    // A controller that starts builds all documents anew: none was left behind.
    const documents = () => query("SELECT node, name, sub, version, hash FROM documents ORDER BY node, name, sub");
    const before = await documents();
    await restart();
    expect(await documents()).toEqual(before);
  });

  test("store what a node sends to both once, and in its order", async () => {
    const { both, origin, query } = rivals;
    const license = await both[0].license("split");
    const { jti: uid } = peekClaims("holdfast-license+jwt", license);
    const identity = await makeIdentity();
    expect(await register(callOf(both[0]), origin, license, identity)).toMatchObject({ status: 200 });
    const sessions: TestSession[] = [];
    for (const [index, { url }] of both.entries()) {
      const node = new TestNode(url, uid, identity);
      node.n = index;
      sessions.push(await node.connect({ claims: { aud: origin } }));
    }
    const each = <T>(count: number, work: (session: TestSession, index: number) => Promise<T>) =>
      Promise.allSettled(
        Array.from({ length: count }, (_, index) => work(sessions[index % 2] ?? expect.fail("no session"), index)),
      );
    await each(1, ({ peer }) => peer.request("shadow.report", { version: 1, base: 0, set: {}, unset: [] }));
    for (let round = 0; round < ROUNDS; round += 1) {
      const records = Array.from({ length: 10 }, (_, at) => ({ ...EVENT, message: `m${10 * round + at}` }));
      const pushes = await each(6, ({ peer }) =>
        peer.request("telemetry.push", { stream: "events", first: 1 + 10 * round, records }),
      );
      expect(pushes.map(outcomeOf)).toEqual(pushes.map(() => ({ last: 10 * (round + 1) })));
      // Of reports on the same base one is taken.
      const reports = await each(6, ({ peer }, index) =>
        peer.request("shadow.report", { version: round + 2, base: round + 1, set: { n: index }, unset: [] }),
      );
      expect(reports.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
      // A version ahead of ours is continued once.
      const [before] = await query(`SELECT version FROM documents WHERE node = '${uid}' AND name = 'node'`);
      const have = Number(before?.["version"]) + 5;
      const got = await each(4, ({ peer }) => peer.request("document.get", { name: "node", have }));
      expect(got.filter(({ status }) => status === "fulfilled")).not.toEqual([]);
      if (round > 0) continue;
      expect(await query(`SELECT version FROM documents WHERE node = '${uid}' AND name = 'node'`)).toEqual([
        { version: String(have + 1) },
      ]);
    }
    const stored = await query(`SELECT message FROM events WHERE event_type = '${EVENT.eventType}' ORDER BY seq`);
    expect(stored.map(({ message }) => message)).toEqual(Array.from({ length: 10 * ROUNDS }, (_, at) => `m${at}`));
    expect(await query(`SELECT reported_version FROM nodes WHERE uid = '${uid}'`)).toEqual([
      { reported_version: String(ROUNDS + 1) },
    ]);
  });

  test("remove once what is there", async () => {
    const { race, both, query, node } = rivals;
    const [first] = both;
    for (let round = 0; round < ROUNDS; round += 1) {
      const name = `removed-${round}`;
      const uid = await node(`node-${round}`);
      await query(`INSERT INTO alerts VALUES ('${uid}', 'Node Disconnect', '${randomUUID()}', 'n', 'm',
        extract(epoch from now()))`);
      const alert = await race(6, (call) => call("DELETE", `/v2/alert/${uid}/Node%20Disconnect`));
      expect(wins(alert)).toBe(6);
      const dismissed = `SELECT 1 FROM events WHERE node_id = '${uid}' AND message = 'Alert Node Disconnect dismissed'`;
      expect(await query(dismissed)).toHaveLength(1);
      const deleted = await race(6, (call) => call("DELETE", `/node/${uid}`));
      expect(statusesOf(deleted)).toEqual(once(6, 404));
      expect(await query(`SELECT 1 FROM tombstones WHERE uid = '${uid}'`)).toHaveLength(1);
      const told = `SELECT 1 FROM events WHERE node_id = '${uid}' AND event_type = 'Node Delete'`;
      expect(await query(told)).toHaveLength(1);

      await first.call("POST", "/cluster", { name });
      const clusters = await race(6, (call) => call("DELETE", `/cluster/${name}.holdfast.example`));
      expect(statusesOf(clusters)).toEqual(once(6, 404));

      const order = { namePrefix: name, maxUses: 3, expiresInSeconds: 600 };
      const { id } = z.object({ id: z.string() }).parse((await first.call("POST", "/v2/agent-token", order)).body);
      const tokens = await race(6, (call) => call("DELETE", `/v2/agent-token/${id}`));
      expect(statusesOf(tokens)).toEqual(once(6, 404));

      // A policy that goes may have been given to a user before, whose list keeps its name; nobody brings it back.
      await first.call("POST", "/v2/policy", policy(name));
      await race(6, (call, index) =>
        index < 3 ? call("DELETE", `/v2/policy/${name}`) : call("POST", "/v2/service-user", { name, policies: [name] }),
      );
      expect(await query(`SELECT 1 FROM policy WHERE name = '${name}'`)).toEqual([]);
      const replaced = await race(4, (call) => call("PUT", `/v2/policy/${name}`, policy(name)));
      expect(wins(replaced)).toBe(0);
    }
  });

  test("give a service user one credential", async () => {
    const { race, both } = rivals;
    const [first] = both;
    await first.call("POST", "/v2/service-user", { name: "robot", policies: [] });
    for (let round = 0; round < ROUNDS; round += 1) {
      const made = await race(6, (call) => call("POST", "/v2/service-user/robot/token"));
      expect(wins(made)).toBe(6);
      const Credential = z.object({ clientId: z.string(), clientSecret: z.string() });
      const usable = await Promise.all(
        made.map(async ({ body }, index) => {
          const { clientId, clientSecret } = Credential.parse(body);
          const { url } = both[index % 2] ?? first;
          const authorization = `${clientId}:${clientSecret}`;
          const { status } = await fetch(`${url}/node`, { headers: { authorization } });
          return status !== 401;
        }),
      );
      expect(usable.filter(Boolean)).toHaveLength(1);
    }
  });

  test("hold the limits on counts", async () => {
    const { race, query, node } = rivals;
    await query(`INSERT INTO agent_tokens SELECT 'filler' || i, 's', NULL, 'p', 1, 1, 9999999999, 'admin'
      FROM generate_series(1, 996 - (SELECT count(*) FROM agent_tokens)) i`);
    const order = { namePrefix: "more", maxUses: 1, expiresInSeconds: 600 };
    expect(wins(await race(12, (call) => call("POST", "/v2/agent-token", order)))).toBe(4);
    await query(`INSERT INTO policy SELECT 'filler' || i, '{}'
      FROM generate_series(1, 9996 - (SELECT count(*) FROM policy)) i`);
    expect(wins(await race(12, (call, index) => call("POST", "/v2/policy", policy(`more-${index}`))))).toBe(4);
    await query(`INSERT INTO service_user SELECT 'filler' || i, 1
      FROM generate_series(1, 9996 - (SELECT count(*) FROM service_user)) i`);
    const users = await race(12, (call, index) => call("POST", "/v2/service-user", { name: `more-${index}` }));
    expect(wins(users)).toBe(4);

    const uids: string[] = [];
    for (let index = 0; index < 18; index += 1) uids.push(await node(`member-${index}`));
    await race(1, (call) => call("POST", "/cluster", { name: "full" }));
    const joined = await race(18, (call, index) =>
      call("PUT", `/node/${uids[index]}`, { cluster: "full.holdfast.example" }),
    );
    expect(wins(joined)).toBe(16);
    expect(await query("SELECT 1 FROM nodes WHERE cluster = 'full.holdfast.example'")).toHaveLength(16);
  });

  test("keep the images of a node apart, and within their limit", async () => {
    const { database, query, node } = rivals;
    const uid = await node("images");
    const address = { host: server.socketDirectory, port: server.port, user: "holdfast", database, isVerified: false };
    const services = [0, 1].map(() => {
      const opened = connectPostgres({ address }, { check: () => undefined });
      onTestFinished(() => opened.close());
      const store = storeIn(opened);
      return new Images({
        store,
        events: eventLog(store, systemClock(), { org: "o", domain: "d" }, new RequestScope()),
      });
    });
    const all = async (count: number, work: (images: Images, index: number) => Promise<void>): Promise<number> => {
      const ends = await Promise.allSettled(
        Array.from({ length: count }, (_, index) => work(services[index % 2] ?? expect.fail(), index)),
      );
      const codes = ends.map((end) =>
        end.status === "fulfilled" ? "done" : z.object({ code: z.string() }).parse(end.reason).code,
      );
      expect(codes.filter((code) => !["done", "item-collision", "invalid-body", "not-found"].includes(code))).toEqual(
        [],
      );
      return codes.filter((code) => code === "done").length;
    };
    const image = (id: string) => ({ id, displayName: id, location: "/a", os: "linux", description: undefined });
    expect(await all(6, (images) => images.add(uid, image("same"), "test"))).toBe(1);
    expect(await all(6, (images) => images.replace(uid, image("same"), "test"))).toBe(6);
    expect(await all(6, (images) => images.remove(uid, "same", "test"))).toBe(1);
    expect(await all(2, (images) => images.replace(uid, image("same"), "test"))).toBe(0);
    await query(`INSERT INTO images SELECT '${uid}', 'filler' || i, 'n', NULL, '/a', 'linux'
      FROM generate_series(1, ${MAX_IMAGES - 4}) i`);
    expect(await all(10, (images, index) => images.add(uid, image(`more-${index}`), "test"))).toBe(4);
  });
});
