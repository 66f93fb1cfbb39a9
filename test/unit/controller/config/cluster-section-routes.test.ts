import { beforeEach, describe, expect, it } from "vitest";
import { ApiBench } from "../../../support/control-plane/api-bench.ts";

let bench: ApiBench;

beforeEach(async () => {
  bench = await ApiBench.create();
});

describe("the section apigw of a cluster", () => {
  const fqdn = "pair.example.net";
  const path = `/cluster/${fqdn}/config/ztnagw`;
  const body = { wireguardEnabled: true, wireguardEndpoint: "wg.example.net", wireguardPort: 51_820, host: "" };

  beforeEach(async () => {
    await bench.fleet.services.clusters.create({ name: "pair" }, "test");
  });

  it("is stored as it is sent, with a warning, and removed", async () => {
    const answer = await bench.call("PUT", path, { json: body });
    expect([answer.status, answer.headers.get("holdfast-warning")]).toEqual([
      200,
      "section apigw is stored but not applied: this version does not support it",
    ]);
    expect((await bench.call("GET", `/cluster/${fqdn}`)).json).toMatchObject({ config: { apigw: body } });
    expect((await bench.call("DELETE", path)).json).toEqual({});
    expect((await bench.call("GET", `/cluster/${fqdn}`)).json).toMatchObject({ config: {} });
  });

  it("is refused with the path of what is wrong", async () => {
    const answer = await bench.call("PUT", path, { json: { ...body, wireguardPort: 0, key: "k" } });
    expect([answer.status, answer.json]).toEqual([
      422,
      ["apigw.key: is not a known field", "apigw.wireguardPort: is required with wireguardEnabled"],
    ]);
    expect((await bench.call("PUT", "/cluster/no.example.net/config/ztnagw", { json: body })).status).toBe(404);
  });

  it("needs its permission on the cluster", async () => {
    const key = await bench.keyFor(["nodes::configure:apigw"], ["tgrn:tg::nodes:cluster/other.example.net"]);
    expect((await bench.call("PUT", path, { json: body, key })).status).toBe(403);
    expect((await bench.call("DELETE", path, { key })).status).toBe(403);
    const may = await bench.keyFor(["nodes::configure:apigw"], [`tgrn:tg::nodes:cluster/${fqdn}`]);
    expect((await bench.call("PUT", path, { json: body, key: may })).json).toEqual({ fqdn, config: { apigw: body } });
  });
});
