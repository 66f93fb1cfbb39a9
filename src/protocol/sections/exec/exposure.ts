import type { PortMapping, VirtualInterface, VirtualNetworkUse } from "./config.ts";
import { EXEC_LIMITS, InterfaceItem, PortMappingItem, VirtualNetworkItem, type PartName } from "./fields.ts";
import { sortedBy, tidied, type ExecReader, type RawPart } from "./reader.ts";
import type { RawItem } from "../common/forms.ts";

/** Exposed ports and networks of a container, each with its place in the section. */
export interface Exposure {
  readonly portMappings: readonly Placed<PortMapping>[];
  readonly interfaces: readonly Placed<VirtualInterface>[];
  readonly virtualNetworks: readonly Placed<VirtualNetworkUse>[];
}

export interface Placed<T> {
  readonly at: RawItem;
  readonly item: T;
}

type Parts = ReadonlyMap<PartName, RawPart>;

/** Reads port mappings, interfaces and virtual networks of a container. Invalid ones are omitted, and the container runs without them. */
export function readExposure(reader: ExecReader, at: RawItem, parts: Parts): Exposure {
  return {
    portMappings: inOrder(readPorts(reader, at, parts)),
    interfaces: inOrder(readInterfaces(reader, at, parts)),
    virtualNetworks: inOrder(readNetworks(reader, at, parts)),
  };
}

/** Assigns exclusive resources to containers in the order of their ids; the first one gets it. */
export class Claims {
  readonly #first = new Map<string, { readonly id: string; readonly name: string }>();

  /** Claims a resource, or returns its owner. */
  take(thing: string, owner: { readonly id: string; readonly name: string }) {
    const first = this.#first.get(thing);
    if (first === undefined) this.#first.set(thing, owner);
    return first;
  }

  /** Leaves out what another container, or another entry of this one, has. One that is disabled has nothing. */
  settle(
    reader: ExecReader,
    owner: { readonly id: string; readonly name: string; readonly enabled: boolean },
    { portMappings, interfaces, virtualNetworks }: Exposure,
  ) {
    const claims = owner.enabled ? this : new Claims();
    const free =
      <T>(code: "E_PORT_IN_USE" | "E_NAME_DUPLICATE", field: string, nameOf: (item: T) => string) =>
      ({ at, item }: Placed<T>): T[] => {
        const name = nameOf(item);
        const taken = claims.take(name, owner);
        if (taken === undefined) return [item];
        if (taken.id === owner.id) reader.tolerate(code, at, field, `${name} is there already`, "ignored");
        else reader.collide(code, at, field, `${name} is taken by the container ${taken.name}`, taken.id);
        return [];
      };
    return {
      portMappings: portMappings.flatMap(
        free("E_PORT_IN_USE", "hostPort", ({ protocol, iface, hostPort }) => `${protocol} ${hostPort} on ${iface}`),
      ),
      interfaces: interfaces.flatMap(free("E_NAME_DUPLICATE", "name", ({ name }) => `the interface ${name}`)),
      virtualNetworks: virtualNetworks.flatMap(
        free("E_NAME_DUPLICATE", "ip", ({ network, ip }) => `${ip} in the network ${network}`),
      ),
    };
  }
}

const inOrder = <T>(found: readonly Placed<T>[]): Placed<T>[] => sortedBy(found, ({ item }) => JSON.stringify(item));

function readPorts(reader: ExecReader, at: RawItem, parts: Parts): Placed<PortMapping>[] {
  const tidying = { numeric: new Set(["hostPort", "containerPort"]), lowerCase: new Set(["protocol"]) };
  return reader
    .items(at, parts.get("portMappings"), EXEC_LIMITS.portMappings)
    .items.flatMap((item): Placed<PortMapping>[] => {
      const tidy = tidied(item.fields, tidying);
      const { protocol } = tidy;
      if (protocol !== "tcp" && protocol !== "udp") {
        reader.note("E_ENUM", item, "protocol", "is neither tcp nor udp; the mapping is ignored");
        return [];
      }
      const judged = reader.judge(item, PortMappingItem, tidy);
      if (judged === undefined) return [];
      const { iface, hostPort, containerPort } = judged;
      const ports = { hostPort: Number(hostPort), containerPort: Number(containerPort) };
      return [{ at: item, item: { protocol, iface, ...ports } }];
    });
}

function readInterfaces(reader: ExecReader, at: RawItem, parts: Parts): Placed<VirtualInterface>[] {
  return reader.items(at, parts.get("interfaces"), EXEC_LIMITS.interfaces).items.flatMap((item) => {
    const judged = reader.judge(item, InterfaceItem, tidied(item.fields, {}));
    if (judged === undefined) return [];
    const { name, dest } = judged;
    const [address = ""] = dest.split("/");
    return [{ at: item, item: { name, dest: /^\d/.test(dest) ? { address } : { link: dest } } }];
  });
}

function readNetworks(reader: ExecReader, at: RawItem, parts: Parts): Placed<VirtualNetworkUse>[] {
  return reader.items(at, parts.get("virtualNetworks"), EXEC_LIMITS.virtualNetworks).items.flatMap((item) => {
    const tidy = tidied(item.fields, {});
    const { ip } = tidy;
    if (typeof ip === "string" && ip.includes("/")) {
      reader.note("E_CIDR_INVALID", item, "ip", "is an address without a prefix length; the length is ignored");
      [tidy["ip"]] = ip.split("/");
    }
    const judged = reader.judge(item, VirtualNetworkItem, tidy, new Set(["allowOutbound", "uid"]));
    if (judged === undefined) return [];
    return [
      { at: item, item: { network: judged.network, ip: judged.ip, allowOutbound: judged.allowOutbound ?? false } },
    ];
  });
}
