import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { InputError } from "../../../../src/errors.ts";
import { ownKeys, shownKeys } from "../../../../src/controller/nodes/client-keys.ts";
import { parseProjection, projectNode } from "../../../../src/controller/nodes/projection.ts";
import { publicNode } from "../../../../src/controller/nodes/public-node.ts";
import { nodeRecord } from "../../../support/control-plane/fleet-stage.ts";

const BASE = ["uid", "state", "type", "tags", "tgTags", "tgrn", "keys"];
const record = nodeRecord({ cluster: "pair.example.net" });
const node = publicNode(record, "full");

function project(query: string, isLimited = false): Record<string, unknown> {
  const projection = parseProjection(new URLSearchParams(query), isLimited);
  if (projection === undefined) throw new Error("no projection");
  const { uid, state, type, tags, tgTags, tgrn, keys, ...rest } = projectNode(record, projection);
  expect({ uid, state, type, tags, tgTags, tgrn, keys }).toEqual(
    Object.fromEntries(BASE.map((field) => [field, node[field]])),
  );
  return rest;
}

describe("a projection", () => {
  it("is absent without its parameter", () => {
    expect(parseProjection(new URLSearchParams("cluster=a&projections=b"), false)).toBeUndefined();
  });

  it.each([
    "projection[]=name",
    "projection=name",
    "projection[0]=name",
    "projection%5B%5D=name",
    "projection[0][0]=name",
  ])("%s shows the name besides the base set", (query) => expect(project(query)).toEqual({ name: "edge-1" }));

  it("shows every field that can be asked for", () => {
    const fields = ["name", "fqdn", "online", "cluster", "lastip", "last_connect", "created_at", "device", "location"];
    fields.push("heartbeat", "lifecycleState", "disconnectTime");
    const shown = project([...fields, "orderID"].map((field) => `projection[]=${field}`).join("&"));
    expect(Object.keys(shown)).toEqual(fields);
  });

  it.each(["config", "shadow"])("refuses the flat key %s, but indexed in a limited list", (field) => {
    const refusal = expect.objectContaining({
      code: "invalid-query",
      message: expect.stringMatching(`^projection: ${field} is too large`) as string,
    }) as Error;
    for (const [query, isLimited] of [
      [`projection[]=${field}`, true],
      [`projection=${field}`, true],
      [`projection[0]=${field}`, false],
    ] as const) {
      expect(() => parseProjection(new URLSearchParams(query), isLimited)).toThrow(refusal);
    }
    expect(project(`projection[4]=${field}`, true)).toEqual({ [field]: node[field] });
  });

  it.each([
    ["projection[0][0]=keys&projection[0][1]=wireguard", ["wireguard"]],
    ["projection[0][0]=keys&projection[0][1]=wireguard&projection[1][0]=keys&projection[1][1]=other", ["wireguard"]],
    ["projection[]=keys&projection[0][0]=keys&projection[0][1]=wireguard", ["identity", "overlay", "wireguard"]],
    ["projection[0][0]=keys", ["identity", "overlay", "wireguard"]],
  ])("%s shows these keys, and the rest of the base set", (query, names) => {
    const shown = projectNode(record, parseProjection(new URLSearchParams(query), false) ?? new Map());
    const keys = Object.fromEntries(
      Object.entries(shownKeys(record.keys, undefined, "text")).filter(([name]) => names.includes(name)),
    );
    expect(shown).toEqual({ ...Object.fromEntries(BASE.map((field) => [field, node[field]])), keys });
  });

  it("is in the order of its indexes, gaps allowed", () => {
    const shown = project("projection[9]=name&projection[3][0]=config&projection[3][1]=gateway&projection[1]=fqdn");
    expect(Object.keys(shown)).toEqual(["fqdn", "config", "name"]);
  });

  it("opens config and shadow by segments, dots in a segment being literal", () => {
    const shadow = "projection[0][0]=shadow&projection[0][1]=reported";
    expect(project(`${shadow}&projection[0][2]=node-core.version`)).toEqual({
      shadow: { reported: { "node-core.version": "1.2.3" } },
    });
    expect(project(shadow)).toEqual({ shadow: { reported: node["shadow"] && { ...nodeRecord().reported } } });
    expect(project("projection[3][0]=config&projection[3][1]=gateway&projection[3][2]=host")).toEqual({
      config: { gateway: { host: "gw.example.net" } },
    });
  });

  it("orders segments by their index, not by their place in the query", () => {
    expect(project("projection[0][1]=gateway&projection[0][0]=config")).toEqual({
      config: { gateway: { enabled: true, host: "gw.example.net" } },
    });
  });

  it("joins entries that share a beginning, the whole winning over its parts", () => {
    const host = "projection[0][0]=config&projection[0][1]=gateway&projection[0][2]=host";
    const enabled = "projection[1][0]=config&projection[1][1]=gateway&projection[1][2]=enabled";
    const whole = { config: { gateway: { enabled: true, host: "gw.example.net" } } };
    expect(project(`${host}&${enabled}`)).toEqual(whole);
    expect(project(`${host}&projection[1][0]=config&projection[1][1]=gateway`)).toEqual(whole);
  });

  it("silently empties config for dots and for a single segment", () => {
    expect(project("projection[]=config.gateway.enabled")).toEqual({ config: {} });
    expect(project("projection[]=shadow.reported")).toEqual({ shadow: {} });
    expect(project("projection[0][0]=config")).toEqual({ config: {} });
  });

  it.each(["__proto__", "constructor", "toString", "length"])("finds nothing under the segment %s", (segment) => {
    const shown = project(`projection[0][0]=shadow&projection[0][1]=reported&projection[0][2]=${segment}`);
    expect(shown).toStrictEqual({ shadow: { reported: {} } });
    expect(Object.keys(project(`projection[]=${segment}`))).toEqual([]);
    expect(project(`projection[0][0]=${segment}&projection[0][1]=x`)).toEqual({});
  });

  it("does not reach into text or beyond what exists", () => {
    expect(
      project("projection[0][0]=config&projection[0][1]=gateway&projection[0][2]=host&projection[0][3]=0"),
    ).toEqual({
      config: { gateway: {} },
    });
    expect(project("projection[0][0]=config&projection[0][1]=network")).toEqual({ config: {} });
  });

  it.each([
    "projection[x]=name",
    "projection[0][0][0]=name",
    "projection[0]x=name",
    "projection[99999]=name",
    `projection[]=${"a".repeat(257)}`,
    Array.from({ length: 129 }, () => "projection[]=name").join("&"),
    Array.from({ length: 17 }, (_, at) => `projection[0][${at}]=device`).join("&"),
  ])("refuses %.40s", (query) => {
    expect(() => parseProjection(new URLSearchParams(query), false)).toThrow(
      expect.objectContaining({ code: "invalid-query" }),
    );
  });

  it("of any query is refused on purpose or holds the base set", () => {
    const segment = fc.constantFrom(
      "config",
      "shadow",
      "reported",
      "gateway",
      "name",
      "__proto__",
      "constructor",
      "a.b",
      "",
    );
    const key = fc.oneof(
      fc.tuple(fc.nat(3), fc.nat(4)).map(([n, m]) => `projection[${n}][${m}]`),
      fc.constantFrom("projection[]", "projection", "projection[0]", "projection[[", "projection[0][]"),
    );
    const pair = fc.tuple(fc.oneof(key, fc.string()), fc.oneof(segment, fc.string()));
    fc.assert(
      fc.property(fc.array(pair, { maxLength: 12 }), (pairs) => {
        try {
          const projection = parseProjection(new URLSearchParams(pairs), false);
          if (projection !== undefined)
            expect(Object.keys(projectNode(record, projection))).toEqual(expect.arrayContaining(BASE));
        } catch (error) {
          expect(error).toBeInstanceOf(InputError);
        }
      }),
    );
  });
});

describe("the public form of a node", () => {
  it("spells the WireGuard key as the platform does", () => {
    const x = Buffer.alloc(32, 0xfb).toString("base64url");
    const keys = ownKeys({ ...nodeRecord().keys.jwk, wireguard: { kty: "OKP", crv: "X25519", x } });
    const text = Buffer.alloc(32, 0xfb).toString("base64");
    expect(publicNode(nodeRecord({ keys, keyForm: "jwk" }), "full")["keys"]).toMatchObject({
      identity: keys.jwk.auth,
      overlay: keys.jwk.overlay,
      wireguard: { kty: "EC", crv: "X25519", x: text },
    });
    const zero = Buffer.alloc(32);
    expect(publicNode(nodeRecord({ keys }), "full")["keys"]).toEqual({
      identity: zero.toString("base64"),
      overlay: Buffer.concat([Buffer.of(4), zero, zero]).toString("base64"),
      wireguard: text,
    });
  });
});
