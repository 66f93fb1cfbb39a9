import { beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import type { ItemSection } from "../../../../src/protocol/sections/common/forms.ts";
import { ApiBench, members } from "../../../support/control-plane/api-bench.ts";

const A = "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d01";
const B = "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d02";
const NOBODY = "00000000-0000-4000-8000-000000000000";

const SAMPLES = {
  connectors: { node: "local", service: "web", protocol: "tcp", port: 8080 },
  services: { name: "web", protocol: "tcp", host: "127.0.0.1", port: 80 },
} as const;
/** Fields in which an item must differ from the sample to exist beside it. */
const OTHER = { connectors: { port: 8081 }, services: { name: "other" } } as const;

let bench: ApiBench;
let uid: string;

beforeEach(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "appliance", config: {} })).uid;
});

const stored = async (section: ItemSection): Promise<unknown> => (await bench.fleet.node(uid))?.config[section];
const idOf = (json: unknown): string => z.object({ id: z.uuid() }).parse(json).id;

describe.each(["connectors", "services"] as const)("%s item by item", (section) => {
  const sample = SAMPLES[section];
  const other = { ...sample, ...OTHER[section] };
  const base = () => `/v2/node/${uid}/config/${section}`;
  const create = (json: unknown) => bench.call("POST", base(), { json });
  const legacy = { enabled: false, [section]: [{ ...sample, id: A, later: 1 }] };
  const putWhole = (json: unknown) => bench.call("PUT", `/node/${uid}/config/${section}`, { json });

  it("start as V2 on a node without any, and are shown in its configuration", async () => {
    const answer = await create({ ...sample, later: { x: 1 } });
    expect(answer.status).toBe(200);
    const id = idOf(answer.json);
    expect(answer.json).toEqual({ ...sample, later: { x: 1 }, id, index: 0 });
    expect(await stored(section)).toEqual({ enabled: true, version: 2, items: { [id]: answer.json } });
    const second = idOf((await create({ ...other, id: A })).json);
    expect(second).not.toBe(A);
    const shown = members(members((await bench.call("GET", `/node/${uid}`)).json)["config"]);
    expect(shown[section]).toMatchObject({ items: { [id]: { index: 0 }, [second]: { index: 1, id: second } } });
    expect(await bench.fleet.users()).toEqual(["admin", "admin"]);
  });

  it("are replaced and removed one by one", async () => {
    const id = idOf((await create({ ...sample, index: 4, description: "first" })).json);
    const rest = idOf((await create(other)).json);
    const replaced = await bench.call("PUT", `${base()}/${id}`, { json: { ...sample, port: 99 } });
    expect([replaced.status, replaced.json]).toEqual([200, { ...sample, port: 99, id, index: 4 }]);
    const moved = await bench.call("PUT", `${base()}/${id}`, { json: { ...sample, id, index: 9 } });
    expect(moved.json).toEqual({ ...sample, id, index: 9 });
    const removed = await bench.call("DELETE", `${base()}/${id}`);
    expect([removed.status, removed.json]).toEqual([200, {}]);
    expect(await stored(section)).toMatchObject({ version: 2, items: { [rest]: { index: 5 } } });
    expect(Object.keys(members(members(await stored(section))["items"]))).toEqual([rest]);
    const again = await bench.call("DELETE", `${base()}/${id}`);
    expect([again.status, again.json]).toEqual([200, {}]);
  });

  it("that do not exist cannot be replaced and need no removal, and nothing changes", async () => {
    await create(sample);
    const before = await stored(section);
    for (const id of [NOBODY, "any", "__proto__", "toString", "x".repeat(200)]) {
      const put = await bench.call("PUT", `${base()}/${id}`, { json: other });
      expect([put.status, put.json]).toMatchObject([404, { code: "not-found" }]);
      const removed = await bench.call("DELETE", `${base()}/${id}`);
      // A name that is too long for an id is no path.
      expect(removed.status).toBe(id.length > 128 ? 404 : 200);
    }
    expect(await bench.fleet.users()).toEqual(["admin"]);
    const elsewhere = `/v2/node/${NOBODY}/config/${section}`;
    expect((await bench.call("POST", elsewhere, { json: sample })).status).toBe(404);
    expect((await bench.call("POST", `${elsewhere}/upgrade`)).status).toBe(404);
    expect((await bench.call("DELETE", `${elsewhere}/${A}`)).status).toBe(404);
    expect(await stored(section)).toStrictEqual(before);
  });

  it("on a node without any do not exist either", async () => {
    expect((await bench.call("PUT", `${base()}/${A}`, { json: sample })).status).toBe(404);
    expect((await bench.call("DELETE", `${base()}/${A}`)).status).toBe(200);
    expect(await stored(section)).toBeUndefined();
  });

  it("with wrong fields are refused by path, and nothing changes", async () => {
    const id = idOf((await create(sample)).json);
    const before = await stored(section);
    const wrong: readonly (readonly [unknown, string])[] = [
      [{ ...other, port: 65_536 }, "port: must be 1..65535"],
      [{ ...other, port: "80" }, "port: is text, and must be a whole number, 1..65535"],
      [{ ...other, protocol: "http" }, "protocol: http belonged to remote-access applications"],
      [{ ...other, protocol: undefined }, "protocol: is required"],
      [[], "body: must be an object"],
    ];
    for (const [json, line] of wrong) {
      const answers = [await create(json), await bench.call("PUT", `${base()}/${id}`, { json })];
      for (const answer of answers) {
        expect([answer.status, answer.json]).toEqual([422, [expect.stringContaining(line)]]);
      }
    }
    const renamed = await bench.call("PUT", `${base()}/${id}`, { json: { ...sample, id: B } });
    expect([renamed.status, renamed.json]).toEqual([422, [`id: must be ${id}, or absent`]]);
    expect(await stored(section)).toStrictEqual(before);
  });

  it("may have fields that are empty or null, which come back as they were written", async () => {
    const empty = {
      id: "",
      description: "",
      [section === "services" ? "sourceInterface" : "nic"]: "",
      idleTimeout: null,
    };
    const created = await create({ ...sample, ...empty });
    const id = idOf(created.json);
    expect([created.status, created.json]).toMatchObject([200, { ...empty, id }]);
    const put = await bench.call("PUT", `${base()}/${id}`, { json: { ...sample, ...empty } });
    expect([put.status, put.json]).toMatchObject([200, { ...empty, id }]);
    const missing = await bench.call("PUT", `${base()}/${id}`, { json: { ...sample, port: null, protocol: "" } });
    expect([missing.status, missing.json]).toEqual([422, expect.arrayContaining(["port: is required"])]);
    const whole = await bench.call("PUT", `/node/${uid}/config/${section}`, {
      json: { version: 2, items: { [id]: null } },
    });
    expect([whole.status, whole.json]).toEqual([422, [expect.stringContaining(`items.${id}: must be an object`)]]);
  });

  it("that collide with another are refused with its id, and not with themselves", async () => {
    const first = idOf((await create(sample)).json);
    const second = idOf((await create(other)).json);
    const before = await stored(section);
    expect((await create(sample)).status).toBe(422);
    const answer = await bench.call("PUT", `${base()}/${second}`, { json: sample });
    const isTaken =
      section === "services" ? `name: web is the service` : `port: tcp 8080 on any address is taken by the connector`;
    for (const index of [0, 1_000_000_000]) {
      const [told] = z.tuple([z.string()]).parse((await create({ ...sample, index })).json);
      expect(told).toBe(`${isTaken} ${first}`);
    }
    expect([answer.status, answer.json]).toEqual([422, [`${isTaken} ${first}`]]);
    expect(await stored(section)).toStrictEqual(before);
    expect((await bench.call("PUT", `${base()}/${first}`, { json: { ...sample, description: "x" } })).status).toBe(200);
    await bench.call("DELETE", `${base()}/${first}`);
    expect((await bench.call("PUT", `${base()}/${second}`, { json: sample })).status).toBe(200);
  });

  it("name the other one whichever of the two comes first", async () => {
    const first = idOf((await create({ ...sample, index: 7 })).json);
    const answer = await create({ ...sample, index: 1 });
    expect([answer.status, answer.json]).toEqual([422, [expect.stringContaining(first)]]);
  });

  it("in the legacy form are refused with the way out, and nothing changes", async () => {
    await putWhole(legacy);
    const before = await stored(section);
    const answers = [
      await create(other),
      await bench.call("PUT", `${base()}/${A}`, { json: other }),
      await bench.call("DELETE", `${base()}/${A}`),
    ];
    for (const { status, json } of answers) {
      const line = new RegExp(`^${section}\\.version: .*/${section}/upgrade `);
      expect([status, json]).toEqual([422, [expect.stringMatching(line)]]);
    }
    expect(await stored(section)).toStrictEqual(before);
    await putWhole({});
    expect((await create(other)).status).toBe(422);
  });

  it("are upgraded once, under new ids, and then changed one by one", async () => {
    await putWhole(legacy);
    const answer = await bench.call("POST", `${base()}/upgrade`);
    expect(answer.status).toBe(200);
    const { items, ...rest } = members(answer.json);
    expect(rest).toEqual({ enabled: false, version: 2 });
    const [id = ""] = Object.keys(members(items));
    expect(id).not.toBe(A);
    expect(items).toEqual({ [id]: { ...sample, later: 1, id, index: 0 } });
    expect(await stored(section)).toEqual(answer.json);
    const again = await bench.call("POST", `${base()}/upgrade`);
    expect([again.status, again.json]).toEqual([422, [`${section}.version: the section is already in V2 form`]]);
    expect((await bench.call("PUT", `${base()}/${id}`, { json: other })).status).toBe(200);
  });

  it("of a node without any are upgraded to none", async () => {
    expect((await bench.call("POST", `${base()}/upgrade`)).json).toEqual({ version: 2, items: {} });
    expect((await bench.call("POST", `${base()}/upgrade`)).status).toBe(422);
  });

  it("may be sent with an empty id", async () => {
    const made = await create({ ...sample, id: "" });
    expect(made.status).toBe(200);
    const id = idOf(made.json);
    expect(id).not.toBe("");
    const changed = await bench.call("PUT", `${base()}/${id}`, { json: { ...sample, port: 99, id: "" } });
    expect(changed.json).toMatchObject({ port: 99, id });
  });

  it("take their own permission in the specification's spelling, on their own node", async () => {
    const key = await bench.keyFor([`node::configure::${section}`], [`tgrn:tg::nodes:node/${uid}`]);
    const foreign = (await bench.fleet.add({ name: "other", config: {} })).uid;
    const made = await bench.call("POST", base(), { json: sample, key });
    expect(made.status).toBe(200);
    const item = `${base()}/${idOf(made.json)}`;
    expect((await bench.call("PUT", item, { json: other, key })).status).toBe(200);
    expect((await bench.call("DELETE", item, { key })).status).toBe(200);
    for (const path of [`/v2/node/${foreign}/config/${section}`, `/v2/node/${foreign}/config/${section}/upgrade`]) {
      const refused = await bench.call("POST", path, { json: sample, key });
      expect([refused.status, refused.json]).toMatchObject([
        403,
        { details: { action: `nodes::configure:${section}`, resource: `tgrn:tg::nodes:node/${foreign}` } },
      ]);
    }
    const wrong = await bench.keyFor([`nodes::configure:${section === "services" ? "connectors" : "services"}`]);
    expect((await bench.call("POST", base(), { json: sample, key: wrong })).status).toBe(403);
  });

  it("are no more than a section holds", async () => {
    const many = Array.from(
      { length: 10_000 },
      (_, at) => [`${NOBODY.slice(0, -5)}${String(at).padStart(5, "0")}`, sample] as const,
    );
    const body = { version: 2, items: Object.fromEntries(many) };
    await bench.fleet.services.config.setSection(uid, section, "test", () => ({ body }));
    const answer = await create(other);
    expect([answer.status, answer.json]).toEqual([422, [`${section}.items: must be at most 10000`]]);
  });
});

describe.each(["connectors", "services"] as const)("%s as a whole", (section) => {
  const sample = SAMPLES[section];
  const path = () => `/node/${uid}/config/${section}`;
  const put = (json: unknown) => bench.call("PUT", path(), { json });
  const legacy = { enabled: true, [section]: [{ ...sample, id: A }] };
  const whole = { enabled: true, version: 2, items: { [A]: sample } };

  const asV2 = () =>
    bench.fleet.services.config.setSection(uid, section, "test", () => ({ body: { version: 2, items: {} } }));

  it("are stored as they are in the form the section has", async () => {
    for (const body of [{}, legacy, { enabled: false }]) {
      const answer = await put(body);
      expect([answer.status, await stored(section)]).toEqual([200, body]);
    }
    expect((await bench.call("POST", `/v2${path()}/upgrade`)).status).toBe(200);
    for (const body of [whole, { ...whole, note: 1 }]) {
      const answer = await put(body);
      expect([answer.status, await stored(section)]).toEqual([200, body]);
    }
    const removed = await bench.call("DELETE", path());
    expect([removed.status, await stored(section)]).toEqual([200, undefined]);
  });

  it("in the V2 form do not upgrade what is not V2", async () => {
    for (const before of [undefined, {}, legacy]) {
      await bench.fleet.services.config.setSection(uid, section, "test", () => ({ body: before }));
      for (const body of [whole, { version: 2, items: {} }]) {
        const answer = await put(body);
        expect([answer.status, answer.json]).toEqual([
          422,
          [expect.stringMatching(`^${section}.version: the V2 form is written item by item .*upgrade$`)],
        ]);
      }
      expect(await stored(section)).toEqual(before);
    }
  });

  it("in the legacy form may have items without an id, which stay as written until the upgrade", async () => {
    const { id: _id, ...plain } = { id: "", ...sample };
    const twin = { ...plain, ...OTHER[section], id: "" };
    const body = {
      enabled: true,
      note: 1,
      [section]: [plain, twin, { ...plain, port: 9, name: "third", index: 7, id: A }],
    };
    expect((await put(body)).status).toBe(200);
    expect(await stored(section)).toStrictEqual(body);
    const answer = await bench.call("POST", `/v2${path()}/upgrade`);
    const { items, ...rest } = members(answer.json);
    expect(rest).toEqual({ enabled: true, note: 1, version: 2 });
    const upgraded = Object.entries(members(items));
    const expected = [plain, twin, { ...plain, port: 9, name: "third" }];
    for (const [index, [id, item]] of upgraded.entries()) expect(item).toEqual({ ...expected[index], id, index });
    expect(upgraded.length).toBe(3);
    expect(upgraded.map(([id]) => id)).not.toContain(A);
  });

  it("in the legacy form have one item to an id", async () => {
    const twin = { ...sample, ...OTHER[section], id: A };
    const third = { ...sample, port: 9, name: "third", id: A.toUpperCase() };
    const answer = await put({ [section]: [{ ...sample, id: A }, twin, third] });
    expect([answer.status, answer.json]).toEqual([
      422,
      [1, 2].map((at) => `${section}.${section}.${at}.id: is the id of ${section}.0 already`),
    ]);
    expect(await stored(section)).toBeUndefined();
  });

  it("in the legacy form do not overwrite V2", async () => {
    await asV2();
    await put(whole);
    for (const body of [legacy, {}, { enabled: false }]) {
      const answer = await put(body);
      expect([answer.status, answer.json]).toEqual([
        422,
        [`${section}.version: cannot overwrite V2 configuration with the legacy form`],
      ]);
    }
    expect(await stored(section)).toEqual(whole);
  });

  it("are refused with a line for each wrong field", async () => {
    const twice = { version: 2, items: { [A]: sample, [B]: { ...sample, protocol: "http", port: 0 } } };
    const answer = await put(twice);
    expect([answer.status, answer.json]).toEqual([
      422,
      [
        expect.stringMatching(`^${section}.items.${B}.protocol: http belonged`),
        `${section}.items.${B}.port: must be 1..65535`,
      ],
    ]);
    const field = section === "services" ? "name" : "port";
    const collision = await put({ version: 2, items: { [A]: sample, [B]: sample } });
    expect(collision.json).toEqual([expect.stringMatching(`^${section}.items.${B}.${field}: .*${A}$`)]);
    expect(await stored(section)).toBeUndefined();
  });

  it("exist on agents, and not on nodes that are gone", async () => {
    const agent = (await bench.fleet.add({ name: "laptop", type: "Agent", config: {} })).uid;
    expect((await bench.call("PUT", `/node/${agent}/config/${section}`, { json: legacy })).status).toBe(200);
    expect((await bench.call("POST", `/v2/node/${agent}/config/${section}/upgrade`)).status).toBe(200);
    expect(
      (
        await bench.call("POST", `/v2/node/${agent}/config/${section}`, {
          json: { ...sample, protocol: "udp", name: "x" },
        })
      ).status,
    ).toBe(200);
    expect((await bench.call("PUT", `/node/${NOBODY}/config/${section}`, { json: whole })).status).toBe(404);
  });
});

describe("the OpenAPI document", () => {
  it("has the item operations with their bodies and answers", async () => {
    const { paths, components } = z
      .object({
        paths: z.record(z.string(), z.record(z.string(), z.looseObject({ responses: z.looseObject({}) }))),
        components: z.object({ schemas: z.looseObject({ ServiceItem: z.looseObject({}) }) }),
      })
      .parse((await bench.call("GET", "/openapi.json", { key: undefined })).json);
    const of = (path: string) => Object.keys(paths[path] ?? {}).sort();
    expect(of("/v2/node/{nodeID}/config/connectors")).toEqual(["post"]);
    expect(of("/v2/node/{nodeID}/config/connectors/upgrade")).toEqual(["post"]);
    expect(of("/v2/node/{nodeID}/config/connectors/{connectorID}")).toEqual(["delete", "put"]);
    expect(of("/v2/node/{nodeID}/config/services/{serviceID}")).toEqual(["delete", "put"]);
    const create = paths["/v2/node/{nodeID}/config/services"]?.["post"];
    expect(Object.keys(create?.responses ?? {})).toEqual(expect.arrayContaining(["200", "401", "403", "404", "422"]));
    expect(JSON.stringify(create?.["requestBody"])).toContain("#/components/schemas/ServiceItem");
    expect(components.schemas.ServiceItem["required"]).toEqual(["name", "protocol", "host", "port"]);
  });
});

describe("a connector to an address that no node lets others reach", () => {
  const path = (id = "") => `/v2/node/${uid}/config/connectors${id}`;
  const bad = { ...SAMPLES.connectors, node: "branch", service: "169.254.169.254:80" };
  const told = "169.254.169.254 is link-local, multicast, reserved or a cloud's metadata: no node lets others reach it";

  it("is refused by its field, one by one and in a whole section", async () => {
    const made = await bench.call("POST", path(), { json: bad });
    expect([made.status, made.json]).toEqual([422, [`service: ${told}`]]);
    expect(await stored("connectors")).toBeUndefined();
    const id = idOf((await bench.call("POST", path(), { json: SAMPLES.connectors })).json);
    const before = await stored("connectors");
    const put = await bench.call("PUT", path(`/${id}`), { json: bad });
    expect([put.status, put.json]).toEqual([422, [`service: ${told}`]]);
    const items = { [id]: { ...bad, id } };
    const whole = await bench.call("PUT", `/node/${uid}/config/connectors`, { json: { version: 2, items } });
    expect([whole.status, whole.json]).toEqual([422, [`connectors.items.${id}.service: ${told}`]]);
    expect(await stored("connectors")).toStrictEqual(before);
  });

  it("is refused in a legacy list too, and by every way to write such an address", async () => {
    const other = (await bench.fleet.add({ name: "old", config: {} })).uid;
    const one = (at: number, id: string, service: string) => ({ ...bad, service, port: 8000 + at, id });
    const list = [
      one(0, A, "224.0.0.1:80"),
      one(1, B, "10.0.0.1:80"),
      one(2, NOBODY.replace(/0$/, "2"), "0.0.0.0:80"),
      one(3, NOBODY.replace(/0$/, "3"), "web"),
    ];
    const answer = await bench.call("PUT", `/node/${other}/config/connectors`, { json: { connectors: list } });
    expect(answer.status).toBe(422);
    expect(answer.json).toEqual([
      expect.stringMatching(/^connectors\.connectors\.0\.service: 224\.0\.0\.1 is /),
      expect.stringMatching(/^connectors\.connectors\.2\.service: 0\.0\.0\.0 is /),
    ]);
  });

  it("is the operator's own affair on the node itself, whatever it is called", async () => {
    for (const [at, node] of ["local", "appliance", uid].entries()) {
      const answer = await bench.call("POST", path(), { json: { ...bad, node, port: 8100 + at } });
      expect(answer.status).toBe(200);
    }
  });
});
