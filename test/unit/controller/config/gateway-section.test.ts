import { beforeEach, describe, expect, it } from "vitest";
import { ApiBench, members } from "../../../support/control-plane/api-bench.ts";

let bench: ApiBench;
let uid: string;

beforeEach(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "gw", config: {} })).uid;
});

const server = { enabled: true, type: "public", host: "gw.example.net", port: 8443 };
const put = (json: unknown, key?: string, node = uid) =>
  bench.call("PUT", `/node/${node}/config/gateway`, key === undefined ? { json } : { json, key });

describe("PUT /node/{nodeID}/config/gateway", () => {
  it("stores the section as it is sent, unknown fields too, and replaces it whole", async () => {
    const body = { ...server, clients: [{ name: "edge", enabled: true, tgrn: 1 }], future: { a: [1] }, master: false };
    const answer = await put(body);
    expect([answer.status, members(answer.json)["config"]]).toEqual([200, { gateway: body }]);
    const shown = await bench.call("GET", `/node/${uid}`);
    expect(members(shown.json)["config"]).toEqual({ gateway: body });
    expect(members((await put({ enabled: false })).json)["config"]).toEqual({ gateway: { enabled: false } });
    const gone = await bench.call("DELETE", `/node/${uid}/config/gateway`);
    expect([gone.status, gone.json]).toEqual([200, {}]);
    expect(await bench.fleet.users()).toEqual(["admin", "admin", "admin"]);
  });

  it.each([
    ["no host", { host: undefined }, ["gateway.host: is required when enabled is true"]],
    [
      "ip in place of host",
      { host: undefined, ip: "192.0.2.1" },
      ["gateway.ip: is not a field: the address that others dial is called host"],
    ],
    [
      "no type and no port",
      { type: undefined, port: undefined },
      ["gateway.type: is required when enabled is true", "gateway.port: is required when enabled is true"],
    ],
    ["a port as text", { port: "8443" }, ["gateway.port: is text, and must be a whole number, 1..65535"]],
    [
      "two paths of one id",
      { paths: [0, 1].map(() => ({ id: "lte", node: "gw2", host: "192.0.2.2", port: 1 })) },
      ["gateway.paths.1.id: lte is in gateway.paths.0 already"],
    ],
    ["a client that is only named", { clients: [{ name: "edge" }] }, ["gateway.clients.0.enabled: is required"]],
    ["nothing", undefined, ["gateway.enabled: is required"]],
  ])("refuses %s by name, and changes nothing", async (_, change, lines) => {
    const { status, json } = await put(change === undefined ? {} : { ...server, ...change });
    expect([status, json]).toEqual([422, lines]);
    expect((await bench.fleet.node(uid))?.config).toEqual({});
    expect(await bench.fleet.users()).toEqual([]);
  });

  it("refuses what is no object, too deep or too large", async () => {
    const raw = (body: string) =>
      bench.call("PUT", `/node/${uid}/config/gateway`, { body, headers: { "content-type": "application/json" } });
    const deep = `{"enabled":false,"a":${"[".repeat(24)}${"]".repeat(24)}}`;
    for (const body of ["[]", "null", "7", deep, '{"enabled":false,"a":{"__proto__":1}}']) {
      const { status, json } = await raw(body);
      expect([status, json]).toEqual([422, [expect.stringMatching(/^gateway[:.]/)]]);
    }
    expect((await raw(JSON.stringify({ enabled: false, a: "x".repeat(4 * 1024 * 1024) }))).status).toBe(413);
  });

  it("is taken for an agent, takes its own permission, and needs a node", async () => {
    const agent = (await bench.fleet.add({ name: "laptop", type: "Agent", config: {} })).uid;
    expect((await put({ enabled: false, connectToPublic: false }, undefined, agent)).status).toBe(200);
    const key = await bench.keyFor(["nodes::configure:gateway"], [`tgrn:tg::nodes:node/${uid}`]);
    expect((await put(server, key)).status).toBe(200);
    expect((await put(server, key, agent)).json).toMatchObject({ code: "forbidden" });
    expect((await put(server, undefined, "00000000-0000-4000-8000-000000000000")).status).toBe(404);
  });

  it("does not exist below /v2", async () => {
    expect((await bench.call("PUT", `/v2/node/${uid}/config/gateway`, { json: server })).status).toBe(404);
  });
});
