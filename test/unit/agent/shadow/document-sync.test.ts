import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { beforeAll, describe, expect, test } from "vitest";
import type { Registration } from "../../../../src/agent/identity/identity.ts";
import type { Connection, ControlPlaneRpc } from "../../../../src/agent/session/attempt.ts";
import { DesiredDocuments } from "../../../../src/agent/shadow/desired.ts";
import { DocumentSync } from "../../../../src/agent/shadow/document-sync.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { signJws } from "../../../../src/protocol/channel/jws.ts";
import { keySetOf } from "../../../../src/protocol/channel/keys-chain.ts";
import { deferred } from "../../../support/deferred.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import {
  clusterDocument,
  domainDocument,
  ISS,
  keysClaims,
  nodeDocument,
  nodeIdentity,
  signDocument,
  signingKey,
  UID,
  type SigningKey,
} from "../../../support/control-plane/signing.ts";
import { untilAborted } from "../../../../src/lib/async/until-aborted.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

let root: SigningKey;
let key: SigningKey;

beforeAll(async () => {
  [root, key] = await Promise.all([signingKey(), signingKey()]);
});

/** A node of a control plane with the documents `offer`: version and body by name. */
async function setUp({ session = nodeIdentity.session, chance = 0.5 } = {}) {
  const directory = tempDir();
  mkdirSync(join(directory, "s/desired"), { recursive: true });
  const documents = await DesiredDocuments.load(hostFiles(directory), "/s");
  const clock = new FakeClock();
  let registration: Registration = {
    node: { ...nodeIdentity, session },
    controlPlane: { iss: ISS, keys: keysClaims(root, [key]) },
  };
  const offer = new Map<string, { version: number; body: string }>();
  const requested: string[] = [];
  const allowed: number[] = [];
  const known: unknown[] = [];
  const accepted: string[] = [];
  const refused: string[] = [];
  const health: boolean[] = [];
  const overdue: string[] = [];
  let hang: Promise<unknown> | undefined;
  let status = 200;
  let retryAfterMs: number | undefined;
  const sync = new DocumentSync({
    clock,
    random: () => chance,
    log: pino({ level: "silent" }),
    http: {
      send: async ({ headers, maxBytes, knownAddresses }, signal) => {
        if (hang !== undefined) await untilAborted(hang, signal);
        known.push(knownAddresses);
        allowed.push(maxBytes);
        return {
          status,
          contentType: "",
          retryAfterMs,
          body: offer.get(headers?.["holdfast-ticket"] ?? "")?.body ?? "",
        };
      },
    },
    documents,
    registration: () => registration,
    knownAddresses: () => ["192.0.2.1"],
    saveRegistration: (next) => {
      registration = next;
      return Promise.resolve();
    },
    trust: async () => ({ iss: ISS, uid: UID, keys: await keySetOf(registration.controlPlane.keys.signing) }),
    onAccepted: (name) => void accepted.push(name),
    onRefused: (name, version, { code }) => void refused.push(`${name} ${version} ${code}`),
    onHealth: (isHealthy) => void health.push(isHealthy),
    onOverdue: () => void overdue.push(sync.overdue.map(({ name, cause }) => `${name}: ${cause}`).join()),
  });
  const request = (_method: string, { name, have }: { name: string; have: number }) => {
    requested.push(name);
    const version = offer.get(name)?.version ?? (name === "keys" ? 1 : 0);
    return Promise.resolve(version === have ? { version, unchanged: true } : { version, ticket: name });
  };
  const connect = () => {
    const over = new AbortController();
    const at = (name: string) => offer.get(name)?.version ?? 0;
    const versions = { keys: at("keys") || 1, node: at("node"), cluster: at("cluster"), domain: at("domain") };
    const connection = { rpc: { request }, signal: over.signal, proof: { versions } } as unknown as Connection;
    sync.online(connection);
    return connection;
  };
  const put = async (name: "node" | "cluster" | "domain", version: number, body: Record<string, unknown>, by = key) => {
    offer.set(name, { version, body: await signDocument(by, name, version, body) });
  };
  const answer = (code: number, waitMs?: number) => {
    status = code;
    retryAfterMs = waitMs;
  };
  return {
    sync,
    documents,
    clock,
    offer,
    requested,
    accepted,
    refused,
    health,
    connect,
    rpc: { request } as unknown as ControlPlaneRpc,
    allowed,
    known,
    put,
    answer,
    overdue,
    hangUntil: (until: Promise<unknown> | undefined) => void (hang = until),
    registration: () => registration,
  };
}

const versions = (documents: DesiredDocuments) =>
  ["node", "cluster", "domain"].map((name) => documents.version(name as "node"));

describe("documents", () => {
  test("that differ are fetched when a session opens, each after those that it depends on", async () => {
    const { put, connect, documents, accepted, clock, sync } = await setUp();
    await put("node", 2, nodeDocument({ cluster: "c1.example.net" }));
    await put("cluster", 3, clusterDocument("c1.example.net"));
    await put("domain", 4, domainDocument());
    connect();
    await waitFor("the documents", () => documents.version("domain") === 4);
    expect(versions(documents)).toEqual([2, 3, 4]);
    expect(accepted).toEqual(["node", "cluster", "domain"]);
    expect(clock.pendingTimers).toBe(1);
    sync.offline();
    expect(clock.pendingTimers).toBe(0);
  });

  test("that are the same are not requested, until a hint or ten minutes", async () => {
    const { put, connect, documents, requested, sync, clock } = await setUp();
    await put("node", 2, nodeDocument());
    connect();
    await waitFor("the document", () => documents.version("node") === 2);
    await waitFor("the rest", () => requested.length === 1);
    await put("node", 3, nodeDocument({ tags: { a: "b" } }));
    sync.request(["node"]);
    await waitFor("the newer one", () => documents.version("node") === 3);
    await put("node", 4, nodeDocument());
    await clock.advance(600_000);
    await waitFor("the newest", () => documents.version("node") === 4);
  });

  test("of a cluster that was left are deleted without a request", async () => {
    const { put, connect, documents, accepted } = await setUp();
    await put("node", 2, nodeDocument({ cluster: "c1.example.net" }));
    await put("cluster", 3, clusterDocument("c1.example.net"));
    connect();
    await waitFor("the cluster", () => documents.version("cluster") === 3);
    await put("node", 3, nodeDocument());
    connect();
    await waitFor("the leaving", () => documents.current.cluster === undefined);
    await waitFor("its report", () => accepted.at(-1) === "cluster");
  });

  test("that are refused are not fetched again until a newer one comes", async () => {
    const { put, connect, documents, refused, sync, requested } = await setUp();
    await put("node", 2, { ...nodeDocument(), state: "ASLEEP" });
    connect();
    await waitFor("the refusal", () => refused.length === 1);
    sync.request(["node"]);
    await waitFor("the second look", () => requested.length >= 2);
    expect(refused).toEqual(["node 2 invalid-document"]);
    await put("node", 3, nodeDocument());
    sync.request(["node"]);
    await waitFor("the newer one", () => documents.version("node") === 3);
  });

  test("that cannot be fetched are retried with backoff, and the second failure is reported", async () => {
    const { put, connect, documents, health, clock, answer } = await setUp();
    await put("node", 2, nodeDocument());
    answer(503);
    connect();
    await waitFor("the second failure", async () => {
      await clock.advance(1000);
      return health.length > 0;
    });
    expect(clock.elapsed()).toBeLessThan(60_000);
    expect(health[0]).toBe(false);
    answer(200);
    await clock.advance(60_000);
    await waitFor("the document", () => documents.version("node") === 2);
    await waitFor("health", () => health.at(-1) === true);
  });
});

test("a version below the floor is fetched again once the floor is reset", async () => {
  const { put, connect, documents, refused, sync } = await setUp();
  await put("node", 9, nodeDocument());
  connect();
  await waitFor("the document", () => documents.version("node") === 9);
  await put("node", 5, nodeDocument({ tags: { a: "b" } }));
  sync.request(["node"]);
  await waitFor("the refusal", () => refused.length === 1);
  expect(refused).toEqual(["node 5 below-floor"]);
  await documents.resetFloor("node");
  sync.retry("node");
  await waitFor("the older document", () => documents.version("node") === 5);
});

test.each([
  ["the session's host", nodeIdentity.session, ["192.0.2.1"]],
  ["another host", "wss://sessions.example.net/agent/v1/session", undefined],
])("are fetched from %s by the addresses known for it", async (_what, session, expected) => {
  const { put, connect, documents, known } = await setUp({ session });
  await put("node", 2, nodeDocument());
  connect();
  await waitFor("the document", () => documents.version("node") === 2);
  expect(known).toEqual([expected]);
});

describe("a download that is not a document", () => {
  test.each<[string, (good: string) => string | Promise<string>, string[]]>([
    ["HTML", () => "<html>Please log in</html>", []],
    ["nothing", () => "", []],
    ["a part of it", (good) => good.slice(0, -10), ["node 2 bad-signature"]],
    ["a stranger's", async () => signDocument(await signingKey(), "node", 2, nodeDocument()), ["node 2 bad-signature"]],
    [
      "another node's",
      () => signDocument(key, "node", 2, nodeDocument(), { aud: UID.replace("0", "1") }),
      ["node 2 bad-signature"],
    ],
  ])("%s, is fetched again, and the others in the same run", async (_what, make, expected) => {
    const { put, offer, connect, documents, refused, clock } = await setUp();
    await put("node", 2, nodeDocument());
    await put("domain", 3, domainDocument());
    const good = offer.get("node")?.body ?? "";
    offer.set("node", { version: 2, body: await make(good) });
    connect();
    await waitFor("the other document", () => documents.version("domain") === 3);
    expect(refused).toEqual(expected);
    offer.set("node", { version: 2, body: good });
    await clock.advance(60_000);
    await waitFor("the document", () => documents.version("node") === 2);
  });

  test("is reported with the signed version, which is not fetched again", async () => {
    const { connect, offer, refused, documents, sync } = await setUp();
    const old = await signDocument(key, "node", 2, { ...nodeDocument(), state: "ASLEEP" });
    offer.set("node", { version: 7, body: old });
    connect();
    await waitFor("the refusal", () => refused.length === 1);
    expect(refused).toEqual(["node 2 invalid-document"]);
    offer.set("node", { version: 7, body: await signDocument(key, "node", 7, nodeDocument()) });
    sync.request(["node"]);
    await waitFor("the document", () => documents.version("node") === 7);
  });
});

test.each([
  [503, 1_800_000, 0, 1_800_500],
  [429, 1_800_000, 0.5, 1_890_000],
  [429, 5000, 0.5, 10_000],
  [429, 86_400_000, 0.25, 3_690_000],
  [500, 1_800_000, 0.5, 2000],
])(
  "obeys an answer %i with Retry-After %i ms, with a chance of %d, for %i ms, whatever happens meanwhile",
  async (code, requested, chance, wait) => {
    const { put, connect, documents, clock, answer, sync, requested: requests } = await setUp({ chance });
    await put("node", 2, nodeDocument());
    answer(code, requested);
    connect();
    // Until the failure there is the timer of ten minutes; afterwards one for the retry.
    await waitFor("the request", () => requests.length === 1);
    await new Promise(setImmediate);
    answer(200);
    if (code !== 500) {
      sync.request(["node"]);
      connect();
    }
    await clock.advance(wait - 1);
    await new Promise(setImmediate);
    expect([requests.length, documents.version("node")]).toEqual([1, 0]);
    await clock.advance(1);
    await waitFor("the document", () => documents.version("node") === 2);
  },
);

describe("keys", () => {
  test("come first, so that documents signed by the new key are accepted in the same run", async () => {
    const { put, connect, documents, offer, registration, refused } = await setUp();
    const next = await signingKey();
    const jws = await signJws("holdfast-keys+jwt", keysClaims(root, [next], 2), root);
    offer.set("keys", { version: 2, body: JSON.stringify([{ jws }]) });
    await put("node", 2, nodeDocument(), next);
    connect();
    await waitFor("the document", () => documents.version("node") === 2);
    expect(registration().controlPlane.keys.version).toBe(2);
    expect(refused).toEqual([]);
  });

  test.each([
    ["by a stranger", async () => signJws("holdfast-keys+jwt", keysClaims(root, [key], 2), await signingKey())],
    ["with a version left out", () => signJws("holdfast-keys+jwt", keysClaims(root, [key], 3), root)],
    ["that are none", () => Promise.resolve("a.b.c")],
  ])("%s are refused and change nothing", async (_what, make) => {
    const { connect, offer, registration, refused } = await setUp();
    offer.set("keys", { version: 2, body: JSON.stringify([{ jws: await make() }]) });
    connect();
    await waitFor("the refusal", () => refused.length === 1);
    expect(refused[0]).toMatch(/^keys 2 /);
    expect(registration().controlPlane.keys.version).toBe(1);
  });
});

describe("keys of a session that is not verified yet", () => {
  const signal = new AbortController().signal;

  test.each([
    ["junk", () => Promise.resolve("junk")],
    [
      "a stranger's",
      async () =>
        JSON.stringify([{ jws: await signJws("holdfast-keys+jwt", keysClaims(root, [key], 2), await signingKey()) }]),
    ],
  ])("that are %s are neither reported nor remembered", async (_what, make) => {
    const { sync, rpc, offer, refused, registration, allowed, accepted } = await setUp();
    offer.set("keys", { version: 2, body: await make() });
    await expect(sync.refreshKeys(rpc, signal)).rejects.toMatchObject({ name: "InputError" });
    expect(refused).toEqual([]);
    const jws = await signJws("holdfast-keys+jwt", keysClaims(root, [key], 2), root);
    offer.set("keys", { version: 2, body: JSON.stringify([{ jws }]) });
    expect(await sync.refreshKeys(rpc, signal)).toBe(true);
    expect(registration().controlPlane.keys.version).toBe(2);
    expect(accepted).toEqual(["keys"]);
    expect(allowed).toEqual([1024 * 1024, 1024 * 1024]);
    expect(await sync.refreshKeys(rpc, signal)).toBe(false);
  });
});

test("fetches refused documents again when the keys or the node's document change", async () => {
  const { put, connect, documents, offer, refused, sync } = await setUp();
  const next = await signingKey();
  await put("node", 2, nodeDocument(), next);
  connect();
  await waitFor("the refusal", () => refused.length === 1);
  const jws = await signJws("holdfast-keys+jwt", keysClaims(root, [next], 2), root);
  offer.set("keys", { version: 2, body: JSON.stringify([{ jws }]) });
  sync.request(["keys"]);
  await waitFor("the document", () => documents.version("node") === 2);
});

test("does not fetch a rolled back version again, and a newer one ends the rollback", async () => {
  const { put, connect, documents, requested, accepted, refused, sync, clock } = await setUp();
  await put("node", 2, nodeDocument());
  connect();
  await waitFor("the first", () => documents.version("node") === 2);
  await put("node", 3, nodeDocument({ tags: { bad: "yes" } }));
  sync.request(["node"]);
  await waitFor("the second", () => documents.version("node") === 3);
  await documents.rollBack("node", clock.now());
  const before = accepted.length;
  requested.length = 0;
  sync.request(["node"]);
  await waitFor("the question", () => requested.length > 0);
  await put("node", 4, nodeDocument());
  sync.request(["node"]);
  await waitFor("the newer one", () => documents.version("node") === 4);
  expect(accepted.slice(before)).toEqual(["node"]);
  expect(refused).toEqual([]);
  expect(documents.current.node?.refused).toBeUndefined();
});

test("a cluster that only the rolled back document names is no failure", async () => {
  const { put, connect, documents, accepted, refused, health, sync, clock } = await setUp();
  await put("node", 2, nodeDocument({ cluster: "a.example.net" }));
  await put("cluster", 3, clusterDocument("a.example.net"));
  connect();
  await waitFor("the cluster", () => documents.version("cluster") === 3);
  await put("node", 3, nodeDocument({ cluster: "b.example.net" }));
  await put("cluster", 1, clusterDocument("b.example.net"));
  sync.request(["node", "cluster"]);
  await waitFor("the other cluster", () => documents.version("cluster") === 1);
  await documents.rollBack("node", clock.now());
  const before = accepted.length;
  await put("cluster", 2, clusterDocument("b.example.net"));
  sync.request(["cluster"]);
  await clock.advance(5000);
  await put("node", 4, nodeDocument({ cluster: "b.example.net" }));
  sync.request(["node"]);
  await waitFor("the newer one", () => documents.version("cluster") === 2);
  expect(accepted.slice(before)).toEqual(["node", "cluster"]);
  expect(refused).toEqual([]);
  expect(health).not.toContain(false);
});

describe("an unavailable document", () => {
  const node = nodeDocument();

  test("is overdue after 30 s, with its cause, until it arrives", async () => {
    const { sync, clock, connect, put, answer, overdue, documents } = await setUp();
    await put("node", 1, node);
    answer(500);
    connect();
    await clock.advance(29_000);
    expect(sync.overdue).toEqual([]);
    await clock.advance(2000);
    const cause = "the node document: HTTP 500";
    for (const ms of [0, 86_400_000, -2 * 86_400_000]) {
      clock.setWall(clock.now() + ms);
      expect(sync.overdue).toEqual([{ name: "node", since: clock.now() - 31_000, cause }]);
    }
    expect(overdue).toEqual([`node: ${cause}`]);
    answer(200);
    await clock.advance(600_000);
    await waitFor("the document", () => documents.version("node") === 1);
    expect(sync.overdue).toEqual([]);
    expect(overdue).toEqual([`node: ${cause}`, ""]);
  });

  test("is overdue in silence as well, and not after the end of the session", async () => {
    const { sync, clock, connect, put, hangUntil } = await setUp();
    await put("node", 1, node);
    hangUntil(new Promise(() => undefined));
    connect();
    await clock.advance(31_000);
    expect(sync.overdue).toMatchObject([{ name: "node", cause: "the control plane does not send it" }]);
  });

  test("yields to a newer version once, however often it changes", async () => {
    const { sync, requested, connect, put, hangUntil, documents } = await setUp();
    await put("node", 1, node);
    hangUntil(new Promise(() => undefined));
    connect();
    await waitFor("the question", () => requested.includes("node"));
    await put("node", 2, node);
    const let2 = deferred<undefined>();
    hangUntil(let2.promise);
    sync.changed("node", 2);
    await waitFor("the other question", () => requested.filter((name) => name === "node").length === 2);
    sync.changed("node", 3);
    let2.resolve(undefined);
    await waitFor("the document", () => documents.version("node") === 2);
  });
});
