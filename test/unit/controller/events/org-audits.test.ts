import { beforeEach, describe, expect, it } from "vitest";
import { pino } from "pino";
import { Authentications } from "../../../../src/controller/events/authentications.ts";
import { csv } from "../../../../src/controller/events/csv.ts";
import { createApi } from "../../../../src/controller/http/api.ts";
import { ADMIN_KEY, ApiBench, items } from "../../../support/control-plane/api-bench.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { ORG } from "../../../support/control-plane/fleet-stage.ts";

let clock: FakeClock;
let bench: ApiBench;

beforeEach(async () => {
  clock = new FakeClock();
  bench = await ApiBench.create(clock);
});

const get = (path: string, key?: string) => bench.call("GET", path, key === undefined ? {} : { key });
const seconds = (): number => Math.floor(clock.now() / 1000);

describe("audits of changes", () => {
  it("tell who changed what, newest first, and are filtered", async () => {
    const { uid } = await bench.fleet.add({ name: "one" });
    await bench.call("POST", "/cluster", { json: { name: "pair" } });
    await clock.advance(60_000);
    await bench.call("PUT", `/node/${uid}/tags`, { json: { tags: { a: "b" } } });
    await bench.call("PUT", "/org/auth", { json: { idp_provider: "local", subdomain: "x" } });
    await bench.call("DELETE", `/node/${uid}`);
    const answer = await get("/audit/tail/config");
    expect(answer.headers.get("x-total-count")).toBe("4");
    const short = items(answer.json).map(({ auditType, itemType, itemId }) => [auditType, itemType, itemId]);
    expect(short).toEqual([
      ["delete", "node", uid],
      ["change", "organization", ORG],
      ["change", "node", uid],
      ["create", "cluster", "pair.example.net"],
    ]);
    expect(items(answer.json)[0]).toMatchObject({
      userName: "admin",
      message: "Node deleted",
      org: ORG,
      type: "AuditLog",
      timestamp: seconds(),
    });
    const count = async (query: string) => items((await get(`/audit/tail/config?${query}`)).json).length;
    expect(await count(`itemID=${uid}`)).toBe(2);
    expect(await count("itemType=cluster")).toBe(1);
    expect(await count("auditEvent=change")).toBe(2);
    expect([await count("user=admin"), await count("user=other")]).toEqual([4, 0]);
    expect([await count("details=Tags"), await count("details=tags"), await count("details=%25")]).toEqual([1, 0, 0]);
    expect(await count(`timestamp=${seconds()}`)).toBe(3);
    expect(await count(`eTime=${seconds() - 1}`)).toBe(1);
    expect([await count("limit=3"), await count("limit=3&page=2")]).toEqual([3, 1]);
    expect((await get("/audit/tail/config?timestamp=2&eTime=1")).json).toEqual(["timestamp: is after eTime"]);
  });

  it("name policies, service users and the domain", async () => {
    const statements = [{ effect: "allow", actions: ["nodes::read"] }];
    const policy = { name: "ops", statements, resources: ["*"] };
    await bench.call("POST", "/v2/policy", { json: policy });
    await bench.call("PUT", "/v2/policy/ops", { json: policy });
    await bench.call("DELETE", "/v2/policy/ops");
    await bench.call("POST", "/v2/service-user", { json: { name: "ci" } });
    await bench.call("PUT", "/v2/service-user/ci", { json: { status: "inactive" } });
    await bench.call("POST", "/v2/service-user/ci/token", { json: {} });
    await bench.call("DELETE", "/v2/service-user/ci");
    await bench.call("PUT", "/domain/example.net/config/alert", { json: { enabled: true } });
    const listed = items((await get("/audit/tail/config")).json).toReversed();
    expect(listed.map(({ auditType, itemType, itemId }) => [auditType, itemType, itemId])).toEqual([
      ["create", "policy", "ops"],
      ["change", "policy", "ops"],
      ["delete", "policy", "ops"],
      ["create", "serviceUser", "ci"],
      ["change", "serviceUser", "ci"],
      ["change", "serviceUser", "ci"],
      ["delete", "serviceUser", "ci"],
      ["change", "domain", "example.net"],
    ]);
  });

  it("have the address of the request, also of two at once", async () => {
    const create = (name: string, address: string) =>
      bench.app.request(
        "/cluster",
        {
          method: "POST",
          headers: { authorization: ADMIN_KEY, "content-type": "application/json" },
          body: JSON.stringify({ name }),
        },
        { source: { address, prefix: address } },
      );
    await Promise.all([create("one", "192.0.2.7"), create("two", "192.0.2.8")]);
    const ipOf = async (query: string) => items((await get(`/audit/tail/config${query}`)).json).map(({ ip }) => ip);
    expect(await ipOf("?itemID=one.example.net")).toEqual(["192.0.2.7"]);
    expect(await ipOf("?ip=192.0.2.8")).toEqual(["192.0.2.8"]);
    expect(await ipOf("")).toHaveLength(2);
  });

  it("are downloaded as a table", async () => {
    await bench.call("POST", "/cluster", { json: { name: "pair" } });
    const answer = await get("/audit/download/config?itemType=cluster");
    expect(answer.headers.get("content-type")).toBe("text/csv; charset=utf-8");
    const [head, row, end] = answer.text.split("\r\n");
    expect(head).toBe('"uid","auditType","itemType","itemId","message","userName","ip","timestamp","org","type"');
    expect(row).toContain(
      `"create","cluster","pair.example.net","Cluster pair.example.net created","admin","unknown",${seconds()},`,
    );
    expect(end).toBe("");
  });

  it("go after 90 days", async () => {
    await bench.call("POST", "/cluster", { json: { name: "pair" } });
    const { store } = bench.fleet;
    await store.orgAudits.prune(seconds() + 90 * 86_400);
    expect(items((await get("/audit/tail/config")).json)).toHaveLength(1);
    await store.orgAudits.prune(seconds() + 90 * 86_400 + 1);
    expect((await get("/audit/tail/config")).json).toEqual([]);
  });

  it.each(["config", "user", "node", "flow_logs"])("of %s are for their own permission", async (kind) => {
    const own = kind === "flow_logs" ? "flows" : kind;
    const rights = ["config", "user", "node", "flows"].map((one) => `audits::read:${one}`);
    expect((await get(`/audit/tail/${kind}`, await bench.keyFor([`audits::read:${own}`]))).status).toBe(200);
    const others = await bench.keyFor([...rights.filter((one) => one !== `audits::read:${own}`), "events::read"]);
    expect((await get(`/audit/tail/${kind}`, others)).status).toBe(403);
    if (own !== "flows") expect((await get(`/audit/download/${kind}`, others)).status).toBe(403);
  });
});

describe("audits of authentications", () => {
  it("are told of those who hold a credential", async () => {
    const seen: string[] = [];
    const app = createApi({ ...bench.deps, onAuthenticated: (user) => seen.push(user) });
    for (const authorization of [ADMIN_KEY, "wrong"]) await app.request("/node", { headers: { authorization } });
    await app.request("/healthz");
    expect(seen).toEqual(["admin"]);
  });

  it("have the first of each user and address within an hour", async () => {
    const { store } = bench.fleet;
    const authentications = new Authentications({ ...store, clock, log: pino({ level: "silent" }) });
    const source = (address: string) => ({ address, prefix: address });
    const use = async (user: string, address: string): Promise<void> => {
      authentications.succeeded(user, source(address));
      await authentications.close();
    };
    for (const user of ["ci", "ci"]) await use(user, "192.0.2.7");
    for (const _ of [1, 2]) authentications.failed(source("192.0.2.7"));
    await use("ops", "192.0.2.7");
    await clock.advance(3_599_999);
    await use("ci", "192.0.2.8");
    await use("ci", "192.0.2.7");
    await clock.advance(1);
    await use("ci", "192.0.2.7");
    const answer = await get("/audit/tail/user");
    expect(items(answer.json).map(({ userId, ip }) => [userId, ip])).toEqual([
      ["ci", "192.0.2.7"],
      ["ci", "192.0.2.8"],
      ["ops", "192.0.2.7"],
      ["", "192.0.2.7"],
      ["ci", "192.0.2.7"],
    ]);
    expect(items(answer.json)[0]).toMatchObject({
      source: "api",
      orgId: ORG,
      type: "AuthAudit",
      message: "API access of ci",
    });
    expect(items((await get("/audit/tail/user?user=ci&ip=192.0.2.8")).json)).toHaveLength(1);
    expect((await get("/audit/download/user")).text.split("\r\n")).toHaveLength(7);
  });

  it("have at most 100 failures of an hour, one of each source, and successes beside them", async () => {
    const { store } = bench.fleet;
    const authentications = new Authentications({ ...store, clock, log: pino({ level: "silent" }) });
    const failures = async () => Number((await get("/audit/tail/user?limit=1")).headers.get("x-total-count"));
    for (const host of [1, 2, 3]) authentications.failed({ address: `2001:db8::${host}`, prefix: "2001:db8::/64" });
    await authentications.close();
    expect(await failures()).toBe(1);
    for (let at = 0; at < 20_000; at += 1) {
      const address = `2001:db8:${at.toString(16)}::1`;
      authentications.failed({ address, prefix: address });
    }
    await authentications.close();
    expect(await failures()).toBe(100);
    authentications.succeeded("ci", { address: "192.0.2.7", prefix: "192.0.2.7" });
    await authentications.close();
    expect(await failures()).toBe(101);
    await clock.advance(3_600_000);
    authentications.failed({ address: "192.0.2.9", prefix: undefined });
    await authentications.close();
    expect(await failures()).toBe(102);
  });

  it("that cannot be stored are logged", async () => {
    const lines: string[] = [];
    const log = pino({}, { write: (line: string) => void lines.push(line) });
    const orgAudits = { add: () => Promise.reject(new Error("full")) };
    const authentications = new Authentications({ orgAudits, clock, log });
    authentications.succeeded("ci", { address: "192.0.2.7", prefix: "192.0.2.7" });
    await authentications.close();
    expect(lines.join("")).toContain("cannot audit an authentication");
  });
});

describe("audits of nodes", () => {
  it("are those of nodes that the caller may read, or of one by its name", async () => {
    const one = await bench.fleet.add({ name: "one" });
    const two = await bench.fleet.add({ name: "two" });
    for (const node of [one, two]) await bench.fleet.services.events.audit(bench.fleet.store, node, `=of ${node.name}`);
    const values = async (path: string, key?: string) => items((await get(path, key)).json).map(({ value }) => value);
    expect(await values("/audit/tail/node")).toEqual(["=of two", "=of one"]);
    expect(await values("/audit/tail/node?FQDN=one.example.net")).toEqual(["=of one"]);
    expect((await get("/audit/tail/node?FQDN=no.example.net")).json).toEqual(["FQDN: there is no node no.example.net"]);
    const key = await bench.keyFor(["audits::read:node"], [`tgrn:tg::nodes:node/${two.uid}`]);
    expect(await values("/audit/tail/node", key)).toEqual(["=of two"]);
    expect((await get("/audit/download/node", key)).text).toContain('"Node Action","\'=of two",');
  });
});

describe("csv", () => {
  it("quotes text, and defuses formulas", () => {
    expect(
      csv(
        ["a", "b"],
        [
          { a: 'x "y", z', b: 7 },
          { a: "=1+1\n", b: undefined },
        ],
      ),
    ).toBe('"a","b"\r\n"x ""y"", z",7\r\n"\'=1+1\n",""\r\n');
  });
});
