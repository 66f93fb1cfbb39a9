import { z } from "zod";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { Requires } from "../../values/features.ts";
import { LinkName, type JsonObject, type NodeType } from "../../values/values.ts";
import {
  decimal,
  DEFAULT_IDLE_TIMEOUT_MS,
  Description,
  Enabled,
  IdleTimeout,
  Index,
  ItemPort,
  L4Protocol,
  notListenable,
  says,
  transportOf,
  whole,
} from "../common/fields.ts";
import { configIssue, type ConfigCode, type ConfigIssue } from "../common/issue.ts";
import type { RawItem } from "../common/forms.ts";
import { judgeFields, normaliseItems, tidyFields, type Normalised, type Reading } from "../common/items.ts";
import { GivenId, ItemId, sectionSchema } from "../common/section.ts";

const MAX_SOURCES = 1024;
/** Default limit of concurrent flows of a connector; a UDP flow is one client address. */
export const DEFAULT_MAX_CONNECTIONS = { tcp: 10_000, udp: 1024 } as const;

const BYTE = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const PORT = "(?:6553[0-5]|655[0-2]\\d|65[0-4]\\d\\d|6[0-4]\\d{3}|[1-5]\\d{4}|[1-9]\\d{0,3})";
const TARGET = new RegExp(`^(?:[A-Za-z0-9-]{1,253}|${BYTE}(?:\\.${BYTE}){3}:${PORT})$`);

const shape = {
  enabled: Enabled,
  node: z
    .string(says("must be text"))
    .regex(
      /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$/,
      says("must be the name of a node or a cluster, or local"),
    )
    .meta({ description: "Where the service is: a node, a cluster, or `local`" }),
  service: z
    .string(says("must be text"))
    .regex(TARGET, says("must be the name of a service, or IPv4:port"))
    .meta({ description: "Name of a service there, or `IPv4:port`" }),
  protocol: L4Protocol,
  port: ItemPort,
  nic: LinkName.optional().meta({ description: "Interface to listen on; `any` or absent for all" }),
  localIp: z
    .string(says("must be text"))
    .superRefine((text, context) => {
      const message = notListenable(text);
      if (message !== undefined) context.addIssue({ code: "custom", message });
    })
    .optional()
    .meta({ description: "Address to listen on, rather than `nic`; `0.0.0.0` for all" }),
  maxmbps: decimal(0, 1_000_000).optional().meta({ description: "Mbit/s each way; 0 is unlimited" }),
  sourceBlock: z
    .string(says("must be text"))
    .max(65_536, says("is too long"))
    .superRefine((text, context) => {
      const block = parseSourceBlock(text);
      if (block === undefined) {
        context.addIssue({ code: "custom", message: `must be CIDRs divided by commas, at most ${MAX_SOURCES}` });
      } else if (block.cidrs.length === 0) {
        const message = `${block.ipv6[0]} is IPv6, and connectors listen on IPv4: nobody could connect; name IPv4 sources`;
        context.addIssue({ code: "custom", message });
      }
    })
    .optional()
    .meta({ description: "Who may connect: IPv4 CIDRs divided by commas" }),
  maxConnections: whole(1, 1_000_000).optional(),
  idleTimeout: IdleTimeout,
  description: Description,
  index: Index,
  requires: Requires,
};

/** A connector as the API takes it; unknown fields are kept. */
export const ConnectorItem = z.looseObject({ ...shape, id: GivenId }, says("must be an object"));
/** A connector as the V2 calls of the API answer it. */
export const StoredConnector = z.looseObject({ ...shape, id: ItemId }, says("must be an object"));

/** The section `connectors` of the configuration, in either form. */
export const ConnectorsSection: z.ZodType<JsonObject> = sectionSchema("connectors", ConnectorItem, (section) =>
  normaliseConnectors(section, { nodeType: "Node" }).rejected.filter(({ other }) => other !== undefined),
);

/** Address that a connector listens on, as configured. */
export type ListenAt =
  | { readonly at: "any" }
  | { readonly at: "address"; readonly address: string }
  | { readonly at: "nic"; readonly nic: string };

/** A listener as a node uses it: everything filled in. Times in milliseconds. */
export interface Connector {
  readonly id: string;
  /** JSON path of the item; prefix of its issues. */
  readonly path: string;
  readonly index: number;
  /** False when the item or the whole section is switched off. */
  readonly enabled: boolean;
  /** A node, a cluster, a UID or `local`, unresolved. */
  readonly node: string;
  readonly target: { readonly service: string } | { readonly host: string; readonly port: number };
  readonly protocol: L4Protocol;
  readonly transport: "tcp" | "udp";
  readonly port: number;
  readonly listen: ListenAt;
  /** CIDRs that may connect, host bits masked away; absent means everybody. */
  readonly sources?: readonly string[];
  /** Each way, shared by all flows; absent means unlimited. */
  readonly bitsPerSecond?: number;
  readonly maxFlows: number;
  readonly idleTimeoutMs: number;
  readonly description: string;
}

export interface ConnectorContext {
  /** Agents do not filter sources. */
  readonly nodeType: NodeType;
}

/** Normalizes the section by item: unusable ones are rejected, and the later of two on one port. */
export function normaliseConnectors(raw: unknown, { nodeType }: ConnectorContext): Normalised<Connector> {
  const taken = new TakenPorts();
  return normaliseItems(
    "connectors",
    raw,
    (item, isOn) => readConnector(item, isOn, nodeType),
    (connector, { fields }) => {
      // The switch of the whole section does not make two items agree.
      const first = fields["enabled"] === false ? undefined : taken.take(connector);
      if (first === undefined) return undefined;
      const { transport, port, listen } = connector;
      const text = takenBy(`${transport} ${port} ${placeText(listen)}`, first);
      return { ...configIssue("E_PORT_IN_USE", connector, "port", text), other: first };
    },
  );
}

/** Tracks listening addresses. The wildcard address collides with every address of the same port. */
class TakenPorts {
  readonly #places = new Map<string, string>();
  readonly #ports = new Map<string, string>();

  /** Takes the place of a connector, or names the one that has it. */
  take({ id, transport, port, listen }: Connector): string | undefined {
    const key = `${transport}/${port}`;
    const place = `${key}/${placeOf(listen)}`;
    const first =
      listen.at === "any" ? this.#ports.get(key) : (this.#places.get(place) ?? this.#places.get(`${key}/any`));
    if (first !== undefined) return first;
    this.#places.set(place, id);
    if (!this.#ports.has(key)) this.#ports.set(key, id);
    return undefined;
  }
}

function placeOf(listen: ListenAt): string {
  switch (listen.at) {
    case "any":
      return "any";
    case "address":
      return `address/${listen.address}`;
    case "nic":
      return `nic/${listen.nic}`;
  }
}

/** Returns the message for a connector whose address another connector uses; `place` as in `tcp 80 on 10.0.0.1`. */
export const takenBy = (place: string, connector: string): string => `${place} is taken by the connector ${connector}`;

function placeText(listen: ListenAt): string {
  switch (listen.at) {
    case "any":
      return "on any address";
    case "address":
      return `on ${listen.address}`;
    case "nic":
      return `on ${listen.nic}`;
  }
}

const KNOWN = Object.keys(shape);
const NUMERIC: ReadonlySet<string> = new Set(["port", "maxmbps", "maxConnections", "idleTimeout"]);
const CODES: Readonly<Record<string, ConfigCode>> = {
  node: "E_NAME_FORMAT",
  service: "E_NAME_FORMAT",
  port: "E_PORT_RANGE",
  nic: "E_NAME_FORMAT",
  localIp: "E_CIDR_INVALID",
  maxmbps: "E_RANGE",
  sourceBlock: "E_CIDR_INVALID",
  maxConnections: "E_RANGE",
  idleTimeout: "E_RANGE",
};

function readConnector(raw: RawItem, isOn: boolean, nodeType: NodeType): Reading<Connector> {
  const { id, path, index, fields } = raw;
  const tidy = tidyFields(fields, KNOWN, NUMERIC);
  const notices: ConfigIssue[] = [];
  if (nodeType === "Agent" && tidy["sourceBlock"] !== undefined) {
    delete tidy["sourceBlock"];
    notices.push(configIssue("E_UNSUPPORTED_ON_AGENT", raw, "sourceBlock", "ignored: agents do not filter sources"));
  }
  const { fields: item, rejected } = judgeFields(raw, ConnectorItem, tidy, CODES);
  if (item === undefined) return { rejected, notices: [] };
  const block = item.sourceBlock === undefined ? undefined : parseSourceBlock(item.sourceBlock);
  if (block?.hadHostBits === true) {
    notices.push(configIssue("E_CIDR_HOSTBITS", raw, "sourceBlock", "host bits are masked away"));
  }
  if (block !== undefined && block.ipv6.length > 0) {
    const text = `${block.ipv6[0]} is ignored: it is IPv6, and connectors listen on IPv4`;
    notices.push(configIssue("E_UNSUPPORTED", raw, "sourceBlock", text));
  }
  const transport = transportOf(item.protocol);
  const { maxmbps = 0, idleTimeout, maxConnections } = item;
  const connector: Connector = {
    id,
    path,
    index,
    enabled: isOn && (item.enabled ?? true),
    node: item.node,
    target: targetOf(item.service),
    protocol: item.protocol,
    transport,
    port: item.port,
    listen: listenOf(item.nic, item.localIp),
    ...(block === undefined ? {} : { sources: block.cidrs }),
    ...(maxmbps > 0 ? { bitsPerSecond: Math.max(1, Math.round(maxmbps * 1_000_000)) } : {}),
    maxFlows: maxConnections ?? DEFAULT_MAX_CONNECTIONS[transport],
    idleTimeoutMs: idleTimeout === undefined ? DEFAULT_IDLE_TIMEOUT_MS[transport] : Math.round(idleTimeout * 1000),
    description: item.description ?? "",
  };
  return { item: connector, rejected, notices };
}

/** An explicit address goes before an interface. */
function listenOf(nic: string | undefined, localIp: string | undefined): ListenAt {
  if (localIp !== undefined) return localIp === "0.0.0.0" ? { at: "any" } : { at: "address", address: localIp };
  return nic === undefined || nic === "any" ? { at: "any" } : { at: "nic", nic };
}

function targetOf(service: string): Connector["target"] {
  const [host = "", port] = service.split(":");
  return port === undefined ? { service } : { host, port: Number(port) };
}

/** The sources that may connect, by family: IPv6 ones have no effect. */
export interface SourceBlock {
  readonly cidrs: readonly string[];
  readonly ipv6: readonly string[];
  readonly hadHostBits: boolean;
}

/**
 * Reads the sources that may connect; blanks around a CIDR do not matter. An empty part makes the whole invalid: a list that
 * lost its entries must not come to mean everybody.
 */
export function parseSourceBlock(text: string): SourceBlock | undefined {
  const parts = text.split(",").map((part) => parseCidr(part.trim()));
  const cidrs = parts.filter((part) => part !== undefined);
  if (cidrs.length < parts.length) return undefined;
  const unique = [...new Set(cidrs.map((cidr) => cidr.text))];
  if (unique.length > MAX_SOURCES) return undefined;
  const isIpv6 = (cidr: string): boolean => cidr.includes(":");
  return {
    cidrs: unique.filter((cidr) => !isIpv6(cidr)),
    ipv6: unique.filter(isIpv6),
    hadHostBits: cidrs.some((cidr) => cidr.hadHostBits),
  };
}
