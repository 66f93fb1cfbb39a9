import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { describeIssues } from "../../../../../src/protocol/channel/envelope.ts";
import { upgradeToV2 } from "../../../../../src/protocol/sections/common/forms.ts";
import {
  normaliseServices,
  ServiceItem,
  ServicesSection,
} from "../../../../../src/protocol/sections/services/services.ts";
import { nearValidValues, validValues, withUnknownFields } from "../../../../support/arbitrary.ts";
import { runs } from "../../../../support/sample.ts";

const A = "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d01";
const B = "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d02";
const web = { name: "web", protocol: "tcp", host: "127.0.0.1", port: 8080 };

const v2 = (...items: readonly unknown[]) => ({
  version: 2,
  items: Object.fromEntries(items.map((item, at) => [`id-${at}`, item])),
});
const messages = (raw: unknown) => normaliseServices(raw).rejected.map(({ code, message }) => `${code} ${message}`);

describe("a stored service", () => {
  it("gets its defaults", () => {
    expect(normaliseServices(v2(web))).toEqual({
      enabled: true,
      rejected: [],
      notices: [],
      items: [
        {
          id: "id-0",
          path: "services.items.id-0",
          index: 0,
          enabled: true,
          ...web,
          transport: "tcp",
          sourceFromClusterIP: false,
          connectTimeoutMs: 5000,
          idleTimeoutMs: 900_000,
          description: "",
        },
      ],
    });
  });

  it.each([
    ["numbers as text", { port: "8080", connectTimeout: "1.5", index: "7" }, { connectTimeoutMs: 1500, index: 7 }],
    ["empty texts", { sourceInterface: "", connectTimeout: "", description: "" }, { connectTimeoutMs: 5000 }],
    ["nulls", { sourceInterface: null, enabled: null, healthCheck: null, index: null }, { enabled: true, index: 0 }],
    ["unknown fields", { future: { deep: true }, tgrn: 1 }, { name: "web" }],
    ["what only people look at", { description: 5, index: "first" }, { description: "", index: 0 }],
    ["an id of its own", { id: "another" }, { id: "id-0" }],
    ["the withdrawn health flag", { healthCheck: true }, { name: "web" }],
    ["a health check", { healthCheck: {} }, { healthCheck: { intervalMs: 10_000, failures: 3, successes: 1 } }],
    ["udp", { protocol: "udp" }, { transport: "udp", idleTimeoutMs: 60_000 }],
    ["an idle time", { protocol: "udp", idleTimeout: 2 }, { idleTimeoutMs: 2000 }],
    ["ssh", { protocol: "ssh" }, { transport: "tcp", protocol: "ssh" }],
    ["ftp", { protocol: "ftp" }, { transport: "tcp", protocol: "ftp" }],
    ["tftp", { protocol: "tftp" }, { transport: "udp", protocol: "tftp", idleTimeoutMs: 60_000 }],
    ["off", { enabled: false }, { enabled: false }],
    ["a source interface", { sourceInterface: "ens192.30" }, { sourceInterface: "ens192.30" }],
  ])("is accepted with %s", (_, change, expected) => {
    const { items, rejected } = normaliseServices(v2({ ...web, ...change }));
    expect(rejected).toEqual([]);
    expect(items).toMatchObject([expected]);
    expect(JSON.stringify(items)).not.toContain("future");
  });

  it.each([
    ["no name", { name: undefined }, "E_REQUIRED", "name: is required"],
    ["an empty name", { name: "" }, "E_REQUIRED", "name: is required"],
    ["a name with a blank", { name: "a b" }, "E_NAME_FORMAT", "name: must be letters, digits and dashes"],
    ["a name with a line feed", { name: "web\n" }, "E_NAME_FORMAT", "name: must be letters, digits and dashes"],
    ["port 0", { port: 0 }, "E_PORT_RANGE", "port: must be 1..65535"],
    ["port 65536", { port: 65_536 }, "E_PORT_RANGE", "port: must be 1..65535"],
    ["port 65536 as text", { port: "65536" }, "E_PORT_RANGE", "port: must be 1..65535"],
    ["half a port", { port: 80.5 }, "E_PORT_RANGE", "port: must be 1..65535"],
    ["a hexadecimal port", { port: "0x50" }, "E_PORT_RANGE", "port: is text, and must be a whole number, 1..65535"],
    ["no port", { port: null }, "E_REQUIRED", "port: is required"],
    ["no host", { host: "" }, "E_REQUIRED", "host: is required"],
    ["half an address", { host: "10.0.0.256" }, "E_NAME_FORMAT", "host: must be an IPv4 address or a DNS name"],
    ["an IPv6 address", { host: "::1" }, "E_NAME_FORMAT", "host: must be an IPv4 address or a DNS name"],
    ["an option as host", { host: "-rf" }, "E_NAME_FORMAT", "host: must be an IPv4 address or a DNS name"],
    ["no protocol", { protocol: null }, "E_REQUIRED", "protocol: is required"],
    ["an unknown protocol", { protocol: "sctp" }, "E_ENUM", "protocol: must be one of tcp"],
    ["http", { protocol: "http" }, "E_UNSUPPORTED_PROTOCOL", "protocol: http belonged to remote-access applications"],
    ["https", { protocol: "https" }, "E_UNSUPPORTED_PROTOCOL", "protocol: https belonged"],
    ["wireguard", { protocol: "wireguard" }, "E_UNSUPPORTED_PROTOCOL", "protocol: wireguard belonged"],
    ["the VIP of nothing", { sourceFromClusterIP: true }, "E_DEPENDENCY", "sourceFromClusterIP: needs sourceInterface"],
    ["no interface", { sourceInterface: "-x" }, "E_NAME_FORMAT", "sourceInterface: not the name"],
    ["no time to connect", { connectTimeout: 0 }, "E_RANGE", "connectTimeout: must be a number, 1..600"],
    ["a switch as text", { enabled: "false" }, "E_ENUM", "enabled: must be true or false"],
    ["endless probing", { healthCheck: { interval: 0 } }, "E_RANGE", "healthCheck.interval: must be a number, 1..3600"],
    ["a needed feature", { requires: ["quantum"] }, "E_DEPENDENCY", "requires: not supported: quantum"],
  ])("is rejected with %s, and the next one is not", (_, change, code, text) => {
    const raw = v2({ ...web, ...change }, { ...web, name: "other" });
    const [line, ...more] = messages(raw);
    expect(line).toContain(`${code} services.items.id-0.${text}`);
    expect(more).toEqual([]);
    expect(normaliseServices(raw).items.map(({ name }) => name)).toEqual(["other"]);
    expect(normaliseServices(raw).rejected[0]).toMatchObject({ id: "id-0" });
  });

  it("keeps and notes fields that are not served as written", () => {
    const vip = { sourceInterface: "lo", sourceFromClusterIP: true };
    const raw = v2({ ...web, ...vip });
    const { items, rejected, notices } = normaliseServices(raw);
    expect(rejected).toEqual([]);
    expect(notices.map(({ code, message }) => `${code} ${message}`)).toEqual([
      "E_DEPENDENCY services.items.id-0.sourceFromClusterIP: ignored: the node is in no cluster",
    ]);
    expect(items[0]).toMatchObject({ sourceInterface: "lo", sourceFromClusterIP: false });
    const member = normaliseServices(raw, { isMember: true });
    expect([member.items[0]?.sourceFromClusterIP, member.notices.length]).toEqual([true, 0]);
  });

  it("loses its name to an earlier one, by index and then by id", () => {
    const raw = {
      items: { c: { ...web, index: 1 }, b: { ...web, index: 0 }, a: { ...web, index: 1, enabled: false } },
    };
    const { items, rejected } = normaliseServices(raw);
    expect(items.map(({ id }) => id)).toEqual(["b"]);
    expect(rejected).toMatchObject([
      { id: "a", code: "E_NAME_DUPLICATE", other: "b", message: "services.items.a.name: web is the service b" },
      { id: "c", code: "E_NAME_DUPLICATE", other: "b", path: "services.items.c.name" },
    ]);
    expect(normaliseServices(v2(web, { ...web, name: "Web" })).items).toHaveLength(2);
  });
});

describe("the two forms", () => {
  it("of one content differ in ids and paths only", () => {
    const list = [web, { ...web, id: A, name: "b" }];
    expect(normaliseServices({ services: list }).items).toMatchObject([
      { id: "0", path: "services.services.0", index: 0, name: "web" },
      { id: A, path: "services.services.1", index: 1, name: "b" },
    ]);
  });

  it("mixed skip all but the V2 items, and report it", () => {
    const { items, notices } = normaliseServices({ ...v2(web), services: [{ ...web, name: "old" }] });
    expect(items.map(({ name }) => name)).toEqual(["web"]);
    expect(notices).toMatchObject([{ code: "E_V1_ON_V2", path: "services.services", id: "" }]);
    expect(normaliseServices({ version: "2", services: [web] }).items).toEqual([]);
  });

  it("ignore the order field of a legacy list, which has its own order", () => {
    const { items } = normaliseServices({
      services: [
        { ...web, index: 5 },
        { ...web, name: "b", index: 1 },
      ],
    });
    expect(items.map(({ name }) => name)).toEqual(["web", "b"]);
  });

  it.each([
    [undefined, []],
    [null, []],
    [{}, []],
    ["x", ["E_ENUM services: must be an object"]],
    [[], ["E_ENUM services: must be an object"]],
    [{ services: {} }, ["E_ENUM services.services: must be an array"]],
    [{ items: [] }, ["E_ENUM services.items: must be an object"]],
    [{ items: { a: 1 } }, ["E_ENUM services.items.a: must be an object"]],
    [{ items: { "": {} } }, ["E_RANGE services.items.: an id has 1..128 characters"]],
    [{ services: [null] }, ["E_ENUM services.services.0: must be an object"]],
    [{ enabled: 1 }, ["E_ENUM services.enabled: must be true or false; taken as false"]],
  ])("%j gives no item", (raw, expected) => {
    expect(messages(raw)).toEqual(expected);
    expect(normaliseServices(raw).items).toEqual([]);
  });

  it("of a disabled section disable every item", () => {
    const { enabled, items } = normaliseServices({ enabled: false, services: [web] });
    expect([enabled, items[0]?.enabled]).toEqual([false, false]);
    expect(normaliseServices({ enabled: "yes", services: [web] }).items[0]?.enabled).toBe(false);
  });

  it("reject a second item with the same id, and bound ids and numbers of items", () => {
    const twice = {
      services: [
        { ...web, id: A },
        { ...web, id: A, name: "b" },
      ],
    };
    expect(messages(twice)).toEqual(["E_NAME_DUPLICATE services.services.1.id: another item has it"]);
    const long = normaliseServices({ items: { ["x".repeat(5000)]: web } });
    expect([long.items.length, long.rejected[0]?.message.length]).toMatchObject([0, expect.any(Number)]);
    expect(long.rejected[0]?.message.length).toBeLessThan(256);
    const many = Array.from({ length: 10_002 }, (_, at) => ({ ...web, name: `s${at}` }));
    const { items, rejected } = normaliseServices({ services: many });
    expect([items.length, rejected.map(({ message }) => message)]).toEqual([
      10_000,
      ["services: at most 10000 items; 2 are left out"],
    ]);
  });
});

describe("the schema of the API", () => {
  const lines = (value: unknown) => {
    const parsed = ServicesSection.safeParse(value);
    return parsed.success ? parsed.data : describeIssues(parsed.error, "services");
  };

  it("accepts both forms unchanged, with unknown fields", () => {
    for (const section of [
      {},
      { enabled: false },
      { enabled: true, services: [{ ...web, id: A, future: 1 }] },
      { enabled: true, version: 2, items: { [A]: { ...web, later: {} }, [B]: { ...web, id: B, name: "b" } }, x: 1 },
    ]) {
      expect(lines(section)).toEqual(section);
    }
  });

  it.each([
    [{ services: [{ ...web, id: "one" }] }, ["services.services.0.id: must be a UUID"]],
    [{ services: [{ ...web, id: "1" }] }, ["services.services.0.id: must be a UUID"]],
    [{ version: 1 }, ["services.version: must be 2, or absent in the legacy form"]],
    [{ version: 2 }, ["services.items: is required beside version 2"]],
    [{ items: {} }, ["services.version: must be 2 beside items"]],
    [{ version: 2, items: {}, services: [] }, ["services.services: has no place beside version 2"]],
    [{ version: 2, items: { a: web } }, ["services.items.a: the id of an item must be a UUID"]],
    [
      { version: 2, items: { [A]: { ...web, id: B } } },
      [`services.items.${A}.id: must be the id it stands under, or absent`],
    ],
    [
      { version: 2, items: { [A]: { ...web, port: "80" } } },
      [`services.items.${A}.port: is text, and must be a whole number, 1..65535`],
    ],
    [
      { version: 2, items: { [A]: { ...web, connectTimeout: "5", healthCheck: { interval: "9", failures: "2" } } } },
      [
        `services.items.${A}.connectTimeout: is text, and must be a number, 1..600`,
        `services.items.${A}.healthCheck.interval: is text, and must be a number, 1..3600`,
        `services.items.${A}.healthCheck.failures: is text, and must be a whole number, 1..100`,
      ],
    ],
    [{ version: 2, items: { [A]: { ...web, host: "" } } }, [`services.items.${A}.host: must not be empty`]],
    [
      { version: 2, items: { [A]: { ...web, host: "a".repeat(254) } } },
      [`services.items.${A}.host: must have at most 253 characters`],
    ],
    [
      { version: 2, items: { [A]: { ...web, port: 0, sourceFromClusterIP: true } } },
      [`services.items.${A}.port: must be 1..65535`, `services.items.${A}.sourceFromClusterIP: needs sourceInterface`],
    ],
    [
      { version: 2, items: { [A]: { ...web, sourceInterface: "a/b", sourceFromClusterIP: true } } },
      [`services.items.${A}.sourceInterface: not the name of a network interface`],
    ],
    [
      { version: 2, items: { [A]: { ...web, sourceInterface: "" } } },
      [`services.items.${A}.sourceInterface: not the name of a network interface`],
    ],
    [
      { version: 2, items: { [A]: { ...web, healthCheck: true } } },
      [`services.items.${A}.healthCheck: must be an object`],
    ],
    [{ version: 2, items: { [A]: web, [B]: web } }, [`services.items.${B}.name: web is the service ${A}`]],
    [
      {
        services: [
          { ...web, id: A },
          { ...web, id: B },
        ],
      },
      [`services.services.1.name: web is the service ${A}`],
    ],
    [{ enabled: 1, services: {} }, ["services.enabled: must be true or false", "services.services: must be an array"]],
  ])("refuses %j", (section, expected) => {
    expect(lines(section)).toEqual(expected);
  });
});

describe("values derived from the schema", () => {
  it("that the API accepts are accepted by the node, with unknown fields too", () => {
    fc.assert(
      fc.property(validValues(ServiceItem), (value) => {
        fc.pre(ServiceItem.safeParse(value).success);
        const { requires: _, ...item } = ServiceItem.parse(withUnknownFields(ServiceItem, value));
        const { items, rejected } = normaliseServices(v2(item));
        expect([items.length, rejected]).toEqual([1, []]);
      }),
      { numRuns: runs(200) },
    );
  });

  it("nearly valid never end as a fault, are named by path, and leave the others alone", () => {
    fc.assert(
      fc.property(nearValidValues(ServiceItem), ({ value }) => {
        const { items, rejected } = normaliseServices(v2({ ...web, name: "mine--" }, value));
        expect(items.some(({ name }) => name === "mine--")).toBe(true);
        for (const { path, message } of rejected) {
          expect(path.startsWith("services.items.id-1")).toBe(true);
          expect(message.startsWith(`${path}: `)).toBe(true);
          expect(message.length).toBeLessThan(1024);
        }
        expect(items.length === 2).toBe(rejected.length === 0);
      }),
      { numRuns: runs(300) },
    );
  });

  it("nearly valid as a whole section are refused with a path, or accepted by the node as well", () => {
    fc.assert(
      fc.property(nearValidValues(ServicesSection), ({ value }) => {
        const parsed = ServicesSection.safeParse(value);
        const { rejected } = normaliseServices(value);
        if (parsed.success) expect(rejected.filter(({ code }) => code !== "E_DEPENDENCY")).toEqual([]);
        else for (const line of describeIssues(parsed.error, "services")) expect(line).toMatch(/^services[.:]/);
      }),
      { numRuns: runs(300) },
    );
  });
});

describe("the upgrade", () => {
  const counter = () => {
    let at = 0;
    return () => `00000000-0000-4000-8000-${String((at += 1)).padStart(12, "0")}`;
  };

  it("gives every item a new key and changes nothing else", () => {
    const legacy = {
      enabled: false,
      x: 1,
      services: [
        { ...web, id: A, index: 9, future: {} },
        { ...web, id: B, name: "b" },
      ],
    };
    const [one, two] = ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"];
    expect(upgradeToV2("services", legacy, counter())).toEqual({
      enabled: false,
      x: 1,
      version: 2,
      items: { [one]: { ...web, id: one, index: 0, future: {} }, [two]: { ...web, id: two, index: 1, name: "b" } },
    });
  });

  it("is one-way and happens once", () => {
    const once = upgradeToV2("services", { services: [web] }, counter());
    expect(upgradeToV2("services", once, () => "another")).toBe(once);
  });

  it("keeps the normalised content, except for ids", () => {
    const list = fc.array(
      fc.oneof(
        nearValidValues(ServiceItem).map(({ value }) => value),
        validValues(ServiceItem),
      ),
    );
    fc.assert(
      fc.property(list, fc.constantFrom(undefined, true, false), (services, enabled) => {
        const distinct = services.map((item, at) =>
          typeof item === "object" && item !== null && !Array.isArray(item) ? { ...item, id: `v1-${at}` } : item,
        );
        const legacy = { ...(enabled === undefined ? {} : { enabled }), services: distinct };
        const before = normaliseServices(legacy);
        const after = normaliseServices(upgradeToV2("services", legacy, counter()));
        const content = ({ items }: typeof before) => items.map((item) => ({ ...item, id: "", path: "" }));
        expect(content(after)).toEqual(content(before));
        expect(after.rejected.map(({ code }) => code)).toEqual(before.rejected.map(({ code }) => code));
      }),
      { numRuns: runs(200) },
    );
  });
});
