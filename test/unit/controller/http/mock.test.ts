import { describe, expect, it } from "vitest";
import { createApi } from "../../../../src/controller/http/api.ts";
import { mockApi } from "../../../../src/controller/http/mock.ts";
import { ExampleStage, type Example } from "../../../support/control-plane/example-stage.ts";

const stage = await ExampleStage.open();
const { bench } = stage;
const { clock, log, resourceTags, requests } = bench.deps;
const app = createApi({ ...mockApi(bench.routes, "0.0.0-test"), resourceTags, requests, clock, log });

const at = ({ path, params, query }: Pick<Example, "path" | "params" | "query">): string => {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(params[name] ?? ""));
  const search = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
  return search.size === 0 ? filled : `${filled}?${search.toString()}`;
};

async function ask(example: Example, authorization: string | undefined = "anybody:anything"): Promise<Response> {
  const headers = new Headers(authorization === undefined ? {} : { authorization });
  const { method, body } = example;
  if (body !== undefined) headers.set("content-type", "application/json");
  return app.request(at(example), { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
}

const examples = stage.examples();
const served = examples.filter(({ operationId }) => !["openTerminal", "getOpenApi"].includes(operationId));
const named = (operationId: string): Example => {
  const found = examples.find((example) => example.operationId === operationId);
  if (found === undefined) throw new Error(`there is no operation ${operationId}`);
  return found;
};

describe("the mock", () => {
  it.each(served.map((example) => [example.operationId, example] as const))(
    "%s: is the example",
    async (_, example) => {
      for (const round of [1, 2]) {
        const response = await ask(example);
        expect([round, response.status]).toEqual([round, 200]);
        if (example.answer !== undefined) expect(await response.json()).toEqual(example.answer);
      }
    },
  );

  it("keeps nothing, and asks no node", async () => {
    expect(await bench.fleet.changes()).toEqual([]);
    expect(bench.fleet.triggered).toEqual([]);
    expect(await bench.access.serviceUsers()).toEqual([]);
  });

  it("answers each trigger event with its own example, and others with the general one", async () => {
    const trigger = named("triggerNode");
    const events = stage.operations.get("triggerNode")?.responses["200"]?.content?.["application/json"]?.examples ?? {};
    expect(Object.keys(events).length).toBeGreaterThan(30);
    for (const [event, { value }] of Object.entries(events)) {
      for (const [query, answer] of [
        [{ wait: "1" }, value],
        [{}, true],
        [{ wait: "0" }, true],
      ] as const) {
        const response = await ask({ ...trigger, params: { ...trigger.params, event }, query, body: undefined });
        expect([event, query, response.status, await response.json()]).toEqual([event, query, 200, answer]);
      }
    }
    const other = await ask({ ...trigger, params: { ...trigger.params, event: "my-container" }, body: undefined });
    expect([other.status, await other.json()]).toEqual([200, true]);
  });

  it("takes any credential of a valid form, and none is refused", async () => {
    const list = named("listNodes");
    const jwt = "Bearer eyJhbGciOiJFZERTQSJ9.e30.c2ln";
    for (const credential of [jwt, "an-api-key", "holdfast-token a:b", "a:b"])
      expect((await ask(list, credential)).status).toBe(200);
    expect((await app.request("/node")).status).toBe(401);
    expect((await ask(list, "Bearer a:b")).status).toBe(401);
  });

  it("checks requests as the controller does", async () => {
    const create = named("createPolicy");
    const wrong = await ask({ ...create, body: { name: "a" } });
    expect([wrong.status, await wrong.json()]).toMatchObject([
      422,
      expect.arrayContaining([expect.stringMatching(/^statements: /)]) as unknown,
    ]);
  });
});
