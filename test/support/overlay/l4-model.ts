import fc from "fast-check";
import { connectorsSection } from "../../../src/agent/sections/connectors/section.ts";
import { servicesSection } from "../../../src/agent/sections/services/section.ts";
import type { OverlayEdit, OverlayView } from "../../../src/host/overlay/client.ts";
import type { JsonObject, NodeType } from "../../../src/protocol/values/values.ts";

const LINKS = new Map<string, readonly string[]>([
  ["lo", ["127.0.0.1"]],
  ["two", ["127.0.0.2", "127.0.0.3"]],
  ["bare", []],
]);
/** An overlay that only stores its state, and counts changes. */
export function modelOverlay() {
  let view: OverlayView = { services: new Map(), listeners: new Map(), states: new Map(), health: new Map() };
  let changes = 0;
  const edited = <T>(
    before: ReadonlyMap<string, T>,
    edit: { readonly put: readonly T[]; readonly drop: readonly string[] } | undefined,
    identity: (entry: T) => string,
  ): ReadonlyMap<string, T> => {
    const dropped = new Set(edit?.drop);
    const put = edit?.put.map((entry) => [identity(entry), entry] as const) ?? [];
    return new Map([...[...before].filter(([key]) => !dropped.has(key)), ...put]);
  };
  return {
    changes: () => changes,
    view: () => view,
    /** Replaces its state, as another program might. */
    become(next: OverlayView): void {
      view = next;
    },
    observe: () => Promise.resolve(view),
    change(edit: OverlayEdit) {
      changes += 1;
      const services = edited(view.services, edit.services, ({ name }) => name);
      const listeners = edited(view.listeners, edit.listeners, ({ key }) => key);
      view = { ...view, services, listeners, ...(Object.hasOwn(edit, "mesh") ? { mesh: edit.mesh } : {}) };
      return Promise.resolve();
    },
  };
}

/** Both sections over an overlay, on a machine with three links by default. */
export function sectionsOver(
  overlay: Parameters<typeof servicesSection>[0]["overlay"],
  nodeType: NodeType = "Node",
  addresses: () => ReadonlyMap<string, readonly string[]> = () => LINKS,
) {
  return {
    services: servicesSection({ overlay, addresses, isMember: () => false }),
    connectors: connectorsSection({
      overlay,
      addresses,
      nodeType: () => nodeType,
      isHere: (node) => node === "local" || node === "me",
      peers: () => undefined,
    }),
  };
}

/** Stored sections, with valid and invalid items. */
export function rawSections(ports: readonly number[]): fc.Arbitrary<{ services: JsonObject; connectors: JsonObject }> {
  const ids = fc.constantFrom("a", "b", "c", "d", "e");
  const some = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(value, { nil: undefined });
  const names = fc.constantFrom("web", "api", "dns", "");
  const protocols = fc.constantFrom("tcp", "udp", "ssh", "ftp", "tftp", "http", 7);
  const connectors = fc.record({
    enabled: some(fc.boolean()),
    node: fc.constantFrom("local", "me", "elsewhere", ""),
    service: fc.oneof(names, fc.constantFrom("127.0.0.1:9", "0.0.0.0:1", "::1:4", "300.0.0.1:1")),
    protocol: protocols,
    port: fc.oneof(fc.constantFrom<unknown>(...ports), fc.constantFrom("8080", 0, 65_536, null)),
    nic: some(fc.constantFrom("lo", "two", "bare", "gone", "any")),
    localIp: some(fc.constantFrom("127.0.0.1", "127.0.0.9", "0.0.0.0", "::1")),
    maxmbps: some(fc.constantFrom<unknown>(0, 0.000_000_1, 5, 1_000_000, "7", -1)),
    sourceBlock: some(fc.constantFrom("10.0.0.1/8", "127.0.0.0/8, 10.1.0.0/16", ",", "x")),
    maxConnections: some(fc.constantFrom<unknown>(1, 1_000_000, 0)),
    idleTimeout: some(fc.constantFrom<unknown>(1, 1.000_1, 2_592_000, "60", 0.5)),
    index: some(fc.nat(9)),
  });
  const services = fc.record({
    enabled: some(fc.boolean()),
    name: names,
    protocol: protocols,
    host: fc.constantFrom("127.0.0.1", "0.0.0.0", "a.example", "a.example.", "x_y", "1.2.3", "::1", ""),
    port: fc.constantFrom<unknown>(9, 65_535, 65_536),
    sourceInterface: some(fc.constantFrom("lo", "two", "bare", "gone")),
    sourceFromClusterIP: some(fc.boolean()),
    connectTimeout: some(fc.constantFrom<unknown>(1, 1.000_1, 600, 601)),
    healthCheck: some(fc.constantFrom<unknown>(true, {}, { interval: 1, failures: 1, successes: 2 }, { interval: 0 })),
  });
  const section = (name: string, item: fc.Arbitrary<JsonObject>): fc.Arbitrary<JsonObject> =>
    fc.oneof(
      { weight: 6, arbitrary: fc.dictionary(ids, item, { maxKeys: 5 }).map((items) => ({ version: 2, items })) },
      { weight: 2, arbitrary: fc.array(item, { maxLength: 5 }).map((list) => ({ [name]: list })) },
      { weight: 1, arbitrary: fc.constantFrom<JsonObject>({}, { enabled: false }, { version: 2, items: { a: 7 } }) },
    );
  return fc.record({ services: section("services", services), connectors: section("connectors", connectors) });
}
