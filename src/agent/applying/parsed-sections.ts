import { normaliseConnectors, type Connector } from "../../protocol/sections/connectors/connectors.ts";
import { normaliseGateway, type NormalisedGateway } from "../../protocol/sections/gateway/gateway.ts";
import type { Normalised } from "../../protocol/sections/common/items.ts";
import { normaliseServices, type Service } from "../../protocol/sections/services/services.ts";
import { readExec, type ReadExec } from "../../protocol/sections/exec/read.ts";
import { readNetwork, type ReadNetwork } from "../../protocol/sections/network/read.ts";
import type { NodeType } from "../../protocol/values/values.ts";

/** Parsers of sections that parse each raw value once while it is in use. */
export interface ParsedSections {
  connectors(raw: unknown, nodeType: NodeType): Normalised<Connector>;
  services(raw: unknown, isMember: boolean): Normalised<Service>;
  gateway(raw: unknown, nodeType: NodeType): NormalisedGateway;
  network(raw: unknown, nodeType: NodeType, isMember: boolean): ReadNetwork;
  exec(raw: unknown): ReadExec;
}

/** Parsing a thousand items is the slowest part of a report, and reports are requested every second. */
export function parsedSections(): ParsedSections {
  const network = {
    alone: once((raw, nodeType: NodeType) => readNetwork(raw, { nodeType, isMember: false })),
    member: once((raw, nodeType: NodeType) => readNetwork(raw, { nodeType, isMember: true })),
  };
  const exec = once((raw, _context: undefined) => readExec(raw));
  return {
    network: (raw, nodeType, isMember) => (isMember ? network.member : network.alone)(raw, nodeType),
    exec: (raw) => exec(raw, undefined),
    connectors: once((raw, nodeType: NodeType) => normaliseConnectors(raw, { nodeType })),
    gateway: once((raw, nodeType: NodeType) => normaliseGateway(raw, { nodeType })),
    services: once((raw, isMember: boolean) => normaliseServices(raw, { isMember })),
  };
}

/** Caches the result of the last raw section and context; raw sections are never modified. */
function once<Context, Result>(
  parse: (raw: unknown, context: Context) => Result,
): (raw: unknown, context: Context) => Result {
  const known = new WeakMap<object, { readonly context: Context; readonly result: Result }>();
  return (raw, context) => {
    if (typeof raw !== "object" || raw === null) return parse(raw, context);
    const cached = known.get(raw);
    if (cached !== undefined && cached.context === context) return cached.result;
    const result = parse(raw, context);
    known.set(raw, { context, result });
    return result;
  };
}
