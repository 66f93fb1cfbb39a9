import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { nodeDocument } from "../../../../src/controller/channel/documents/versions.ts";
import { Certificates } from "../../../../src/controller/certificates/service.ts";
import { testCertificate, type TestCertificate } from "../../../support/certificates.ts";
import { ApiBench, items, members } from "../../../support/control-plane/api-bench.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { ORG } from "../../../support/control-plane/fleet-stage.ts";

const NAME = "gw.example.net";
let authority: TestCertificate;
let leaf: TestCertificate;
let other: TestCertificate;
let clock: FakeClock;
let bench: ApiBench;

beforeAll(async () => {
  authority = await testCertificate({ hosts: [], isAuthority: true });
  leaf = await testCertificate({ hosts: [NAME, "www.example.net"], issuer: authority });
  other = await testCertificate({ hosts: ["*.example.net"] });
});

beforeEach(async () => {
  clock = new FakeClock(Date.now());
  bench = await ApiBench.create(clock);
});

const body = (change: object = {}) => ({
  fqdn: NAME,
  certificateBody: leaf.cert,
  certificateChain: authority.cert,
  privateKey: leaf.key,
  ...change,
});
const post = (json: unknown, key?: string) =>
  bench.call("POST", "/v2/certificates", { json, ...(key === undefined ? {} : { key }) });
const list = async (key?: string) =>
  items((await bench.call("GET", "/v2/certificates", key === undefined ? {} : { key })).json);
const expiringEvents = async () => {
  const { items: found } = await bench.fleet.store.events.find({
    eventTypes: ["Certificate Expiring"],
    sort: { by: "timestamp", order: "asc" },
    limit: 10,
    offset: 0,
  });
  return found.map(({ message, subject, level }) => [message.split(" at ")[0], subject, level]);
};

describe("certificates", () => {
  it("are uploaded, listed without their contents, replaced and removed", async () => {
    expect(await list()).toEqual([]);
    const expiresAt = Math.floor(leaf.parsed.notAfter.getTime() / 1000);
    const shown = { fqdn: NAME, expiresAt, warning: "expiring", orgId: ORG };
    const answer = await post(body());
    expect([answer.status, answer.json]).toEqual([200, shown]);
    expect((await post(body())).json).toEqual(shown);
    expect(await list()).toEqual([shown]);
    const put = await bench.call("PUT", `/v2/certificates/${NAME}`, {
      json: { chain: `${other.cert}\n${authority.cert}`, private_key: other.key, fqdn: "" },
    });
    expect([put.status, members(put.json)["warning"]]).toEqual([200, "expiring"]);
    const removed = await bench.call("DELETE", `/v2/certificates/${NAME}`, { json: body() });
    expect([removed.status, removed.json, await list()]).toEqual([200, {}, []]);
    expect((await bench.call("DELETE", `/v2/certificates/${NAME}`)).status).toBe(404);
    expect((await bench.call("PUT", `/v2/certificates/${NAME}`, { json: body() })).status).toBe(404);
    expect(await bench.fleet.changes()).toEqual(
      ["added", "replaced", "replaced", "removed"].map((what) => `admin: Certificate ${NAME} ${what}`),
    );
    expect(bench.logged.join("")).not.toContain("PRIVATE KEY");
  });

  it("have the first name of the certificate, unless another one is given", async () => {
    for (const fqdn of [undefined, ""]) {
      expect(members((await post(body({ fqdn }))).json)["fqdn"]).toBe(NAME);
    }
    const wild = { certificateBody: other.cert, certificateChain: null, privateKey: other.key };
    expect((await post({ ...wild, fqdn: "*.example.net" })).json).toMatchObject({ warning: "expiring" });
    expect((await post({ ...wild, fqdn: "Web.Example.net" })).json).toMatchObject({ fqdn: "Web.Example.net" });
    expect((await post({ ...wild, fqdn: "web.example.org" })).json).toMatchObject({ warning: "name-mismatch" });
  });

  it("are not named by what is no DNS name, so that each can be removed", async () => {
    for (const name of ["a/../b c", "x:y", "_dmarc.example.net", `${"a".repeat(64)}.net`, `${"a.".repeat(200)}net`]) {
      const odd = await testCertificate({ hosts: [name] });
      const answer = await post({ certificateBody: odd.cert, privateKey: odd.key });
      expect([answer.status, answer.json]).toEqual([422, ["fqdn: is required: the certificate has no DNS name"]]);
    }
    expect(await list()).toEqual([]);
  });

  it("begin at the last of many beginnings, so that a text is read once", async () => {
    const begin = "-----BEGIN CERTIFICATE-----\n";
    expect((await post(body({ certificateBody: begin.repeat(9000) + leaf.cert }))).status).toBe(200);
    const answer = await post(body({ certificateBody: begin.repeat(9000) }));
    expect([answer.status, answer.json]).toEqual([422, ["certificateBody: has no certificate in PEM"]]);
  });

  it("are refused by field", async () => {
    for (const [change, line] of [
      [{ certificateBody: "" }, /^certificateBody: is required$/],
      [{ privateKey: undefined }, /^privateKey: is required$/],
      [{ certificateBody: "x" }, /^certificateBody: has no certificate in PEM$/],
      [{ certificateChain: leaf.cert.replace(/M/, "?") }, /^certificateChain: not a certificate: /],
      [{ privateKey: "x" }, /^privateKey: not a private key: /],
      [{ privateKey: other.key }, /^privateKey: does not belong to the certificate for CN=test server$/],
      [{ fqdn: "a b" }, /^fqdn: /],
      [{ certificateChain: authority.cert.repeat(17) }, /^certificateChain: more than 16 certificates$/],
    ] as const) {
      const answer = await post(body(change));
      expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(line)]]);
      expect(answer.text).not.toContain("BEGIN");
    }
    const nameless = { certificateBody: authority.cert, certificateChain: "", privateKey: authority.key, fqdn: "" };
    expect((await post(nameless)).json).toEqual(["fqdn: is required: the certificate has no DNS name"]);
    await post(body());
    const renamed = await bench.call("PUT", `/v2/certificates/${NAME}`, { json: body({ fqdn: "other.example" }) });
    expect(renamed.json).toEqual([`fqdn: must be ${NAME}; a certificate cannot be renamed`]);
  });

  it("are for those who may read or change them", async () => {
    await post(body());
    await post(body({ fqdn: "www.example.net" }));
    const one = await bench.keyFor(["certificates::read"], [`tgrn:tg::certificates:certificate/${NAME}`]);
    expect((await list(one)).map(({ fqdn }) => fqdn)).toEqual([NAME]);
    expect((await post(body(), one)).status).toBe(403);
    const changer = await bench.keyFor(["certificates::modify"], [`tgrn:tg::certificates:certificate/${NAME}`]);
    expect((await post(body(), changer)).json).toMatchObject({ details: { action: "certificates::modify" } });
    const put = (name: string) =>
      bench.call("PUT", `/v2/certificates/${name}`, { json: body({ fqdn: name }), key: changer });
    expect([(await put(NAME)).status, (await put("www.example.net")).status]).toEqual([200, 403]);
  });

  it("stay at the controller: a gateway that names one gets its name, and the writer a warning", async () => {
    await post(body());
    const { uid } = await bench.fleet.add({ name: "one" });
    const json = { enabled: true, type: "public", host: NAME, port: 8443, cert: NAME };
    const written = await bench.call("PUT", `/node/${uid}/config/gateway`, { json });
    expect([written.status, written.headers.get("holdfast-warning")]).toEqual([
      200,
      "gateway.cert: ignored: a gateway proves itself by its own key, without a certificate",
    ]);
    const documents = (await bench.fleet.store.nodes.contents([uid])).map((node) => nodeDocument(node, {}));
    const delivered = JSON.stringify(documents);
    const read = await bench.call("GET", `/node/${uid}`);
    const secret = leaf.key.split("\n")[1] ?? "";
    expect(secret).toMatch(/^[\w+/]{16}/);
    for (const text of [delivered, read.text, bench.logged.join("")]) {
      expect(text).not.toContain(secret);
      expect(text).not.toContain("BEGIN");
    }
    expect(documents).toMatchObject([{ config: { gateway: { cert: NAME } } }]);
    const off = await bench.call("PUT", `/node/${uid}/config/gateway`, { json: { ...json, cert: "" } });
    expect(off.headers.get("holdfast-warning")).toBeNull();
  });

  it("raise one event when they are about to expire, and one when they have", async () => {
    await post(body());
    await post(body());
    await bench.deps.certificates.report();
    const name = `Certificate ${NAME}`;
    const expiring = [`${name} expires`, "Certificate", "WARNING"];
    // A replacement is reported anew.
    expect(await expiringEvents()).toEqual([expiring, expiring]);
    await clock.advance(2 * 86_400_000);
    await bench.deps.certificates.report();
    await bench.deps.certificates.report();
    expect(await expiringEvents()).toEqual([expiring, expiring, [`${name} expired`, "Certificate", "ERROR"]]);
    expect((await list()).map(({ warning }) => warning)).toEqual(["expired"]);
  });
});

describe("the controller's own certificate", () => {
  const DAY_MS = 86_400_000;

  it("is reported once within 30 days of its end, and once more after it", async () => {
    const { store, services } = bench.fleet;
    const own = { cert: leaf.cert, host: "cp.example.net" };
    const before = new FakeClock(leaf.parsed.notAfter.getTime() - 31 * DAY_MS);
    const reporter = () => new Certificates({ store, events: services.events, clock: before, own });
    await reporter().report();
    expect(await expiringEvents()).toEqual([]);
    await before.advance(2 * DAY_MS);
    for (const _ of [1, 2]) await reporter().report();
    const expires = ["The certificate of the controller expires", "Certificate", "WARNING"];
    expect(await expiringEvents()).toEqual([expires]);
    await before.advance(30 * DAY_MS);
    for (const _ of [1, 2]) await reporter().report();
    expect(await expiringEvents()).toEqual([
      expires,
      ["The certificate of the controller expired", "Certificate", "ERROR"],
    ]);
    await new Certificates({
      store,
      events: services.events,
      clock: before,
      own: { ...own, cert: other.cert },
    }).report();
    expect((await expiringEvents()).length).toBe(3);
  });
});
